"""Whole replays of tiny sessions, every figure computed by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_testing import coding_session
from amplifier_context_testing.caches import Bill
from amplifier_context_testing.caches.token_scale import TokenScale
from lab import Figures, Manager, Session, Size, manager, measure, read_sessions
from lab.shares import Share

from .scripted import calls, result, says, scale, scripted, user

MESSAGES = [
    user("mend old_name in app.py"),
    calls("read", {"p": "app.py"}),
    result("line_1 line_2 line_3"),
    says("line_2 is wrong"),
    user("then mend it"),
    says("old_name and line_3"),
]
WEIGHTS = [8, 6, 7, 7, 7, 7]  # words, and 4 for each message


def session(**more: Any) -> Session:
    return Session("s", "made", MESSAGES, **more)


async def run(one: Manager, recorded: Session, *, budget: int = 20, weigh: TokenScale | None = None) -> Figures:
    """The figures of one manager over one session."""
    return (await measure([recorded], [one], Size(budget=budget), scale=weigh or scale())).rows[0].figures


async def test_the_unlimited_window_recalls_all_and_costs_what_it_costs() -> None:
    weigh = scale()
    assert [weigh.tokens(message) for message in MESSAGES] == WEIGHTS
    figures = await run(manager("unlimited"), session(), weigh=weigh)
    assert figures.requests == 3  # before messages 1, 3 and 5
    assert figures.outgrown == 2  # 8, 21 and 35 tokens of history
    assert figures.over == 2
    assert figures.bills["prefix"] == figures.unlimited["prefix"] == Bill(0 + 8 + 21, 8 + 13 + 14)
    assert figures.breaks == figures.faulty == figures.human_lost == 0
    # message 3 says line_2 again, message 5 old_name and line_3
    assert figures.recall == figures.located == Share(3, 3)
    assert figures.far == Share(2, 2)  # the newest 5 tokens are the message before


LONG = "Never touch the generated files of the parser."
SPOKEN = [
    user(LONG),
    says("The parser reads every file twice over."),
    user("go on"),
    says("Parser generated files now"),
]


async def test_sentences_are_counted_in_the_last_view_and_in_all() -> None:
    forgets = scripted(lambda history: list(history) if len(history) < 3 else list(history[1:]))
    figures = await run(forgets, Session("s", "made", SPOKEN))
    assert figures.requests == 2  # before messages 1 and 3
    assert figures.last.rules == figures.last.people == Share(0, 1)
    assert figures.all.rules == Share(1, 2)
    assert figures.last.agent == figures.all.agent == Share(1, 1)  # the view before message 1 could have none


async def test_losing_the_newest_human_message_is_counted() -> None:
    first = scripted(lambda history: list(history[:1]))
    figures = await run(first, session())
    assert figures.human_lost == figures.faulty == figures.invalid == 1
    assert "before message 5" in figures.examples[0]


RECORDED = st.integers(0, 10_000).map(lambda seed: [*coding_session(14, seed=seed)])


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
@given(messages=RECORDED)
@settings(max_examples=3, deadline=None)
def test_the_unlimited_window_scores_all_and_an_empty_view_nothing(messages: list[Any], fraction: float) -> None:
    managers = [manager("unlimited"), scripted(lambda history: [])]
    report = asyncio.run(measure([Session("s", "made", messages)], managers, Size(fraction=fraction), scale=scale()))
    for row, value in zip(report.rows, (1.0, 0.0), strict=True):
        figures = row.figures.steady()
        shares = [figures[name] for name in ("recall", "located", "far", "far_located", "words", "far_words")]
        shares += [*figures["last_view"].values(), *figures["all_views"].values()]
        assert {share["share"] for share in shares} <= {value, None}
        assert {cache["ratio"] for cache in figures["caches"].values()} == {value}


async def test_what_a_view_leaves_out_is_missed() -> None:
    last_two = scripted(lambda history: [*history[:1], *history[-2:]] if len(history) > 3 else list(history))
    figures = await run(last_two, session())
    assert figures.recall == Share(2, 3)  # line_3 is in the result
    assert figures.breaks == 1
    assert figures.bills["prefix"] == Bill(0 + 8 + 8, 8 + 13 + 14)


def test_sessions_are_read_from_a_folder_with_what_the_host_wrote(tmp_path: Path) -> None:
    meta = {"compact_summary_indices": [4], "is_meta_indices": [1], "bad_lines": 0}
    lines = [{"id": "s", "messages": MESSAGES, "meta": meta}, {"id": "short", "messages": MESSAGES[:1]}]
    (tmp_path / "made.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "notes.txt").write_text("no recording")
    (found,) = read_sessions([tmp_path], min_messages=2)
    assert found.host == frozenset({1, 4})
