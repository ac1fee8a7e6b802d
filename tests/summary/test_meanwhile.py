"""What happens while a model is asked: edits, forks, other providers, other loops, and the end of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, SessionLost, load_config
from amplifier_context_core.stores import MemoryStore
from amplifier_context_summary.asking import EVENTS
from amplifier_context_testing import EventRecorder, checked
from tests.messages import rounds, text
from tests.places import Place
from tests.summary.scripted import (
    BUDGET,
    PAUSE,
    SESSION,
    WORDS,
    HeldBack,
    Provider,
    drive,
    good,
    opened,
    summary_manager,
    until_asked,
    wait_for_summaries,
)
from tests.writers import Writer

pytestmark = pytest.mark.kernel
SECRET = "hunter2-0815"


# -- edits ----------------------------------------------------------------------------------------------------------


async def test_what_is_forgotten_is_not_sent_again_for_a_better_answer() -> None:
    provider = HeldBack(answer="")
    manager = summary_manager(provider)
    await until_asked(manager, provider, SESSION)
    entry = manager.snapshot()[2]
    assert entry.message["content"][:60] in provider.text(0)
    await manager.forget([entry.mark])
    provider.release.set()
    await wait_for_summaries(manager)
    assert len(provider.requests) == 1
    assert (await manager.explain())["summary"]["reason"] == "the history was edited meanwhile"
    await manager.close()


async def test_what_is_forgotten_while_handlers_hear_of_the_call_is_not_sent() -> None:
    hooks = HookRegistry()
    manager: Any = None
    contents: list[str] = []

    async def forget(event: str, data: dict[str, Any]) -> HookResult:
        contents.append(manager.snapshot()[2].message["content"][:60])
        await manager.forget(["m3"])
        return HookResult(action="continue")

    hooks.register("context:summary_started", forget, 0, name="forget")
    provider = Provider(good)
    manager = summary_manager(provider, hooks=hooks)
    await drive(manager, SESSION[:41])
    assert contents
    assert not any(contents[0] in provider.text(number) for number in range(len(provider.requests)))
    await manager.close()


async def test_a_focus_that_is_forgotten_while_a_model_is_asked_is_in_no_state() -> None:
    provider = HeldBack(answer=f"## Work\n- Open: TASK with {SECRET}")
    manager = summary_manager(provider)
    for message in SESSION[:25]:
        await manager.add_message(message)
    compacting = asyncio.create_task(manager.compact(f"the account with {SECRET}"))
    await provider.asked.wait()
    assert SECRET in provider.text()
    await manager.forget(containing=SECRET)
    provider.release.set()
    await wait_for_summaries(manager)
    await compacting
    assert SECRET not in str(manager.state(0))
    assert SECRET not in text(await manager.get_messages_for_request(BUDGET))
    assert manager.compactor.focus is None
    await manager.close()


async def test_a_compaction_without_instructions_outdates_no_question_that_quotes_earlier_ones() -> None:
    provider = HeldBack()
    manager = summary_manager(provider, summary_input=500)
    await manager.add_message(SESSION[0])
    manager.compactor.injected = "dwell on the files"
    await until_asked(manager, provider, SESSION[1:])
    assert "dwell on the files" in provider.text()
    assert (await ContextManager.compact(manager))["compacted"]
    assert manager.compactor.injected is None
    provider.release.set()
    await wait_for_summaries(manager)
    assert (await manager.explain())["summary"]["status"] == "ready"
    await manager.close()


async def test_undo_while_a_summary_is_on_its_way_drops_the_state_that_it_continues() -> None:
    provider = HeldBack(2)
    manager = summary_manager(provider)
    await until_asked(manager, provider, SESSION)
    [first] = manager.records.valid()
    report = await manager.undo()
    assert report["undone"]
    assert manager.records.valid() == []
    provider.release.set()
    await wait_for_summaries(manager)
    assert manager.records.valid() == [], f"m{first.upto} is in the state again"
    checked(await manager.get_messages_for_request(BUDGET))
    await manager.close()


async def test_a_fork_made_while_a_model_is_asked_goes_on_by_itself(place: Place) -> None:
    provider = HeldBack(2)
    manager = opened(place, provider)
    added = await until_asked(manager, provider, SESSION)
    held = manager.records.valid()[:]
    other = place.store()
    await other.fork(place.session_id(), place.session_id("t"))
    await other.close()
    again = Provider(good)
    fork = opened(place, again, "t")
    views = await drive(fork, rounds(30, start=200, output=900))
    assert (await fork.records.verified())[: len(held)] == held or len(again.requests) >= 2
    assert WORDS in text(views[-1])
    provider.release.set()
    await wait_for_summaries(manager)
    assert len(manager.records.valid()) == 2
    assert "file 200" not in str(manager.state(0))
    await drive(manager, SESSION[added:])
    await fork.close()
    await manager.close()


async def test_a_provider_that_is_swapped_while_it_is_asked_answers_for_its_range() -> None:
    provider, other = HeldBack(), Provider(good)
    mounted: dict[str, Any] = {"scripted": provider}
    manager = summary_manager(provider)
    manager.writer.providers = lambda: mounted
    added = await until_asked(manager, provider, SESSION)
    mounted["scripted"] = other
    for message in SESSION[added:45]:
        await manager.add_message(message)
        checked(await manager.get_messages_for_request(BUDGET, other))
    assert other.requests == [], "one call at a time"
    provider.release.set()
    await wait_for_summaries(manager)
    views = await drive(manager, SESSION[45:])
    assert len(provider.requests) == 1
    assert other.requests
    assert WORDS in text(views[-1])
    await manager.close()


# -- the end ----------------------------------------------------------------------------------------------------------


async def test_a_provider_that_ignores_its_cancellation_delays_no_close_and_changes_nothing_later(place: Place) -> None:
    provider = HeldBack(ignores_cancelling=True)
    manager = opened(place, provider)
    await until_asked(manager, provider, SESSION)
    stored = await manager.get_messages()
    async with asyncio.timeout(2):
        await manager.close()
    again = opened(place, None)
    assert await again.get_messages() == stored
    provider.release.set()
    await asyncio.sleep(0.05)
    assert again.state(0)["context-summary"]["records"] == []
    await again.close()


async def test_a_request_on_its_way_during_close_begins_no_call() -> None:
    provider = HeldBack()
    manager = summary_manager(provider)
    for message in SESSION[:33]:
        await manager.add_message(message)
    async with manager.compactor.lock.hold():
        request = asyncio.create_task(manager.get_messages_for_request(BUDGET))
        for _ in range(10):
            await asyncio.sleep(0)
        closing = asyncio.create_task(manager.close())
        await asyncio.sleep(0.05)
    await asyncio.wait({request, closing})
    await asyncio.sleep(0.05)
    assert not provider.requests
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("amplifier-context-summary")]


async def test_a_late_summary_is_not_put_in_over_what_another_manager_saved(place: Place) -> None:
    writer = Writer("slow")
    manager = opened(place, writer, cache_ttl=60)
    views = await drive(manager, SESSION[:45], waits=False)
    assert "<context_record>" in text(views[-1])
    writer.release.set()
    await wait_for_summaries(manager)
    await manager.add_message(PAUSE)
    await manager.close()
    other = opened(place, None)
    await other.pin("m3")
    assert await other.forget(containing="file 1: ")
    await other.close()
    view = await manager.get_messages_for_request(BUDGET)
    assert "SAW file 1: " not in text(view)
    assert manager.compactor.pins == {3}
    await manager.close()
    saved = await manager.store.load_checkpoint(manager.session_id)
    assert saved is not None
    assert b"file 1: " not in saved
    await manager.store.close()


# -- loops ------------------------------------------------------------------------------------------------------------


def in_loop(work: Callable[[], Awaitable[Any]], *, end: str) -> Any:
    """Run something in a loop of its own, which is closed with or without cancelling what still runs."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work())
    finally:
        for task in asyncio.all_tasks(loop) if end == "cancel" else ():
            task.cancel()
        if end == "cancel":
            loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_loop_that_ends_while_a_model_is_asked_ends_that_call_alone(end: str, place: Place) -> None:
    """A host that runs each turn in a loop of its own."""
    provider, other = HeldBack(), Provider(good)
    manager = opened(place, provider)
    added = in_loop(lambda: until_asked(manager, provider, SESSION), end=end)
    manager.writer.providers = lambda: {"scripted": other}
    views = in_loop(lambda: drive(manager, SESSION[added:]), end=end)
    assert WORDS in text(views[-1])
    assert other.requests
    in_loop(manager.close, end=end)


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_session_is_closed_in_another_loop_than_the_one_that_asked(end: str, place: Place) -> None:
    provider = HeldBack()
    manager = opened(place, provider)
    added = in_loop(lambda: until_asked(manager, provider, SESSION), end=end)
    in_loop(manager.close, end="cancel")
    again = opened(place, None)
    assert len(in_loop(again.get_messages, end="cancel")) == added
    in_loop(again.close, end="cancel")


