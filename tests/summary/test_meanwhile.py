"""What happens while a model is asked: edits, forks, other providers, other loops, and the end of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import ChatRequest, HookRegistry, HookResult

from amplifier_context_core import ContextManager, SessionLost, load_config
from amplifier_context_core.stores import MemoryStore
from amplifier_context_summary.asking import EVENTS
from amplifier_context_testing import EventRecorder, checked
from amplifier_context_testing.summaries.writers import Writer
from tests.messages import rounds, text, work
from tests.places import BACKENDS, Place, parameters
from tests.summary.scripted import BUDGET, Provider, drive, good, summary_manager, wait_for_summaries

pytestmark = pytest.mark.kernel
SESSION = work(60, output=900)
WORDS = "in a model's words"
LATER = "2099-01-01T00:00:00.000+00:00"  # after any time to live of a cache
SECRET = "hunter2-0815"


@pytest.fixture(params=parameters("sqlite", soak=BACKENDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


class HeldBack(Provider):
    """A provider whose answer of a number comes when the test says so; the others at once."""

    def __init__(self, number: int = 1) -> None:
        super().__init__(self._answer)
        self.release, self.asked = asyncio.Event(), asyncio.Event()
        self._number = number

    async def _answer(self, request: ChatRequest, number: int) -> str:
        if number == self._number:
            self.asked.set()
            await self.release.wait()
        return good(request, number)


class Repeating(HeldBack):
    """A provider whose held answer repeats a text."""

    def __init__(self, words: str, number: int = 1) -> None:
        super().__init__(number)
        self._words = words

    async def _answer(self, request: ChatRequest, number: int) -> str:
        if number == self._number:
            self.asked.set()
            await self.release.wait()
        return f"## Work\n- Open: TASK with {self._words}\n- Next: STEP {number}"


async def until_asked(manager: Any, provider: HeldBack, messages: list[dict[str, Any]]) -> int:
    """Add messages until the held call is made; how many there are."""
    for number, message in enumerate(messages, 1):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(BUDGET)
            while manager.writer.is_running and not provider.asked.is_set():
                await asyncio.sleep(0.001)
        if provider.asked.is_set():
            return number
    raise AssertionError("the held call was not made")


# -- edits ----------------------------------------------------------------------------------------------------------


async def test_what_is_forgotten_is_not_sent_again_for_a_better_answer() -> None:
    asked = asyncio.Event()
    release = asyncio.Event()

    async def answer(request: ChatRequest, number: int) -> str:
        asked.set()
        await release.wait()
        return ""

    provider = Provider(answer)
    manager = summary_manager(provider)
    for message in SESSION:
        await manager.add_message(message)
        await manager.get_messages_for_request(BUDGET)
        await asyncio.sleep(0.001)
        if asked.is_set():
            break
    content = manager.snapshot()[2].message["content"][:60]
    assert content in provider.text(0)
    await manager.forget([manager.snapshot()[2].mark])
    release.set()
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
    provider = Repeating(SECRET)
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
    session_id, fork_id = place.session_id(), place.session_id("t")
    manager = summary_manager(provider, store=place.store(), session_id=session_id)
    added = await until_asked(manager, provider, SESSION)
    held = manager.records.valid()[:]
    other = place.store()
    await other.fork(session_id, fork_id)
    await other.close()
    again = Provider(good)
    fork = summary_manager(again, store=place.store(), session_id=fork_id)
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


class Stubborn(HeldBack):
    """A provider that does not end when it is cancelled."""

    async def _answer(self, request: ChatRequest, number: int) -> str:
        self.asked.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        return good(request, number)


async def test_a_provider_that_ignores_its_cancellation_delays_no_close_and_changes_nothing_later(place: Place) -> None:
    provider = Stubborn()
    manager = summary_manager(provider, store=place.store(), session_id=place.session_id())
    await until_asked(manager, provider, SESSION)
    stored = await manager.get_messages()
    async with asyncio.timeout(2):
        await manager.close()
    again = summary_manager(None, store=place.store(), session_id=place.session_id())
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
    manager = summary_manager(writer, store=place.store(), session_id=place.session_id(), cache_ttl=60)
    views = await drive(manager, SESSION[:45], waits=False)
    assert "<context_record>" in text(views[-1])
    writer.release.set()
    await wait_for_summaries(manager)
    await manager.add_message({"role": "user", "content": "Good morning.", "metadata": {"timestamp": LATER}})
    await manager.close()
    other = summary_manager(None, store=place.store(), session_id=place.session_id())
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


def in_loop(work_: Callable[[], Awaitable[Any]], *, end: str) -> Any:
    """Run something in a loop of its own, which is closed with or without cancelling what still runs."""
    if end == "run":
        return asyncio.run(_awaited(work_))
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work_())
    finally:
        loop.close()


async def _awaited(work_: Callable[[], Awaitable[Any]]) -> Any:
    return await work_()


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
@pytest.mark.parametrize("end", ["run", "close"])
def test_a_loop_that_ends_while_a_model_is_asked_ends_that_call_alone(end: str) -> None:
    """A host that runs each turn in a loop of its own."""
    made: list[Any] = []

    async def first() -> int:
        provider = HeldBack()
        made.append(summary_manager(provider))
        return await until_asked(made[0], provider, SESSION)

    added = in_loop(first, end=end)
    manager = made[0]
    other = Provider(good)
    manager.writer.providers = lambda: {"scripted": other}

    async def second() -> str:
        views = await drive(manager, SESSION[added:])
        await manager.close()
        return text(views[-1])

    assert WORDS in in_loop(second, end="run")
    assert other.requests


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
@pytest.mark.parametrize("end", ["run", "close"])
def test_a_session_is_closed_in_another_loop_than_the_one_that_asked(end: str, tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    made: list[Any] = []

    async def first() -> None:
        provider = HeldBack()
        made.append(summary_manager(provider, store=place.store()))
        await until_asked(made[0], provider, SESSION)

    in_loop(first, end=end)
    in_loop(lambda: made[0].close(), end="run")
    again = summary_manager(None, store=place.store())

    async def messages() -> int:
        found = len(await again.get_messages())
        await again.close()
        return found

    assert in_loop(messages, end="run") > 20


async def test_a_session_that_another_program_edited_between_its_turns_has_no_state_of_what_was_erased(
    place: Place,
) -> None:
    """A manager that is closed after each turn, and asked again."""
    session_id = place.session_id()
    manager = summary_manager(Provider(good), store=place.store(), session_id=session_id)
    await drive(manager, SESSION)
    assert manager.records.valid()
    await manager.close()
    other = ContextManager(load_config({"token_counter": "heuristic"}), session_id=session_id, store=place.store())
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
