"""The budget of a request: its sources, its caps, and impossible values from a provider."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from amplifier_core import ModelInfo
from amplifier_core.models import Pricing

from amplifier_context_core import load_config
from amplifier_context_core.economics.budget import Budget, budget_for, model_of, name_of, prices_of, provider_window
from amplifier_context_core.economics.meter import Prices
from amplifier_context_core.errors import ConfigError


def provider(window: Any = None, answer: Any = None, **more: Any) -> Any:
    defaults = {"context_window": window, "max_output_tokens": answer, **more}
    return SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=defaults))


def budget(**settings: Any) -> Budget:
    of_request = {name: settings.pop(name) for name in ("token_budget", "provider") if name in settings}
    defaults = {"output_reserve_fraction": 1.0, "safety_margin": 1_000}
    return budget_for(load_config({**defaults, **settings}), **of_request)


# -- its sources, in their order, and its caps ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"token_budget": 5_000, "provider": provider(100_000)}, Budget(5_000)),
        ({"token_budget": 5_000, "max_tokens": 200_000}, Budget(5_000)),
        ({"provider": provider(100_000, 8_000)}, Budget(91_000)),
        ({"provider": provider(100_000, 8_000), "output_reserve_fraction": 0.5}, Budget(95_000)),
        ({}, Budget(200_000)),
        ({"max_tokens": 200_000}, Budget(200_000)),
        ({"token_budget": 300_000, "max_tokens": 200_000}, Budget(200_000, capped_from=300_000)),
        ({"provider": provider(301_000), "max_tokens": 200_000}, Budget(200_000, capped_from=300_000)),
    ],
)
def test_a_budget_is_the_callers_else_the_providers_else_the_configs_and_a_configured_maximum_caps(
    settings: dict[str, Any], expected: Budget
) -> None:
    assert budget(**settings) == expected


# -- nonsense ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, True, 5.5, "100"], ids=repr)
def test_an_impossible_explicit_budget_is_an_error_that_says_so(bad: Any) -> None:
    with pytest.raises(ConfigError, match="token_budget: must be at least 1 token") as caught:
        budget(token_budget=bad)
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    "window",
    [0, True, "128000", float("inf"), 0.5, 10**9, 10**400, MagicMock()],
    ids=lambda value: str(value)[:20] if isinstance(value, (int, float)) else type(value).__name__,
)
def test_a_window_that_makes_no_sense_is_none(window: Any) -> None:
    assert provider_window(provider(window), 1.0, 1_000) is None
    assert budget(provider=provider(window)) == budget()


@pytest.mark.parametrize(
    "answer", [None, 0, -8_000, "8000", float("nan"), 10**400], ids=["none", "0", "-", "text", "nan", "huge"]
)
def test_a_longest_answer_that_makes_no_sense_is_not_kept_free(answer: Any) -> None:
    assert provider_window(provider(100_000, answer), 1.0, 1_000) == 99_000


def test_a_window_all_of_which_may_be_answered_is_split_in_half() -> None:
    assert provider_window(provider(8_192, 8_192), 1.0, 1_000) == 4_096
    assert provider_window(provider(500), 1.0, 1_000) == 250
    assert provider_window(provider(1), 1.0, 1_000) == 1


class Raising:
    """Every question is an error."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("not connected")


class AsyncInfo:
    async def get_info(self) -> Any:
        return SimpleNamespace(defaults={"context_window": 5})

    async def get_model_info(self) -> Any:
        return {"context_window": 5}


@pytest.mark.parametrize(
    "odd",
    [
        object(),
        Raising(),
        AsyncInfo(),
        MagicMock(),
        SimpleNamespace(get_info=5, get_model_info="x"),
        SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=None)),
    ],
    ids=lambda odd: type(odd).__name__,
)
def test_a_provider_that_lacks_raises_or_talks_nonsense_falls_back(odd: Any) -> None:
    assert budget(provider=odd) == Budget(200_000)
    assert model_of(odd) is None
    assert name_of(odd) == ""


def test_what_is_known_of_the_model_comes_before_the_defaults() -> None:
    both = provider(100_000)
    both.get_model_info = lambda: SimpleNamespace(context_window=50_000, max_output_tokens=0)
    assert provider_window(both, 1.0, 0) == 50_000
    both.get_model_info = lambda: {"context_window": 60_000}
    assert provider_window(both, 1.0, 0) == 60_000
    both.get_model_info = lambda: {"context_window": 0}
    assert provider_window(both, 1.0, 0) == 100_000


def test_the_model_and_the_name_of_a_provider_are_found_where_it_says_them() -> None:
    assert model_of(provider(1, model="a")) == "a"
    assert model_of(provider(1, default_model="b")) == "b"
    assert model_of(SimpleNamespace(default_model="c")) == "c"
    assert model_of(None) is None
    assert name_of(SimpleNamespace(name="anthropic")) == "anthropic"
    assert name_of(None) == ""


def priced(**prices: Any) -> object:
    """A provider whose model has prices, as the kernel names them: US dollars for a million tokens."""
    pricing = Pricing(**{"input_per_million": 4.0, "output_per_million": 20.0, **prices})
    info = ModelInfo(id="m", display_name="M", context_window=1_000, max_output_tokens=10, pricing=pricing)
    return SimpleNamespace(name="anthropic", default_model="m", get_model_info=lambda: info)


def test_prices_of_cached_tokens_are_read_from_the_kernels_model_info() -> None:
    assert prices_of(priced(cache_read_per_million=0.2, cache_write_per_million=5.0)) == Prices(0.05, 1.25)


def test_without_a_price_for_writes_writing_costs_nothing_extra() -> None:
    assert prices_of(priced(cache_read_per_million=1.0)) == Prices(0.25, 1.0)


@pytest.mark.parametrize(
    "prices",
    [
        {},  # the kernel knows of no cache
        {"cache_read_per_million": 0.0},
        {"cache_read_per_million": 5.0},  # dearer than a plain token
        {"cache_read_per_million": 0.4, "cache_write_per_million": 0.1},
        {"cache_read_per_million": 1e-320},  # the threshold would divide by it
        {"cache_read_per_million": 0.4, "input_per_million": float("inf")},
    ],
)
def test_prices_that_make_no_sense_are_none(prices: dict[str, float]) -> None:
    assert prices_of(priced(**prices)) is None


def test_prices_in_a_mapping_are_read_too() -> None:
    pricing = {"input_per_million": 2, "cache_read_per_million": 0.2, "cache_write_per_million": "2.5"}
    assert prices_of(SimpleNamespace(get_model_info=lambda: {"pricing": pricing})) == Prices(0.1, 1.0)


class Unreadable(dict[str, Any]):
    """A mapping that cannot be read."""

    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError(key)

    def __bool__(self) -> bool:
        raise RuntimeError("bool")


@pytest.mark.parametrize("info", [Unreadable(), {"pricing": Unreadable()}, SimpleNamespace(defaults=Unreadable())])
def test_a_provider_whose_answers_cannot_be_read_names_nothing(info: object) -> None:
    broken = SimpleNamespace(get_model_info=lambda: info, get_info=lambda: info)
    assert (prices_of(broken), model_of(broken), provider_window(broken, 1.0, 0)) == (None, None, None)