async def test_a_session_that_another_program_edited_between_its_turns_has_no_state_of_what_was_erased(
    place: Place,
) -> None:
    """A manager that is closed after each turn, and asked again."""
    manager = opened(place, Provider(good))
    await drive(manager, SESSION)
    assert manager.records.valid()
    await manager.close()
    config = load_config({"token_counter": "heuristic"})
    other = ContextManager(config, session_id=place.session_id(), store=place.store())
    assert await other.forget(["m5"]) == ["m5"]
    await other.close()
    await manager.get_messages()
    assert manager.records.valid() == []
    await manager.close()


async def test_events_name_the_session_that_a_conflict_made() -> None:
    """Another writer has taken the session while a model was asked: the history goes on in a fork (`on_conflict`)."""
    store = MemoryStore()
    append = store.append

    async def lost(session_id: str, entries: Any) -> None:
        if session_id == "s" and provider.asked.is_set():
            raise SessionLost("s", "another writer")
        await append(session_id, entries)

    store.append = lost
    hooks = HookRegistry()
    recorder = EventRecorder().attach(hooks, EVENTS)
    provider = HeldBack()
    manager = summary_manager(provider, store=store, hooks=hooks, on_conflict="fork")
    added = await until_asked(manager, provider, SESSION)
    await manager.add_message(SESSION[added])
    fork_id = manager.history.session_id
    assert fork_id != "s"
    provider.release.set()
    await wait_for_summaries(manager)
    views = await drive(manager, SESSION[added + 1 :])
    assert WORDS in text(views[-1])
    assert recorder.named("context:summary_started")[0]["session_id"] == "s"
    assert {data["session_id"] for data in recorder.named("context:summary_finished")} == {fork_id}
    await manager.close()
