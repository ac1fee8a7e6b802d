"""Bills of requests, by hand. A message of n words weighs n + 4."""

from __future__ import annotations

import pytest

from amplifier_context_testing.lab.cost import Ledger, price
from amplifier_context_testing.lab.figures import Figures

from .support import chapter, says, scale, user

A, B, C, D = user("one two"), says("three"), user("four five six"), says("seven")  # 6, 5, 7, 5 tokens
SYSTEM = {"role": "system", "content": "be good now please"}  # 8


def bills(*views: list[dict[str, object]]) -> list[tuple[int, int, int, bool]]:
    ledger = Ledger(scale())
    return [(bill.tokens, bill.cached, bill.block_cached, bill.broken) for bill in map(ledger.bill, views)]


def test_a_view_that_only_grows_pays_for_what_is_new() -> None:
    assert bills([A], [A, B, C]) == [(6, 0, 0, False), (18, 6, 6, False)]


def test_whole_messages_are_shared_up_to_the_first_that_differs() -> None:
    assert bills([A, B, C], [A, says("other"), C])[1] == (18, 6, 0, True)


def test_a_shorter_request_breaks_the_prefix() -> None:
    assert bills([A, B, C], [A, B])[1] == (11, 11, 0, True)


def test_what_is_not_sent_breaks_nothing() -> None:
    assert bills([A], [{**A, "metadata": {"timestamp": "now"}}, B])[1] == (11, 6, 6, False)


def test_with_breakpoints_a_broken_view_still_has_the_system_prompt() -> None:
    assert bills([SYSTEM, A, B, C], [SYSTEM, A, says("other"), C])[1] == (26, 14, 8, True)


def test_with_breakpoints_the_ends_of_three_requests_are_found_again() -> None:
    found = bills([A], [A, B], [A, B, C], [A, B, D])
    assert found[3] == (16, 11, 11, True)  # the end of the second request


def test_with_breakpoints_the_end_of_a_fourth_request_is_forgotten() -> None:
    e = user("eight")
    found = bills([A], [A, B], [A, B, C], [A, B, C, D], [A, e])
    assert found[4] == (11, 6, 0, True)


def test_between_two_ends_the_same_text_is_not_cached() -> None:
    found = bills([chapter("old"), A, B], [chapter("old"), A, C])
    assert found[1] == (18, 11, 0, True)


def test_prices() -> None:
    assert price(100, 10) == pytest.approx(0.1 * 100 + 1.25 * 10)
    figures = Figures(cached=100, fresh=10, block_cached=50, unlimited_cached=300, unlimited_fresh=20)
    assert figures.cost == pytest.approx(22.5)
    assert figures.cost_plain == pytest.approx(20)
    assert figures.cost_blocks == pytest.approx(0.1 * 50 + 1.25 * 60)
    assert figures.cost_ratio == pytest.approx(22.5 / (30 + 25))
    assert figures.cost_ratio_plain == pytest.approx(20 / (30 + 20))
    assert figures.cached_share == pytest.approx(100 / 110)
