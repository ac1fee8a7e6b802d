"""What people can ask of a session's memory: compact, preview, undo, pins, short forms, search."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, PinRefused, load_config
from amplifier_context_core.compaction.strategies import ClearToolOutputs, ClipToolOutputs
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing import EventRecorder
from tests.authors import make_manager
from tests.managers import Counter, ask, feed, new_manager, watched
from tests.messages import Message, bare, call, result, rounds, says, system, text, user, words, work

BUDGET = 4_000


async def test_an_argument_of_another_type_is_an_error_that_names_it_and_changes_nothing() -> None:
    manager = await feed(new_manager(), work(3))
    before = await manager.get_messages()
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("search", {"query": "x", "limit": "5"}, "limit"),
        ("recall", {"mark": 5}, "mark"),
        ("pin", {"mark": "m1", "pinned": 0}, "pinned"),
        ("compact", {"focus": b""}, "focus"),
        ("forget", {"marks": ["m1", 5]}, r"marks\[1\]"),
        ("request_retention", {"retain_contents": "Go."}, "retain_contents"),
    ]
    for method, arguments, name in calls:
        with pytest.raises(ValueError, match=rf"^{name}: must be .*, got (str|bytes|int)$"):
            await getattr(manager, method)(**arguments)
    assert await manager.get_messages() == before
    assert not manager.compactor.directions.pins


@pytest.mark.parametrize("messages", [[], [user("Hi.")]])
async def test_compact_with_nothing_to_free_says_so(messages: list[Message]) -> None:
    manager = await feed(new_manager(), messages)
    assert (await manager.preview())["would_compact"] is False
    report = await manager.compact()
    assert report["compacted"] is False
    assert report["reason"]


async def test_a_summary_in_the_metadata_or_registered_by_call_id_takes_the_place_of_a_clip() -> None:
    messages = work(60)
    messages[2]["metadata"] = {"compact_summary": "FILE ZERO IN SHORT"}
    manager = await feed(new_manager(strategies=[ClipToolOutputs(100), ClearToolOutputs(1)]), messages)
    await manager.compact_summary("call_3", "FILE THREE IN SHORT")
    view = await ask(manager, BUDGET)
    assert [view[2]["content"], view[8]["content"]] == ["FILE ZERO IN SHORT", "FILE THREE IN SHORT"]
    assert bare(await manager.get_messages()) == messages
    await manager.compact_summary("call_59", "THE LAST IN SHORT")  # for the next compaction
    await feed(manager, rounds(60, start=100))
    assert "THE LAST IN SHORT" in text(await ask(manager, BUDGET))


async def test_a_summary_registered_after_a_view_showed_the_result_waits_for_a_compaction() -> None:
    manager = await feed(new_manager(), work(1, output=100_000))
    before = await ask(manager, BUDGET)
    await manager.compact_summary("call_0", "THE GIANT IN SHORT")
    manager.history.on_cancelled()
    await manager.on_turn_complete()  # renders the view once more
    assert await ask(manager, BUDGET) == before


@pytest.mark.parametrize(("search_index", "asked"), [("auto", ["needle"]), ("scan", [])])
async def test_a_store_that_searches_is_asked_unless_the_config_says_scan(
    search_index: str, asked: list[str], tmp_path: Path
) -> None:
    queries: list[str] = []

    class Asked(SqliteStore):
        async def search(self, session_id: str, query: str, limit: int = 10) -> list[int]:
            queries.append(query)
            return await super().search(session_id, query, limit)

    manager = make_manager(load_config({"search_index": search_index}), store=Asked(tmp_path / "a.db"))
    await feed(manager, [user("Find the needle.")])
    assert await manager.search("needle") == ["m1"]
    await manager.close()
    assert queries == asked


LARGE = 20_000


async def started() -> tuple[ContextManager, EventRecorder]:
    manager, recorder = watched()
    await ask(await feed(manager, work(35, output=1_500)), LARGE)
    return manager, recorder


async def test_a_preview_changes_nothing_and_says_what_the_compaction_does_which_is_logged_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager, recorder = await started()
    view, explained, before = await ask(manager, LARGE), await manager.explain(), len(recorder.records)
    said = await manager.preview()
    assert said["would_compact"]
    assert len(recorder.records) == before
    assert (await ask(manager, LARGE), await manager.explain()) == (view, explained)
    with caplog.at_level(logging.INFO, "amplifier_context_core"):
        done = await manager.compact()
    same = ("before_tokens", "after_tokens", "prefix_given_up_tokens", "strategies", "trigger")
    assert [said[key] for key in same] == [done[key] for key in same]
    assert any(row["state"] == "folded" for row in said["rounds"])
    assert len(await ask(manager, LARGE)) < len(view)
    (line,) = [text for text in caplog.messages if "compacted: " in text]
    assert f"manual, {done['before_tokens']:,} to {done['after_tokens']:,} tokens" in line
    (row,) = await manager.compactions()
    assert row["prefix_given_up_tokens"] == done["prefix_given_up_tokens"]


@pytest.mark.parametrize(("first", "last"), [(None, "m40"), ("m30", None), ("m20", "m51"), ("m20", "m21")])
async def test_only_rounds_between_the_marks_change_and_undo_shows_them_again(
    first: str | None, last: str | None
) -> None:
    manager, _ = await started()
    before, messages = await ask(manager, LARGE), await manager.get_messages()
    span = range(int((first or "m1")[1:]), int((last or f"m{len(messages)}")[1:]) + 1)
    said = await manager.preview(first, last)
    done = await manager.compact(first=first, last=last)
    assert done["compacted"]
    assert done["after_tokens"] == said["after_tokens"]
    view = await ask(manager, LARGE)
    outside = [message["content"] or "" for seq, message in enumerate(messages, 1) if seq not in span]
    shown = [message["content"] or "" for message in view]
    assert [content for content in outside if content not in shown] == []
    assert view != before
    assert (await manager.undo(None if first is None else first))["shows"] == "originals"
    assert await ask(manager, LARGE) == before


MIDDLE = 10_000


def spans(manager: Any) -> list[tuple[str, str]]:
    checkpoint = manager.compactor.last_sent.view.checkpoint
    return [(f"m{one.first}", f"m{one.last}") for one in checkpoint.segments if one.chapter]


async def compact(manager: ContextManager) -> list[tuple[str, str]]:
    assert (await manager.compact())["compacted"]
    await ask(manager, MIDDLE)
    return spans(manager)


async def two_compactions() -> ContextManager:
    """A session that was compacted twice; a pin parts what the second compaction folds into two chapters."""
    manager = await feed(new_manager(), work(16, output=1800))
    await ask(manager, MIDDLE)
    first = await compact(manager)
    await feed(manager, rounds(12, start=40, output=1800))
    pinned = manager.snapshot()[-34].mark
    await ask(manager, MIDDLE)
    await manager.pin(pinned)
    after = await compact(manager)
    assert (after[:1], len(after)) == (first, 3)
    return manager


@pytest.mark.digest
@pytest.mark.parametrize("resumes", [False, True])
async def test_undo_takes_back_all_chapters_of_the_newest_compaction_and_no_other(resumes: bool) -> None:
    manager = await two_compactions()
    before = spans(manager)
    if resumes:
        await manager.close()
    report = await manager.undo()
    assert (report["undone"], report["shows"]) == (True, "originals")
    assert (report["first"], report["last"]) == (before[1][0], before[2][1])
    assert [(one["first"], one["last"]) for one in report["chapters"]] == before[1:]
    view = await ask(manager, MIDDLE)
    assert spans(manager) == before[:1]
    results = [entry for entry in manager.snapshot() if entry.role == "tool" and entry.seq > int(before[0][1][1:])]
    assert all(entry.message["content"] in text(view) for entry in results)
    again = await manager.undo()
    assert again["first"] == before[0][0], "the compaction before is the newest one now"
    assert (again["undone"], again["shows"]) == (False, "chapter"), "there is no room for its originals"


async def test_undo_of_a_mark_takes_back_the_chapter_that_holds_it_alone() -> None:
    manager = await two_compactions()
    before = spans(manager)
    report = await manager.undo(before[1][0])
    assert [(one["first"], one["last"]) for one in report["chapters"]] == before[1:2]
    await ask(manager, MIDDLE)
    assert spans(manager) == [before[0], before[2]]


async def test_undo_of_a_compaction_that_only_clipped_says_what_stays() -> None:
    manager = await feed(new_manager(strategies=[ClipToolOutputs()]), work(16, output=1_800))
    await ask(manager, MIDDLE)
    assert (await manager.compact())["compacted"]
    before = await ask(manager, MIDDLE)
    reason = "nothing is folded; what compactions clipped or replaced stays so"
    assert await manager.undo() == {"undone": False, "reason": reason}
    assert await ask(manager, MIDDLE) == before


@pytest.mark.digest
async def test_undo_of_many_rounds_counts_a_round_a_few_times() -> None:
    manager = new_manager(counter=(counter := Counter()), max_tokens=8_000, target_usage=0.3)
    for number in range(100):
        await feed(manager, [user(f"Look at file_{number}."), says(f"It holds item {number}. " + "So it goes. " * 9)])
    await ask(manager)
    assert (await manager.compact())["compacted"]
    await ask(manager)
    before = counter.characters
    assert (await manager.undo())["shows"] == "originals"
    assert counter.characters - before < 3 * sum(len(entry.message["content"]) for entry in manager.snapshot())


async def test_a_pin_beyond_the_share_is_refused_with_sizes_and_one_of_no_message_by_its_mark() -> None:
    manager = await feed(new_manager(), [*work(5), user("word " * 1_600)])
    await manager.get_messages_for_request(BUDGET)
    await feed(manager, [call("small", "large"), result("small"), result("large", "word " * 900)])
    with pytest.raises(PinRefused, match=r"m12 has 2,00\d tokens; pins hold 0 of the 1,000 they may fill .*25%.*4,000"):
        await manager.pin("m12")
    for mark in ("x", "m999", "m14"):  # the round of the last one stays with it
        with pytest.raises(PinRefused, match=mark):
            await manager.pin(mark)
    for steer in (manager.preview(None, "x"), manager.compact(first="m-1")):
        with pytest.raises(ValueError, match="no mark"):
            await steer
    assert not manager.compactor.compactions


async def test_pins_of_several_tasks_at_once_are_held_to_their_share_together() -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, BUDGET)
    pins = (manager.pin(f"m{number}") for number in range(3, 40, 2))
    refused = [problem for problem in await asyncio.gather(*pins, return_exceptions=True) if problem]
    assert refused
    assert all(isinstance(problem, PinRefused) for problem in refused)
    pinned = [row["mark"] for row in (await manager.explain())["rounds"] if row["rule"].startswith("pinned")]
    assert len(pinned) == len(range(3, 40, 2)) - len(refused)


async def test_a_view_that_no_compaction_gets_within_its_budget_is_clipped_but_for_the_rounds_of_pins() -> None:
    """The newest notice of a hook stays, and a call without result keeps a compaction from all after it."""
    budget = 1_600
    manager = await feed(new_manager(compact_threshold=0.3, target_usage=0.2), [system(words("rule", 200))])
    pinned, human = result("p", words("pinned", 300)), user(words("human", 940))
    await feed(manager, [call("p"), pinned])
    await manager.pin("m2")
    notice = user(words("notice", 2_700), metadata={"source": "hook", "hook_name": "h"})
    for message in (notice, call("open", content=words("open", 850)), human):
        await manager.add_message(message)
        view = await ask(manager, budget)
        assert [one["content"] for one in view if one.get("tool_call_id") == "p"] == [pinned["content"]]
    assert view[-1]["content"] == human["content"]
