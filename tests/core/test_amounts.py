"""Amounts are parsed the same way in a config and on the command line."""

from __future__ import annotations

import pytest

from amplifier_context_core.amounts import amount_in


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("32000", 32_000),
        ("32,000", 32_000),
        (" 32k ", 32_000),
        ("0.2m", 200_000),
        ("0.0001k", None),  # no whole number
        ("-5k", None),
        ("lots", None),
        ("9" * 31, None),
        ("٣٢", None),
    ],
)
def test_an_amount_is_a_whole_number_however_it_is_abbreviated(text: str, number: int | None) -> None:
    assert amount_in(text) == number
