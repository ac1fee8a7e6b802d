"""Resuming, on every backend: the session goes on as if it had never stopped."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amplifier_context_core import ContextManager, NotLoaded, load_config
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.view.pins import round_tokens
from amplifier_context_testing import coding_session
from amplifier_context_testing.checks.conversation_builder import Talk
from tests.manager.support import Message, ask, feed, rounds
from tests.places import BACKENDS, Place

pytestmark = pytest.mark.stores("jsonl", "postgresql")  # a folder and a server: what differs further is the contract's

BUDGET = 6_000


@asynccontextmanager
async def opened(place: Place, name: str = "s", **config: Any) -> AsyncGenerator[ContextManager]:
    """A manager on this place's data; closed at the end, as a host ends a session."""
    settings = load_config({"token_counter": "heuristic", "max_tokens": BUDGET, **config})
    manager = ContextManager(settings, session_id=place.session_id(name), store=place.store())
    try:
        yield manager
    finally:
        await manager.close()


async def compacted(manager: ContextManager, messages: int = 100, seed: int = 0) -> list[Message]:
    """A session long enough to be compacted, asked for views as a loop would; the newest view."""
    for message in coding_session(messages, seed):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request()
    assert manager.compactor.compactions > 2
    return await ask(manager)


def raw(messages: Iterable[Message]) -> str:
    return json.dumps(list(messages))


