"""Usage is read from events and messages under the names of any provider."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from amplifier_context_core.messages.usage import Usage, usage_of


@pytest.mark.parametrize(
    ("data", "usage"),
    [
        (
            {"input_tokens": 5, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 1},
            Usage(5, 2, 3, 1),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
        ({"input": 5, "output": 2}, Usage(5, 2)),
        ({"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1}, Usage(5, 0, 3, 1)),
        ({"input_tokens": 5, "output_tokens": None, "cache_read_tokens": "3"}, Usage(5)),
        ({"input_tokens": None, "prompt_tokens": 7}, Usage(7)),
        ({"input_tokens": 5, "cost_usd": "0.10"}, Usage(5, cost_usd="0.10")),
        ({"input_tokens": 5, "cost_usd": Decimal("0.047")}, Usage(5, cost_usd="0.047")),
        *[
            ({"input_tokens": 5, "cost_usd": cost}, Usage(5))
            for cost in (0.1, True, None, "", "-1", "NaN", "1e999", f"0.{'1' * 60}")
        ],
        ({"input_tokens": 0}, Usage(0)),
        ({"output_tokens": 2}, None),
        ({"input_tokens": -5}, None),
        ({"input_tokens": 10**400}, None),
        ({"input_tokens": 5, "cache_read_tokens": 10**400}, Usage(5)),
        ({"input_tokens": True}, None),
        ("Usage(input_tokens=5, output_tokens=2)", None),
    ],
    ids=str,
)
def test_usage_is_read_in_every_spelling_and_text_is_none(data: Any, usage: Usage | None) -> None:
    """The kernel turns a usage object on `provider:response` into text (docs/kernel.md)."""
    assert usage_of(data) == usage
