"""What a model charges, read from what its provider says of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_summary.limits import Prices, prices_of


def test_prices_are_those_of_the_provider() -> None:
    pricing = SimpleNamespace(input_per_million=4.0, output_per_million=20, cache_read_per_million=0.4)
    assert prices_of(pricing) == Prices(4.0, 0.4, 5.0, 20.0, known=True)
    assert prices_of({"input_per_million": 4.0, "output_per_million": 20}) == Prices(4.0, 0.4, 5.0, 20.0, known=True)


@pytest.mark.parametrize("price", [10**400, float("inf"), float("nan"), -1, True, "4", None])
def test_a_price_that_makes_no_sense_is_none(price: Any) -> None:
    pricing = SimpleNamespace(input_per_million=price, output_per_million=price)
    assert prices_of(pricing) == Prices()