async def test_a_history_is_there_again_as_it_was(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        before = await manager.get_messages()
        marks = [entry.mark for entry in manager.snapshot()]
    async with opened(place) as manager:
        assert await manager.get_messages() == before
        assert [entry.mark for entry in manager.snapshot()] == marks


@pytest.mark.stores(*BACKENDS)
async def test_the_first_view_after_a_resume_is_the_last_one_before_byte_for_byte(place: Place) -> None:
    async with opened(place) as manager:
        before = await compacted(manager)
    async with opened(place) as manager:
        assert raw(await manager.get_messages_for_request()) == raw(before)
        assert manager.history.snapshot().gap  # most of it was not even read


async def test_it_is_so_too_when_the_process_was_killed(place: Place) -> None:
    if place.backend == "memory":
        pytest.skip("memory ends with its process")
    place.durability = "flush"
    killed = ContextManager(
        load_config({"token_counter": "heuristic", "max_tokens": BUDGET, "on_conflict": "fork"}),
        session_id=place.session_id(),
        store=place.store(),
    )
    before = await compacted(killed)
    # Nothing is closed: the claim is still held, as it is for a while after a crash. A fork of it is what config asks.
    async with opened(place, on_conflict="fork") as manager:
        assert raw(await manager.get_messages_for_request()) == raw(before)
        assert manager.history.session_id != place.session_id()
    await killed.store.close()


async def test_both_go_on_alike(place: Place) -> None:
    more = rounds(30, start=500)
    async with opened(place) as manager:
        await compacted(manager)
        await manager.close()
        twin = ContextManager(manager.config, session_id="twin", store=MemoryStore())
        await compacted(twin)
    async with opened(place) as manager:
        for message in more:
            await manager.add_message(message)
            await twin.add_message(message)
            assert [m["content"] for m in await ask(manager)] == [m["content"] for m in await ask(twin)]
        assert manager.turn_count == twin.turn_count
        assert [entry.mark for entry in (await _all(manager))] == [entry.mark for entry in twin.snapshot()]


async def _all(manager: ContextManager) -> list[Any]:
    await manager.load()
    return list(manager.snapshot())


async def test_only_the_newest_is_in_memory_until_somebody_asks_for_all(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        count = len(manager.snapshot())
    async with opened(place) as manager:
        await manager.get_messages_for_request()
        snapshot = manager.snapshot()
        assert len(snapshot) == count
        assert snapshot[-1].seq == count
        with pytest.raises(NotLoaded, match="await context"):
            snapshot[count // 3]
        await manager.load()
        assert manager.snapshot()[count // 3].seq == count // 3 + 1
        with pytest.raises(NotLoaded):
            snapshot[count // 3]  # a snapshot never changes


async def test_an_original_is_read_back_without_loading_the_rest(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        original = await manager.recall("m20")
    async with opened(place) as manager:
        assert await manager.recall("m20") == original
        assert await manager.recall("m99999") is None
        assert manager.history.snapshot().gap


async def test_what_was_learned_pinned_and_shortened_is_there_again(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        call = next(entry for entry in reversed(manager.snapshot()) if entry.answered_ids).answers[0]
        small = next(e for e in manager.snapshot()[8:] if round_tokens({e.seq}, manager.snapshot()) < 800)
        await manager.pin(small.mark)
        await manager.compact_summary(call, "in short")
        manager.meter.report(1_000, Usage(1_500), ("anthropic", "m"))
        known = manager.meter.estimate(2_000, ("anthropic", "m"))
        view = await ask(manager)
    async with opened(place) as manager:
        assert raw(await ask(manager)) == raw(view)
        assert manager.compactor.pins == {small.seq}
        assert manager.meter.estimate(2_000, ("anthropic", "m")) == known
        assert any(call in short for short in manager.compactor.short_forms.known.values())


async def test_a_history_that_was_never_compacted_resumes_as_well(place: Place) -> None:
    async with opened(place) as manager:
        before = await ask(await feed(manager, [{"role": "system", "content": "Be brief."}, *rounds(3)]))
    async with opened(place) as manager:
        assert raw(await ask(manager)) == raw(before)
        await manager.add_message({"role": "user", "content": "more"})
        assert [entry.seq for entry in manager.snapshot()][-1] == 8


async def test_an_unreadable_checkpoint_is_told_and_the_view_made_anew(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        history = await manager.get_messages()
    store = place.store()
    await store.save_checkpoint(place.session_id(), 10, b'{"version": 1, "lines": 3}')
    await store.close()
    async with opened(place) as manager:
        await ask(manager)
        assert await manager.get_messages() == history
        assert any("made anew" in text for text in manager.warnings.texts)


async def test_a_checkpoint_of_another_history_is_not_used(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
    async with opened(place, "other") as manager:
        await compacted(manager, 90, seed=5)
        history = await manager.get_messages()
    store = place.store()
    data = await store.load_checkpoint(place.session_id())
    assert data
    await store.save_checkpoint(place.session_id("other"), 0, data)
    await store.close()
    async with opened(place, "other") as manager:
        view = await ask(manager)
        assert await manager.get_messages() == history
        assert view[-1]["content"] == history[-1]["content"]


# --- KERNEL.md: the five ways hosts touch history, after a resume -----------------------------------------------------


async def test_a_host_that_sets_the_saved_transcript_changes_nothing(place: Place) -> None:
    async with opened(place) as manager:
        before = await compacted(await feed(manager, [{"role": "system", "content": "Be brief."}]))
        history = await manager.get_messages()
    saved = [m for m in json.loads(json.dumps(history)) if m["role"] != "system"]
    async with opened(place) as manager:
        await manager.set_messages(saved)
        await manager.set_messages([history[0], *saved])
        assert await manager.get_messages() == history
        assert raw(await ask(manager)) == raw(before)
        assert manager.history.snapshot().revision == 0


async def test_a_repair_in_the_middle_is_recorded_and_resumed(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        await feed(manager, [{"role": "user", "content": "go on"}, *rounds(1, start=900)[:1]])
    async with opened(place) as manager:
        history = await manager.get_messages()
        call = history[-1]["tool_calls"][0]["id"] if "tool_calls" in history[-1] else None
        mended = {"role": "tool", "tool_call_id": call or "call_900", "content": "interrupted"}
        await manager.set_messages([*history, mended])
        edited = [*history[:-1], {"role": "user", "content": "put in between"}, history[-1], mended]
        await manager.set_messages(edited)
        kept = await manager.get_messages()
        assert [m["content"] for m in kept] == [m["content"] for m in edited]
        marks = [entry.mark for entry in manager.snapshot()]
        assert len(set(marks)) == len(marks)
        view = await ask(manager)
    async with opened(place) as manager:
        assert raw(await ask(manager)) == raw(view)
        assert await manager.get_messages() == kept
        assert [entry.mark for entry in manager.snapshot()] == marks


async def test_a_transcript_replayed_through_add_doubles_nothing(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        history = await manager.get_messages()
    async with opened(place) as manager:
        for message in history:
            await manager.add_message(message)
        assert await manager.get_messages() == history
        await manager.add_message({"role": "user", "content": history[0]["content"]})
        assert len(await manager.get_messages()) == len(history) + 1


async def test_instructions_given_again_before_a_replay_double_nothing(place: Place) -> None:
    instructions = {"role": "system", "content": "You are a careful agent."}
    async with opened(place) as manager:
        await manager.add_message(instructions)
        await compacted(manager)
        history = await manager.get_messages()
    async with opened(place) as manager:
        await feed(manager, [instructions, *history[1:]])
        assert await manager.get_messages() == history
        await ask(manager)
        await manager.add_message(instructions)  # once it is at work, it means it
        assert len(await manager.get_messages()) == len(history) + 1


async def test_a_reminder_that_a_session_began_with_is_new_once_it_is_at_work_again(place: Place) -> None:
    reminder = {"role": "system", "content": "Be brief.", "metadata": {"source": "hook"}}
    async with opened(place) as manager:
        await feed(manager, [reminder, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])
    async with opened(place) as manager:
        await feed(manager, [{"role": "user", "content": "q2"}, reminder])
        assert [m["content"] for m in await manager.get_messages()] == ["Be brief.", "q", "a", "q2", "Be brief."]


async def test_a_replay_with_a_message_of_its_own_doubles_none_of_the_others(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        history = await manager.get_messages()
    changed = {**history[3], "content": "left out by the host"}
    hint = {"role": "system", "content": "You were resumed."}
    async with opened(place) as manager:
        await feed(manager, [hint, *history[:3], changed, *history[4:]])
        told = await manager.get_messages()
        assert told[: len(history)] == history
        assert [message["content"] for message in told[len(history) :]] == [hint["content"], changed["content"]]


async def test_a_new_message_after_a_resume_is_no_replay(place: Place) -> None:
    async with opened(place) as manager:
        await feed(manager, [{"role": "user", "content": "continue"}, {"role": "assistant", "content": "done"}])
    async with opened(place) as manager:
        await manager.add_message({"role": "user", "content": "continue"})
        assert [m["content"] for m in await manager.get_messages()] == ["continue", "done", "continue"]


async def test_a_child_begins_with_the_raw_history_of_its_parent(place: Place) -> None:
    async with opened(place) as parent:
        await compacted(parent)
        history = await parent.get_messages()
    async with opened(place, "child") as child:
        await child.set_messages(history)
        await child.add_message({"role": "user", "content": "your part"})
    async with opened(place, "child") as child:
        assert [m["content"] for m in await child.get_messages()] == [*(m["content"] for m in history), "your part"]


async def test_a_clear_stays_cleared_and_marks_are_not_given_again(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        last = manager.snapshot()[-1].seq
        await manager.clear()
    async with opened(place) as manager:
        assert await manager.get_messages() == []
        await manager.add_message({"role": "user", "content": "afresh"})
        assert [entry.seq for entry in manager.snapshot()] == [last + 1]


async def test_an_interrupted_turn_is_gone_after_a_resume(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        kept = await manager.get_messages()
        await feed(manager, [{"role": "user", "content": "and then"}, *rounds(1, start=70)[:1]])
        assert (await manager.interrupt())["interrupted"]
    async with opened(place) as manager:
        after = await manager.get_messages()
        assert after == kept[: len(after)]
        assert "and then" not in [m["content"] for m in after]


async def test_an_edit_behind_a_resume_loses_no_checkpoint_that_still_stands(place: Place) -> None:
    async with opened(place) as manager:
        view = await compacted(manager)
    async with opened(place) as manager:
        history = await manager.get_messages()
        await manager.set_messages([*history[:-1], {"role": "user", "content": "otherwise"}])
        changed = await ask(manager)
        assert changed[:5] == view[:5]
    async with opened(place) as manager:
        assert raw(await ask(manager)) == raw(changed)
        assert manager.history.snapshot().gap


async def test_a_response_is_there_again_with_its_usage(place: Place) -> None:
    async with opened(place) as manager:
        await feed(manager, [{"role": "user", "content": "hi"}])
        await ask(manager)
        manager.on_response(Response("m-1", "anthropic", Usage(40, 2, 1, 0), "stop"))
        await manager.add_message({"role": "assistant", "content": "hello"})
        before = manager.snapshot()[-1]
    async with opened(place) as manager:
        assert (await _all(manager))[-1] == before
        assert before.response == Response("m-1", "anthropic", Usage(40, 2, 1, 0), "stop")


async def test_a_cancelled_turn_is_shown_as_interrupted_after_a_kill_as_well(place: Place) -> None:
    manager = ContextManager(
        load_config({"token_counter": "heuristic", "max_tokens": BUDGET}),
        session_id=place.session_id(),
        store=place.store(),
    )
    await feed(manager, [{"role": "user", "content": "go"}, *rounds(2)[:3]])
    manager.history.cancelled()
    await manager.on_turn_complete()
    before = await ask(manager)
    await manager.store.close()  # the store alone: the manager says nothing more
    async with opened(place) as manager:
        assert raw(await ask(manager)) == raw(before)
        assert "interrupted" in raw(before)


async def test_a_view_of_giants_without_a_checkpoint_is_the_same_after_a_resume(place: Place) -> None:
    """Its originals are many budgets, its view is not: nothing of it is distant history."""
    talk = Talk().user("Find the bug.").say("DECISION-17: the port is 8443.").user("Go on.")
    for number in range(5):
        talk.round("read", {"path": f"{number}.log"}, f"line {number} of a log that is long\n" * 4_000)
    async with opened(place, max_tokens=8_000, output_share=0.1) as manager:
        view = await ask(await feed(manager, talk.messages))
        assert not manager.compactor.compactions
        manager.meter.report(1_000, Usage(3_000), ("", ""))  # what is learned later changes no limit of this view
    async with opened(place, max_tokens=8_000, output_share=0.1) as manager:
        assert raw(await ask(manager)) == raw(view)
