"""Resuming: the session goes on as if it had never stopped, whatever its host does with the saved history, and nothing
older comes back to it when another manager had it meanwhile. Compactions are saved before their handlers run.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import AsyncMock

import pytest

from amplifier_context_core import ContextManager, NotLoaded, StoreError
from amplifier_context_core.items import ContextItem
from amplifier_context_core.messages.usage import Usage
from amplifier_context_core.rendering.rounds import rounds_with
from amplifier_context_core.view import shared_cache
from amplifier_context_core.view.session_state import load
from amplifier_context_testing import coding_session
from tests.durable.sessions import SECRET, compacted, manager_on, opened, turns
from tests.manager.measured import Counting, measure
from tests.managers import ask, feed
from tests.messages import call, result, rounds, system, text, user, work
from tests.places import BACKENDS, Place
from tests.recall.calls import recalled, tool_of

pytestmark = pytest.mark.stores("jsonl")  # and SQLite with a model: what differs by store is the contract's


@pytest.mark.stores(*BACKENDS)
async def test_the_first_view_after_a_resume_is_the_last_one_before_byte_for_byte(place: Place) -> None:
    async with opened(place) as manager:
        before = await compacted(manager)
        history, original = await manager.get_messages(), await manager.recall("m20")
    async with opened(place) as manager:
        assert text(await manager.get_messages_for_request()) == text(before)
        assert await manager.recall("m20") == original
        assert await manager.recall("m99999") is None
        assert manager.history.snapshot().gap  # most of it was not even read
        assert await manager.get_messages() == history


async def test_it_is_so_too_when_the_process_was_killed(place: Place) -> None:
    if place.backend == "memory":
        pytest.skip("memory ends with its process")
    place.durability = "flush"
    killed = manager_on(place.store(), place.session_id(), on_conflict="fork")
    before = await compacted(killed)
    # Nothing is closed: the claim is still held, as it is for a while after a crash. A fork of it is what config asks.
    async with opened(place, on_conflict="fork") as manager:
        assert text(await manager.get_messages_for_request()) == text(before)
        assert manager.history.session_id != place.session_id()
    await killed.store.close()


@pytest.mark.parametrize("first", ["message", "request"])
async def test_a_view_that_served_a_smaller_budget_too_serves_it_after_a_kill(place: Place, first: str) -> None:
    if place.backend == "memory":
        pytest.skip("memory ends with its process")
    place.durability = "flush"
    killed = manager_on(place.store(), place.session_id(), on_conflict="fork")
    for budget in (6_000, 1_500) if first == "request" else ():
        await killed.get_messages_for_request(budget)
    await feed(killed, [user(), call("a"), result("a", "a line of the output\n" * 100)])
    await ask(killed, 6_000)
    before = await ask(killed, 1_500)
    async with opened(place, on_conflict="fork") as manager:
        assert text(await ask(manager, 1_500)) == text(before), "the output is not clipped"
    await killed.store.close()


async def test_a_message_that_was_clipped_before_a_resume_is_whole_where_a_request_has_room(place: Place) -> None:
    words = "the newest words of a person " * 800
    async with opened(place, max_tokens=20_000) as manager:
        await feed(manager, [system("Be brief."), *turns(60), user(words)])
        assert words not in (await ask(manager, 6_000))[-1]["content"]
    shared_cache.clear()
    async with opened(place, max_tokens=20_000) as manager:
        assert words not in (await ask(manager, 6_000))[-1]["content"]
        assert (await ask(manager, 7_400))[-1]["content"] == words
        assert manager.snapshot().gap


async def test_only_the_newest_entries_are_in_memory_until_all_are_asked_for(place: Place) -> None:
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


async def test_what_was_learned_pinned_and_shortened_is_there_again(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        answered = next(entry for entry in reversed(manager.snapshot()) if entry.answered_ids).answered_ids[0]
        small = next(e for e in manager.snapshot()[8:] if rounds_with({e.seq}, manager.snapshot())[e.seq].tokens < 800)
        await manager.pin(small.mark)
        await manager.compact_summary(answered, "in short")
        await manager.compact_summary("to_come", "of the future")
        manager.session.meter.report(1_000, Usage(1_500), ("anthropic", "m"))
        known = manager.session.meter.estimate(2_000, ("anthropic", "m"))
        view = await ask(manager)
    async with opened(place) as manager:
        assert text(await ask(manager)) == text(view)
        assert manager.compactor.directions.pins == {small.seq}
        assert manager.session.meter.estimate(2_000, ("anthropic", "m")) == known
        await feed(manager, [call("to_come"), {"role": "tool", "tool_call_id": "to_come", "content": "long " * 500}])
        for name in (answered, "to_come"):
            assert any(name in short for short in manager.compactor.directions.short_forms.known.values())


async def test_an_unreadable_checkpoint_is_reported_and_the_view_rebuilt(place: Place) -> None:
    async with opened(place) as manager:
        view = await compacted(manager)
        history = await manager.get_messages()
    store = place.store()
    found = json.loads(await store.load_checkpoint(place.session_id()) or b"")
    first, *others = found["views"]
    for state, reported in (
        ({"version": 2, "views": 3}, "rebuilt from the history"),
        ({**found, "views": [{**first, "seqs": first["seqs"][:-1]}, *others]}, "makes no sense"),
        ({**found, "by_budget": [[6_000, 99]]}, ""),
        ({**found, "covered_count": 99_999}, ""),
        ({**found, "turns_before": -5}, ""),
        ({**found, "leading_count": 50}, ""),
    ):
        await store.save_checkpoint(place.session_id(), 10, json.dumps(state).encode())
        await store.close()
        shared_cache.clear()
        manager = manager_on(place.store(), place.session_id())
        assert (await ask(manager))[-1] == view[-1]
        assert await manager.get_messages() == history
        assert any(reported in text for text in manager.warnings.texts) or not reported
        await manager.store.close()


async def test_a_cancelled_turn_is_shown_as_interrupted_after_a_kill_as_well(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, [{"role": "user", "content": "go"}, *rounds(2)[:3]])
    manager.history.on_cancelled()
    await manager.on_turn_complete()
    before = await ask(manager)
    await manager.store.close()  # the store alone: the manager says nothing more
    async with opened(place) as manager:
        assert text(await ask(manager)) == text(before)
        assert "interrupted" in text(before)


@pytest.mark.stores("jsonl")
async def test_an_edit_after_one_of_two_checkpoints_is_never_covered_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends before the state is saved again."""
    manager = manager_on(place.store(), place.session_id(), max_tokens=60_000)
    for number, message in enumerate(coding_session(300, 2)):
        await manager.add_message(message)
        if number % 20 == 0:
            await manager.get_messages_for_request(15_000 if number < 200 else 4_000)
    first, last = sorted(line.checkpoint.covered for line in manager.compactor.cache.views if line.checkpoint)
    assert first < last
    history, at = await manager.get_messages(), (first + last) // 2 + 1
    monkeypatch.setattr(manager.store, "save_checkpoint", AsyncMock(side_effect=StoreError("the disk is full")))
    await manager.set_messages([*history[:at], user("put in by the host"), *history[at:]])
    await manager.store.close()
    shared_cache.clear()
    resumed = manager_on(place.store(), place.session_id(), max_tokens=60_000)
    for budget in (4_000, 15_000):
        assert "put in by the host" in text(await ask(resumed, budget))
    await resumed.close()


