"""The corpus: names are unique, and what loops store is valid."""

from __future__ import annotations

from amplifier_context_testing import check_request, conversations
from amplifier_context_testing.checks.corpus import conversation


def test_names_are_unique_and_all_but_one_are_odd() -> None:
    found = conversations()
    assert len({one.name for one in found}) == len(found) >= 20
    assert [one.name for one in found if not one.oddities] == ["ordinary"]


def test_what_loops_store_is_valid_unchanged() -> None:
    assert check_request(conversation("kernel_loop").messages) == []
