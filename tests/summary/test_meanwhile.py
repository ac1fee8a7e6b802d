"""What happens while a model is asked: edits, the end of the session or of its loop, and a history that is replaced."""

import asyncio
import gc
import re
from typing import Any

import pytest

from tests.messages import rounds, text, work
from tests.places import Place
from tests.summary.scripted import (
    SESSION,
    WORDS,
    HeldBack,
    Message,
    Provider,
    drive,
    good,
    opened,
    summary_manager,
    until_asked,
    view_of,
    wait_for_summaries,
)

pytestmark = pytest.mark.kernel
SECRET = "hunter2-0815"


async def test_what_is_forgotten_is_not_sent_again_for_a_better_answer() -> None:
    provider = HeldBack(answer="")
    manager = summary_manager(provider)
    await until_asked(manager, provider, SESSION)
    await manager.forget([manager.snapshot()[2].mark])
    provider.release.set()
    await wait_for_summaries(manager)
    assert len(provider.requests) == 1
    assert (await manager.explain())["summary"]["reason"] == "the history was edited meanwhile"


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
    assert SECRET not in text(await view_of(manager))
    assert manager.compactor.directions.focus is None


async def test_undo_while_a_summary_is_on_its_way_drops_the_state_that_it_continues() -> None:
    provider = HeldBack(2)
    manager = summary_manager(provider)
    await until_asked(manager, provider, SESSION)
    assert manager.records.valid()
    assert (await manager.undo())["undone"]
    provider.release.set()
    await wait_for_summaries(manager)
    assert manager.records.valid() == []
    await view_of(manager)


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
        request = asyncio.create_task(view_of(manager))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(manager.close())
        await asyncio.sleep(0.05)
    await asyncio.wait({request, closing})
    await asyncio.sleep(0.05)
    assert not provider.requests
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("amplifier-context-summary")]


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_loop_that_ends_while_a_model_is_asked_ends_that_call_alone(is_cancelled: bool, place: Place) -> None:
    """A host that runs each turn in a loop of its own."""
    provider, other, loop = HeldBack(), Provider(good), asyncio.new_event_loop()
    manager = opened(place, provider)
    added = loop.run_until_complete(until_asked(manager, provider, SESSION))
    if is_cancelled:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    gc.collect()  # what a closed loop left in flight is dropped without a complaint
    manager.writer.providers = lambda: {"scripted": other}
    assert WORDS in text(asyncio.run(drive(manager, SESSION[added:]))[-1])
    asyncio.run(manager.close())


async def test_a_call_that_fails_as_its_task_is_cancelled_leaves_no_complaint_of_the_loop() -> None:
    def fails(request: Any, number: int) -> str:
        for task in asyncio.all_tasks():
            if task.get_name() == "amplifier-context-summary":
                task.cancel()
        raise ConnectionError

    complaints: list[Message] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    provider = Provider(fails)
    await drive(summary_manager(provider), SESSION)
    gc.collect()
    assert provider.requests
    assert complaints == []


OLD = work(60, task="Do the old work.", output=900)
NEW = work(1, task="Do the new work.")[:1] + rounds(40, start=500, output=900)
IS_OLD = re.compile(r"\bfile_?\s?\d{1,2}\b|old work")


def shows_old(shown: object) -> bool:
    return IS_OLD.search(str(shown)) is not None


async def changed(manager: Any, change: str) -> list[Message]:
    """Change the history; return what is added then, to make the new conversation whole."""
    if change == "erased":
        assert await manager.forget([entry.mark for entry in manager.snapshot()])
    if change == "taken back":
        await manager.undo()
    if change in ("cleared", "taken back"):
        await manager.clear()
    else:
        await manager.set_messages(NEW[:3] if change == "replaced" else [])
    return NEW[3:] if change == "replaced" else NEW


async def assert_only_new(manager: Any, provider: Provider, asked: int, place: Place) -> None:
    """Nothing of the old conversation is asked about, shown, kept or saved, in this process or the next."""
    assert not shows_old([request.messages[1:] for request in provider.requests[asked:]])
    assert not shows_old(await view_of(manager))
    await manager.close()
    assert not shows_old(await manager.store.load_checkpoint(manager.session_id))
    again = opened(place, None)
    assert not shows_old((await view_of(again), again.state(0)))
    await again.close()


@pytest.mark.parametrize(("held", "is_late"), [(1, True), (2, False)], ids=["after new messages", "at once"])
@pytest.mark.parametrize("change", ["cleared", "emptied", "replaced", "erased", "taken back"])
async def test_an_answer_brings_nothing_back_that_is_gone(change: str, held: int, is_late: bool, place: Place) -> None:
    provider = HeldBack(held, ignores_cancelling=is_late)
    manager = opened(place, provider)
    await until_asked(manager, provider, OLD)
    messages = await changed(manager, change)
    views = await drive(manager, messages[:20], waits=False) if is_late else []
    provider.release.set()
    await wait_for_summaries(manager)
    views += await drive(manager, messages[20 if is_late else 0 :])
    assert not any(map(shows_old, views))
    assert manager.compactor.compactions >= 2
    await assert_only_new(manager, provider, held, place)


@pytest.mark.parametrize(
    ("waiting", "change"),
    [("compaction", "cleared"), ("compaction", "replaced"), ("compaction", "erased"), ("request", "cleared")],
)
async def test_what_waits_for_the_answer_leaves_nothing_of_what_is_gone(
    waiting: str, change: str, place: Place
) -> None:
    provider = HeldBack()
    manager = opened(place, provider, summary_background=waiting == "compaction")
    asking: list[asyncio.Task[Any]] = []
    for message in OLD:
        await manager.add_message(message)
        if waiting == "request":
            asking.append(asyncio.create_task(view_of(manager)))
        elif len(manager.snapshot()) == 25:
            asking.append(asyncio.create_task(manager.compact()))
        while not provider.asked.is_set() and not all(task.done() for task in asking):
            await asyncio.sleep(0.001)
        if provider.asked.is_set():
            break
    messages = await changed(manager, change)
    provider.release.set()
    await asking[-1]  # it may have been made of the old history before that was gone
    assert not shows_old((await manager.chapters(), await view_of(manager)))
    await drive(manager, messages)
    await assert_only_new(manager, provider, 1, place)
