"""Plug-ins that fail: each failure is named once, with the line it came from, never with the content of a message."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Entry, Plugins, hookimpl, load_config
from amplifier_context_core.compaction.checkpoint import Draft
from amplifier_context_core.compaction.strategies import FoldRounds
from amplifier_context_core.events import POST_COMPACT, WARNING
from amplifier_context_testing import checked
from tests.authors import make_manager
from tests.managers import Does, feed, watched
from tests.messages import rounds, work

BUDGET = 4_000
SECRET = "hunter2"
HERE = f"manager/{Path(__file__).name}"


def line_of(text: str) -> int:
    source = Path(__file__).read_text(encoding="utf-8").split("\n")
    return next(number for number, line in enumerate(source, 1) if text in line)


def quotes(draft: Draft) -> Draft:
    raise KeyError(draft.segments[0].shown[0].message["content"])  # where the strategy fails


def without_results(draft: Draft) -> Draft:
    """Leave of each round its first message, which is the call."""
    return draft.with_segments(segment.rendered_as(segment.shown[:1], "clipped", "wrong") for segment in draft.segments)


def without_tokens(draft: Draft) -> Draft:
    return draft.with_segments(replace(segment, tokens=0) for segment in draft.segments)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def compacted_often(manager: ContextManager) -> None:
    await feed(manager, work(60, task=f"Use {SECRET}."))
    for number in range(4):
        checked(await manager.get_messages_for_request(BUDGET))
        await feed(manager, rounds(30, start=1_000 * (number + 1)))
    assert (await manager.explain())["compactions"] >= 3


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (quotes, f"failed (KeyError at {HERE}:{line_of('# where the strategy fails')})"),
        (lambda draft: draft.with_segments(draft.segments[1:]), "removed what must stay"),
        (without_results, "parted calls from their results"),
        (lambda draft: list(draft.segments), "returned a list, not a draft"),
        (without_tokens, "gave a segment another cost than its messages have"),
    ],
)
async def test_a_strategy_that_fails_or_breaks_its_contract_is_skipped_and_named_once(
    does: Callable[[Draft], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager, recorder = watched(strategies=[Does(does), FoldRounds()])
    with caplog.at_level(logging.INFO):
        await compacted_often(manager)
    assert SECRET not in caplog.text
    warning = f"strategy does {why}; it is skipped"
    assert warnings(caplog) == [f"session {manager.session_id}: {warning}"]
    assert (await manager.explain())["warnings"] == [warning]
    assert [seen["reason"] for seen in recorder.named(WARNING)] == ["plugin"]
    reports = recorder.named(POST_COMPACT)
    assert len(reports) >= 3
    assert all(report["skipped"] == [{"name": "does", "why": why}] for report in reports)


class Plugin:
    """Fails whenever it observes, and quotes the message; offers a counter and an index named odd."""

    def __init__(self, **odd: Any) -> None:
        self._odd = odd

    @hookimpl
    def amplifier_context_appended(self, entry: Entry) -> None:
        if not self._odd:
            raise RuntimeError(str(entry.message))  # where the observer fails

    @hookimpl
    def amplifier_context_folded(self, report: Any) -> None:
        if not self._odd:
            raise LookupError(SECRET)

    @hookimpl
    def amplifier_context_token_counters(self) -> Any:
        return {"odd": lambda: self._odd["counter"]}

    @hookimpl
    def amplifier_context_search_indexes(self) -> Any:
        return {"odd": lambda: SimpleNamespace(search=self._odd["search"])}


def with_plugin(plugin: object | None, **config: Any) -> ContextManager:
    plugins = Plugins()
    if plugin is not None:
        plugins.register(plugin, "mine")
    return make_manager(load_config({"token_counter": "heuristic", **config}), session_id="s", plugins=plugins)


async def test_a_failing_observer_is_named_once_for_each_point(caplog: pytest.LogCaptureFixture) -> None:
    manager = with_plugin(Plugin())
    with caplog.at_level(logging.INFO):
        await compacted_often(manager)
    assert SECRET not in caplog.text
    fault = f"failed (RuntimeError at {HERE}:{line_of('# where the observer fails')})"
    assert [text for text in warnings(caplog) if "appended" in text] == [
        f"session s: amplifier_context_appended of plug-in mine {fault}; history is not affected"
    ]
    assert len([text for text in warnings(caplog) if "folded" in text]) == 1
    assert len((await manager.explain())["warnings"]) == 2


def raises(text: str) -> int:
    raise ValueError(text)


def fails(history: Iterable[Entry], query: str, limit: int) -> Any:
    raise ValueError(query)


def vandalises(history: Iterable[Entry], query: str, limit: int) -> Any:
    for entry in history:
        entry.message["content"] = "VANDALISED"
    return ["m1"]


@pytest.mark.parametrize(
    ("kind", "odd", "why"),
    [
        ("counter", raises, "failed (ValueError at "),
        ("counter", lambda text: None, "returned a NoneType"),
        ("counter", lambda text: -1, "returned -1"),
        ("counter", lambda text: True, "returned a bool"),
        ("search", fails, "failed (ValueError at "),
        ("search", vandalises, "returned no list of entries"),
    ],
)
async def test_where_a_token_counter_or_a_search_index_fails_that_of_the_core_does_its_work(
    kind: str, odd: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    key, name, instead = {
        "counter": ("token_counter", f"token counter {odd!r}", "4 characters a token are assumed"),
        "search": ("search_index", "search index odd", "the history is scanned instead"),
    }[kind]
    plain, other = with_plugin(None), with_plugin(Plugin(**{kind: odd}), **{key: "odd"})
    with caplog.at_level(logging.INFO):
        for manager in (plain, other):
            await feed(manager, work(10, task=f"Look for {SECRET}."))
            assert await manager.search(SECRET) == await manager.search(SECRET) == ["m1"]
    assert [(one.tokens, one.message["content"]) for one in other.snapshot()] == [
        (one.tokens, one.message["content"]) for one in plain.snapshot()
    ]
    (warning,) = warnings(caplog)
    assert warning.startswith(f"session s: {name} {why}")
    assert warning.endswith(f"; {instead}")
    assert SECRET not in caplog.text
