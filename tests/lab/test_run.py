"""Whole replays of tiny sessions, every figure computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing.lab import Session, Size, manager, measure, read_sessions
from amplifier_context_testing.lab.sessions import Probe, Question
from amplifier_context_testing.lab.table import COLUMNS, markdown, rich_table

from .support import Scripted, calls, result, says, scale, scripted, user

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


async def test_the_unlimited_window_recalls_all_and_costs_what_it_costs() -> None:
    weigh = scale()
    assert [weigh.tokens(message) for message in MESSAGES] == WEIGHTS
    report = await measure([session()], [manager("unlimited")], Size(budget=20), scale=weigh)
    figures = report.rows[0].figures
    assert figures.requests == 3  # before messages 1, 3 and 5
    assert figures.outgrown == 2  # 8, 21 and 35 tokens of history
    assert figures.over == 2
    assert (figures.cached, figures.fresh) == (0 + 8 + 21, 8 + 13 + 14)
    assert (figures.unlimited_cached, figures.unlimited_fresh) == (29, 35)
    assert figures.cost_ratio == 1
    assert figures.breaks == figures.faulty == figures.human_lost == 0
    # message 3 says line_2 again, message 5 old_name and line_3
    assert (figures.targets, figures.hits, figures.located) == (3, 3, 3)
    assert (figures.far_targets, figures.far_hits) == (2, 2)  # the newest 5 tokens are the message before


async def test_what_a_view_leaves_out_is_missed() -> None:
    last_two = scripted(lambda history: [*history[:1], *history[-2:]] if len(history) > 3 else list(history))
    report = await measure(
        [session(probes=(Probe("old_name", 5), Probe("line_1", 5), Probe("line_1", 1)))],
        [last_two],
        Size(budget=20),
        scale=scale(),
        misses=True,
    )
    figures = report.rows[0].figures
    assert (figures.targets, figures.hits) == (3, 2)
    assert [(miss.index, miss.target.name, miss.target.last) for miss in report.rows[0].misses] == [(5, "line_3", 2)]
    assert (figures.probes, figures.probes_found) == (2, 1)  # at message 1 the history still fits
    assert figures.breaks == 1
    assert (figures.cached, figures.fresh) == (0 + 8 + 8, 8 + 13 + 14)


async def test_losing_the_newest_human_message_is_counted() -> None:
    first = scripted(lambda history: list(history[:1]))
    figures = (await measure([session()], [first], Size(budget=20), scale=scale())).rows[0].figures
    assert figures.human_lost == figures.faulty == figures.invalid == 1
    assert "before message 5" in figures.examples[0]


async def test_losing_the_system_prompt_is_counted() -> None:
    prompted = Session("p", "made", [{"role": "system", "content": "be good"}, *MESSAGES])
    without = scripted(lambda history: list(history[1:]))
    figures = (await measure([prompted], [without], Size(budget=30), scale=scale())).rows[0].figures
    assert (figures.requests, figures.prompt_lost) == (3, 3)


async def test_an_empty_request_is_counted() -> None:
    nothing = scripted(lambda history: [])
    figures = (await measure([session()], [nothing], Size(budget=20), scale=scale())).rows[0].figures
    assert figures.empty == figures.faulty == 3


async def test_evidence_is_looked_for_in_the_final_view_and_by_searching() -> None:
    class Searching(Scripted):
        async def search(self, query: str, limit: int) -> list[str]:
            return ["m2"] if "lines" in query else ["m0"]

        async def recall(self, mark: str) -> dict[str, Any] | None:
            return self.history[int(mark[1:])]

    questions = (
        Question("which lines", ("line_1 line_2",), ("line_1",), (2,)),
        Question("which name", ("not there any more",), ("old_name",), (5,)),
    )
    last = scripted(lambda history: [*history[:1], *history[-1:]], Searching)
    figures = (await measure([session(questions=questions)], [last], Size(budget=20), scale=scale())).rows[0].figures
    assert (figures.questions, figures.evidence, figures.answers) == (2, 0, 1)
    assert (figures.searched, figures.search_found) == (2, 1)
    assert figures.requests == 3  # the view for the questions is no request of the session


async def test_a_budget_that_holds_no_system_prompt_is_nobodys_test() -> None:
    prompted = Session("p", "made", [{"role": "system", "content": "be good " * 20}, *MESSAGES])
    report = await measure([prompted, session()], [manager("newest")], Size(budget=30), scale=scale())
    assert [one.id for one in report.sessions] == ["s"]
    assert report.skipped == ["p: its system prompt has 44 tokens, the budget 30"]


def test_a_share_is_of_what_can_be_cut() -> None:
    assert Size(fraction=0.5).of(1_000, 400) == 700
    assert Size(fraction=0.5, whole=True).of(1_000, 400) == 500
    assert Size(budget=32, fraction=0.5).of(1_000, 400) == 32


async def test_two_runs_say_the_same() -> None:
    managers = [manager("context-simple"), manager("newest"), manager("newest-checkpointed")]
    first, second = [await measure([session()], managers, Size(budget=30), scale=scale()) for _ in range(2)]
    assert [row.figures.steady() for row in first.rows] == [row.figures.steady() for row in second.rows]


async def test_a_report_is_json_and_a_table() -> None:
    report = await measure([session()], [manager("newest")], Size(budget=20), scale=scale(), memory=True)
    told = json.loads(json.dumps(report.as_json()))
    assert told["managers"][0]["name"] == "newest"
    assert told["managers"][0]["memory_bytes"] > 0
    assert told["managers"][0]["by_session"]["s"]["requests"] == 3
    assert markdown(report).startswith("| " + " | ".join(COLUMNS))
    assert rich_table(report).row_count == 1


def test_sessions_are_read_with_their_probes_and_questions(tmp_path: Path) -> None:
    question = {
        "question": "Where?",
        "answers": ["app.py"],
        "source_quote": "... old_name in  app.py",
        "evidence_message_indices": [0],
    }
    lines = [
        {"id": "s", "messages": MESSAGES, "qa": [question, {"question": "No evidence?"}]},
        {"id": "short", "messages": MESSAGES[:1]},
    ]
    (tmp_path / "made.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    probes = [{"id": "s", "set": "made", "probes": [{"needle": "old_name", "used_at": 5}]}]
    (tmp_path / "reuse_probes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in probes))
    (tmp_path / "notes.txt").write_text("no recording")
    (found,) = read_sessions([tmp_path], min_messages=2)
    assert found.probes == (Probe("old_name", 5),)
    assert found.questions == (Question("Where?", ("old_name in app.py",), ("app.py",), (0,)),)
    assert read_sessions([tmp_path], part="report" if found.part == "choose" else "choose") == []


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_sessions([tmp_path / "none.jsonl"])
