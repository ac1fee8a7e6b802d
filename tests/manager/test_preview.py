"""`preview` and `compact` from one mark to another: what would change, and nothing else."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager
from amplifier_context_core.events import EVENTS
from amplifier_context_testing import EventRecorder
from tests.managers import ask, feed, new_manager
from tests.messages import work

BUDGET = 20_000


async def session(**more: Any) -> ContextManager:
    manager = await feed(new_manager(**more), work(35, output=1_500))
    await ask(manager, BUDGET)
    return manager


async def test_a_preview_changes_nothing_and_says_what_the_compaction_does() -> None:
    recorder = EventRecorder(hooks := HookRegistry(), list(EVENTS))
    manager = await session(hooks=hooks)
    view, explained, before = await ask(manager, BUDGET), await manager.explain(), len(recorder.records)
    said = await manager.preview()
    assert said["would_compact"]
    assert len(recorder.records) == before
    assert (await ask(manager, BUDGET), await manager.explain()) == (view, explained)
    done = await manager.compact()
    same = ("before_tokens", "after_tokens", "prefix_given_up_tokens", "strategies", "trigger")
    assert [said[key] for key in same] == [done[key] for key in same]
    shown = await ask(manager, BUDGET)
    assert any(row["state"] == "folded" for row in said["rounds"])
    assert len(shown) < len(view)


@pytest.mark.parametrize(("first", "last"), [(None, "m40"), ("m30", None), ("m20", "m51")])
async def test_only_rounds_between_the_marks_change(first: str | None, last: str | None) -> None:
    manager = await session()
    messages = await manager.get_messages()
    span = range(int((first or "m1")[1:]), int((last or f"m{len(messages)}")[1:]) + 1)
    said = await manager.preview(first, last)
    done = await manager.compact(first=first, last=last)
    assert done["compacted"]
    assert done["after_tokens"] == said["after_tokens"]
    view = await ask(manager, BUDGET)
    outside = [message["content"] or "" for seq, message in enumerate(messages, 1) if seq not in span]
    shown = [message["content"] or "" for message in view]
    assert [content for content in outside if content not in shown] == []
    assert len(view) < len(messages)


async def test_one_round_is_folded_and_undo_shows_it_again() -> None:
    manager = await session()
    view = await ask(manager, BUDGET)
    (round_,) = [row for row in (await manager.explain())["rounds"] if row["mark"] == "m20"]
    assert (await manager.compact(first="m20", last=round_["to"]))["compacted"]
    assert await ask(manager, BUDGET) != view
    assert (await manager.undo("m20"))["shows"] == "originals"
    assert await ask(manager, BUDGET) == view


async def test_what_is_no_mark_is_refused_and_nothing_changes() -> None:
    manager = await session()
    before = await ask(manager, BUDGET)
    with pytest.raises(ValueError, match="no mark"):
        await manager.preview(None, "x")
    with pytest.raises(ValueError, match="no mark"):
        await manager.compact(first="m-1")
    assert await ask(manager, BUDGET) == before


async def test_each_compaction_is_logged_in_a_line_without_content(caplog: pytest.LogCaptureFixture) -> None:
    manager = await session()
    with caplog.at_level(logging.INFO, "amplifier_context_core"):
        done = await manager.compact()
    (line,) = [text for text in caplog.messages if "compacted: " in text]
    assert f"manual, {done['before_tokens']:,} to {done['after_tokens']:,} tokens" in line
    (row,) = await manager.compactions()
    assert row["prefix_given_up_tokens"] == done["prefix_given_up_tokens"]
