"""Whole replays of tiny sessions, every figure computed by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import coding_session
from amplifier_context_testing.caches import Bill
from amplifier_context_testing.caches.request import Request
from lab import Figures, Manager, Session, Size, manager, measure, read_sessions
from lab.recall import RecallProbe, References
from lab.shares import Share
from tests.lab.scripted import calls, chapter, scale, scripted
from tests.messages import result, says, user

MESSAGES = [
    user("mend old_name in app.py"),
    calls("read", {"p": "app.py"}),
    result("c1", "line_1 line_2 line_3"),
    says("line_2 is wrong"),
    user("then mend it"),
    says("old_name and line_3"),
]


async def run(one: Manager) -> Figures:
    """The figures of one manager over that session; a message weighs its words, and 4."""
    recorded = Session("s", "made", MESSAGES)
    return (await measure([recorded], [one], Size(budget=20), scale=scale())).rows[0].figures


async def test_the_unlimited_window_recalls_all_and_costs_what_it_costs() -> None:
    figures = await run(manager("unlimited"))
    assert (figures.requests, figures.outgrown, figures.over) == (3, 2, 2)  # 8, 21 and 35 tokens of history
    assert figures.bills["prefix"] == figures.unlimited["prefix"] == Bill(0 + 8 + 21, 8 + 13 + 14)
    assert figures.breaks == figures.faulty == figures.human_lost == 0
    # message 3 says line_2 again, message 5 old_name and line_3
    assert figures.recall == figures.located == Share(3, 3)
    assert figures.far == Share(2, 2)  # the newest 5 tokens are the message before


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
async def test_the_unlimited_window_scores_all_and_an_empty_view_nothing(fraction: float) -> None:
    sessions = [Session("s", "made", list(coding_session(14, seed=seed))) for seed in range(3)]
    managers = [manager("unlimited"), scripted(lambda history: [])]
    report = await measure(sessions, managers, Size(fraction=fraction), scale=scale())
    for row, value in zip(report.rows, (1.0, 0.0), strict=True):
        figures = row.figures.steady()
        shares = [figures[name] for name in ("recall", "located", "far", "far_located", "words", "far_words")]
        shares += [*figures["last_view"].values(), *figures["all_views"].values()]
        assert {share["share"] for share in shares} <= {value, None}
        assert {cache["ratio"] for cache in figures["caches"].values()} == {value}


async def test_what_a_view_leaves_out_is_missed() -> None:
    last_two = scripted(lambda history: [*history[:1], *history[-2:]] if len(history) > 3 else list(history))
    figures = await run(last_two)
    assert figures.recall == Share(2, 3)  # line_3 is in the result
    assert figures.breaks == 1
    assert figures.bills["prefix"] == Bill(0 + 8 + 8, 8 + 13 + 14)
    figures = await run(scripted(lambda history: list(history[:1])))
    assert figures.human_lost == figures.faulty == figures.invalid == 1
    assert "before message 5" in figures.examples[0]


def test_sessions_are_read_from_a_folder_with_what_the_host_wrote(tmp_path: Path) -> None:
    meta = {"compact_summary_indices": [4], "is_meta_indices": [1]}
    lines = [{"id": "s", "messages": MESSAGES, "meta": meta}, {"id": "short", "messages": MESSAGES[:1]}]
    (tmp_path / "made.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "notes.txt").write_text("no recording")
    (found,) = read_sessions([tmp_path], min_messages=2)
    assert found.host == frozenset({1, 4})


Messages = list[dict[str, Any]]


HISTORY: Messages = [
    user("fix the bug"),
    calls("read_file", {"path": "src/app.py"}),
    result("c1", "def load_all(): ..."),
    says("There is helper_one."),
]


def origins(name: str) -> frozenset[str]:
    messages = [*HISTORY, says(name)]
    found = References(messages).targets([0] * len(messages))[len(HISTORY)]
    return next(target.origins for target in found if target.name == name)


BOTH = {"load_all", "helper_one"}


@pytest.mark.parametrize(
    ("view", "held", "located"),
    [
        (HISTORY, True, BOTH),
        (
            [chapter("m1 read_file src/app.py -> 1 line; load_all\nm3 assistant: helper_one.")],
            True,
            {"load_all", "helper_one"},
        ),
        ([chapter("read_file src/app.py\nload_all, helper_one")], True, set()),
        ([chapter(" ".join(["load_all", "helper_one", *[f"word_{n}" for n in range(900)], "read_file"]))], True, set()),
        ([user("nothing of it")], False, set()),
    ],
    ids=["as it was", "with its origin", "without", "a bag of words", "none"],
)
def test_a_name_is_located_where_its_origin_is_stated(view: Messages, held: bool, located: set[str]) -> None:
    probe = RecallProbe(scale())
    for message in HISTORY:
        probe.learn(message)
    sight = probe.sight(Request.of(view, probe.scale))
    assert {sight.holds(name) for name in BOTH} == {held}
    assert {name for name in BOTH if sight.locates(name, origins(name))} == located
