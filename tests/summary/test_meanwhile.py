"""What happens while a model is asked: edits, forks, other providers, other loops, and the end of the session."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amplifier_context_testing import checked
from tests.messages import text
from tests.places import Place
from tests.summary.scripted import (
    BUDGET,
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
    assert manager.compactor.directions.focus is None
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
    gc.collect()  # what a closed loop left in flight is dropped without a complaint
    manager.writer.providers = lambda: {"scripted": other}
    views = in_loop(lambda: drive(manager, SESSION[added:]), end=end)
    assert WORDS in text(views[-1])
    assert other.requests
    in_loop(manager.close, end=end)