async def test_a_transcript_replayed_through_add_doubles_nothing(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        history = await manager.get_messages()
    async with opened(place) as manager:
        await feed(manager, history)
        assert await manager.get_messages() == history
        await manager.add_message({"role": "user", "content": history[0]["content"]})
        history = await manager.get_messages()
    changed, hint = (
        {**history[3], "content": "left out by the host"},
        {"role": "system", "content": "You were resumed."},
    )
    async with opened(place) as manager:
        await feed(manager, [hint, *history[:3], changed, *history[4:]])
        found = await manager.get_messages()
        assert found[: len(history)] == history
        assert [message["content"] for message in found[len(history) :]] == [hint["content"], changed["content"]]


async def test_new_messages_after_a_resume_are_new_and_load_no_history(place: Place) -> None:
    """One with a time of its own, and the reminder that the session began with."""
    reminder = system("Be brief.", metadata={"source": "hook"})
    async with opened(place) as manager:
        await ask(await feed(manager, [reminder, user("go"), *rounds(80)]))
    async with opened(place) as manager:
        await feed(manager, [user("next", metadata={"timestamp": "2031-01-01T00:00:00.000+00:00"}), reminder])
        assert manager.snapshot().gap
        assert [entry.message["content"] for entry in manager.snapshot()[-2:]] == ["next", "Be brief."]


async def test_a_turn_of_an_earlier_process_is_not_taken_for_a_cancelled_one(place: Place) -> None:
    async with opened(place) as manager:
        await feed(manager, turns(2))
    async with opened(place, on_interrupt="discard") as manager:
        await manager.ready()
        manager.history.on_cancelled()
        await manager.on_turn_complete()
        assert len(await manager.get_messages()) == 4


async def test_the_model_reads_nothing_of_what_a_clear_removed(place: Place) -> None:
    async with opened(place) as manager:
        await feed(manager, [user("the first secret"), user("the second secret")])
        await manager.set_messages([user("the second secret")])  # the first is archived by this edit
        await manager.clear()
        await feed(manager, [user("afresh"), user("edited"), user("later")])
        await manager.set_messages([user("afresh"), user("later")])
        assert [await manager.recall(f"m{seq}") for seq in range(1, 3)] == [None, None]
        assert (await manager.recall("m4") or {})["content"] == "edited"
    async with opened(place) as manager:
        read = await recalled(tool_of(manager), "read", mark="m1-m5")
        assert "secret" not in read
        assert "edited" in read  # what an edit removed since is still read


class Waiting:
    """Handlers of events, of which one waits for the test."""

    def __init__(self, event: str) -> None:
        self.asked, self.release, self._event = asyncio.Event(), asyncio.Event(), event

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        if event == self._event:
            self.asked.set()
            await self.release.wait()


async def compactions_saved(place: Place) -> int:
    store = place.store()
    data = await store.load_checkpoint(place.session_id())
    await store.close()
    return load(data).compactions if data else 0


async def commit_measured(manager: ContextManager) -> None:
    await (await measure(manager, Counting()))["transaction"].commit()


WAYS: dict[str, Callable[[ContextManager], Coroutine[Any, Any, Any]]] = {
    "request": lambda manager: manager.get_messages_for_request(),
    "command": lambda manager: manager.compact(),
    "measured request": commit_measured,
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_compaction_is_saved_before_its_handlers_run(place: Place, way: str) -> None:
    hooks = Waiting("context:compaction")
    manager = await with_secret(place, hooks)
    request = asyncio.create_task(WAYS[way](manager))
    await asyncio.wait_for(hooks.asked.wait(), 30)
    assert await compactions_saved(place) == 1
    request.cancel()
    await asyncio.wait({request})
    await manager.store.close()


async def test_a_request_that_is_cancelled_while_its_compaction_is_saved_saves_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await with_secret(place)
    save, reached = manager.store.save_checkpoint, asyncio.Event()

    async def interrupted(session_id: str, covered: int, data: bytes) -> None:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        await save(session_id, covered, data)

    monkeypatch.setattr(manager.store, "save_checkpoint", interrupted)
    request = asyncio.create_task(manager.get_messages_for_request())
    await reached.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert await compactions_saved(place) == 1
    await manager.store.close()


async def test_a_store_that_refuses_is_asked_ever_less_often_and_logged_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager, tried = await with_secret(place), list[int]()

    async def refuse(session_id: str, covered: int, data: bytes) -> None:
        tried.append(request)
        raise StoreError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(manager.store, "save_checkpoint", refuse)
        for request in range(40):  # noqa: B007 - noted above
            await manager.get_messages_for_request()
    assert tried == [0, 1, 3, 7, 15, 31]
    assert manager.compactor.compactions == 1
    assert caplog.text.count("was not saved") == 1
    await manager.close()
    assert await compactions_saved(place) == 1


@pytest.mark.stores(*BACKENDS)
async def test_a_compaction_that_ends_after_the_close_does_not_open_the_store_again(place: Place) -> None:
    hooks = Waiting("context:pre_compact")
    manager = await with_secret(place, hooks=hooks)
    request = asyncio.create_task(manager.get_messages_for_request())
    await asyncio.wait_for(hooks.asked.wait(), 30)
    await manager.close()
    await forgotten_elsewhere(place)
    store = place.store()
    saved = await store.load_checkpoint(place.session_id())
    hooks.release.set()
    await asyncio.wait_for(asyncio.wait({request}), 30)
    assert await store.load_checkpoint(place.session_id()) == saved
    await store.close()
    await feed(manager_on(place.store(), place.session_id()), [user("next")])  # the session is not in use


async def with_secret(place: Place, hooks: Any = None) -> ContextManager:
    """A manager whose first message is to be forgotten, and whose next request compacts."""
    manager = manager_on(place.store(), place.session_id(), hooks=hooks, cadence="fixed", compact_threshold=0.8)
    return await feed(manager, [user(SECRET), *work(80, output=900)])


async def forgotten_elsewhere(place: Place) -> None:
    other = manager_on(place.store(), place.session_id())
    assert await other.forget(["m1"]) == ["m1"]
    await other.close()


async def test_a_transaction_of_before_the_close_does_not_commit(place: Place) -> None:
    """The revision goes on after it, or that of the new one could be that of the plan."""
    manager = await with_secret(place)
    for number in (3, 5, 7):
        await manager.forget([f"m{number}"])
    revision = manager.history.revision
    transaction = (await measure(manager, Counting()))["transaction"]
    await manager.close()
    await forgotten_elsewhere(place)
    await manager.ready()
    assert manager.history.revision > revision
    assert await transaction.commit() is False
    assert SECRET not in text(await manager.get_messages_for_request())
    await manager.close()


async def test_nothing_that_another_program_dropped_after_the_close_comes_back(place: Place) -> None:
    """Items, pins, short forms and the focus are those of the store."""
    messages = [user("go"), call("c1"), result("c1", f"{SECRET}\n" * 900)]
    manager = await feed(manager_on(place.store(), place.session_id()), messages)
    await manager.pool.add(ContextItem(id="key", description="a key", content=SECRET))
    await manager.compact_summary("c1", f"it says {SECRET}")
    await manager.compact(f"keep {SECRET}")
    await manager.pin("m1")
    await manager.close()
    other = manager_on(place.store(), place.session_id())
    await other.pin("m1", False)
    assert await other.forget(containing=SECRET) == ["m3"]
    await feed(other, [user("theirs")])
    await other.close()
    await manager.add_message(user("b"))
    assert [one["content"] for one in (await manager.get_messages())[3:]] == ["theirs", "b"]
    assert [entry.seq for entry in manager.snapshot()] == [1, 2, 3, 4, 5]
    assert not manager.pool
    assert (manager.compactor.directions.pins, manager.compactor.directions.focus) == (set(), None)
    assert SECRET not in text(await manager.get_messages_for_request())
    await manager.close()
    assert SECRET.encode() not in (await manager.store.load_checkpoint(manager.session_id) or b"")
    await manager.store.close()
