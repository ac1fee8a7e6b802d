"""The history is cleared, edited, erased or replaced while a model is asked: nothing of the old one rises again.

Each way in which it changes meets an answer that comes at once, and one that comes only after a new conversation has
begun. Then the session is compacted again, saved and opened by another manager.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import checked
from tests.messages import rounds, text, work
from tests.places import BACKENDS, Place, parameters
from tests.summary.scripted import BUDGET, Provider, drive, summary_manager, wait_for_summaries
from tests.summary.test_meanwhile import HeldBack, Stubborn, until_asked

pytestmark = pytest.mark.kernel
OLD = work(60, task="Do the old work.", output=900)
NEW = work(1, task="Do the new work.")[:1] + rounds(40, start=500, output=900)
IS_OLD = re.compile(r"\bfile_?\s?\d{1,2}\b|old work")
Change = Callable[[Any], Awaitable[Any]]


async def cleared(manager: Any) -> None:
    await manager.clear()


async def emptied(manager: Any) -> None:
    await manager.set_messages([])


async def replaced(manager: Any) -> None:
    await manager.set_messages(NEW[:3])


async def erased(manager: Any) -> None:
    assert await manager.forget([entry.mark for entry in manager.snapshot()])
    await manager.set_messages([])


async def erased_and_cleared(manager: Any) -> None:
    await manager.forget(containing="file ")
    await manager.clear()


async def taken_back_and_cleared(manager: Any) -> None:
    await manager.undo()
    await manager.clear()


CHANGES: list[Change] = [cleared, emptied, replaced, erased, erased_and_cleared, taken_back_and_cleared]


@pytest.fixture(params=parameters("sqlite", soak=BACKENDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def new(manager: Any, change: Change) -> list[dict[str, Any]]:
    """What is added after a change, to make the new conversation whole."""
    return NEW[3:] if change is replaced else NEW


async def assert_only_new(manager: Any, provider: Provider, asked: int, place: Place) -> None:
    """Nothing of the old conversation is shown, kept, saved or sent, in this process or the next."""
    for number in range(asked, len(provider.requests)):
        assert not IS_OLD.search(str(provider.requests[number].messages[1:])), "the old history is asked about"
    view = await manager.get_messages_for_request(BUDGET)
    assert not IS_OLD.search(text(checked(view)))
    await manager.close()
    saved = await manager.store.load_checkpoint(manager.session_id)
    assert not IS_OLD.search((saved or b"").decode())
    again = summary_manager(None, store=place.store(), session_id=place.session_id())
    assert not IS_OLD.search(text(await again.get_messages_for_request(BUDGET)))
    assert not IS_OLD.search(str(again.state(0)))
    await again.close()


@pytest.mark.parametrize(("held", "is_late"), [(1, True), (2, False)], ids=["after new messages", "at once"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_an_answer_about_a_history_that_is_gone_brings_nothing_of_it_back(
    change: Change, held: int, is_late: bool, place: Place
) -> None:
    provider = HeldBack(held)
    manager = summary_manager(provider, store=place.store(), session_id=place.session_id())
    await until_asked(manager, provider, OLD)
    await change(manager)
    messages = new(manager, change)
    views = await drive(manager, messages[:20], waits=False) if is_late else []
    provider.release.set()
    await wait_for_summaries(manager)
    views += await drive(manager, messages[20 if is_late else 0 :])
    assert not any(IS_OLD.search(text(checked(view))) for view in views)
    assert manager.compactor.compactions >= 2
    await assert_only_new(manager, provider, held, place)


async def test_a_provider_that_ignores_its_cancellation_answers_a_cleared_session_with_nothing(place: Place) -> None:
    provider = Stubborn()
    manager = summary_manager(provider, store=place.store(), session_id=place.session_id())
    await until_asked(manager, provider, OLD)
    await manager.clear()
    assert not manager.writer.is_running
    await drive(manager, NEW[:9])
    provider.release.set()
    await asyncio.sleep(0.01)
    await drive(manager, NEW[9:])
    await assert_only_new(manager, provider, 1, place)


@pytest.mark.parametrize("change", [cleared, emptied, replaced], ids=lambda change: change.__name__)
async def test_a_compaction_that_waits_for_the_answer_leaves_no_chapter_of_what_is_gone(
    change: Change, place: Place
) -> None:
    provider = HeldBack()
    manager = summary_manager(provider, store=place.store(), session_id=place.session_id())
    for message in OLD[:25]:
        await manager.add_message(message)
    compacting = asyncio.create_task(manager.compact())
    await provider.asked.wait()
    await change(manager)
    provider.release.set()
    await compacting  # it may have been made of the old history before that was gone
    assert not IS_OLD.search(str(await manager.chapters()))
    assert not IS_OLD.search(text(await manager.get_messages_for_request(BUDGET)))
    await drive(manager, new(manager, change))
    await assert_only_new(manager, provider, 1, place)


async def test_a_request_that_waits_for_the_answer_leaves_no_view_of_what_is_gone(place: Place) -> None:
    provider = HeldBack()
    manager = summary_manager(provider, store=place.store(), session_id=place.session_id(), summary_background=False)
    request = None
    for message in OLD:
        await manager.add_message(message)
        request = asyncio.create_task(manager.get_messages_for_request(BUDGET))
        while not request.done() and not provider.asked.is_set():
            await asyncio.sleep(0.001)
        if provider.asked.is_set():
            break
    assert request is not None
    await manager.clear()
    await manager.add_message(NEW[0])
    provider.release.set()
    await request  # it may have been answered before the old history was gone
    assert not IS_OLD.search(text(await manager.get_messages_for_request(BUDGET)))
    await drive(manager, NEW[1:])
    await assert_only_new(manager, provider, 1, place)


async def test_a_conversation_that_goes_back_and_on_another_way_has_no_state_of_the_way_that_it_left(
    place: Place,
) -> None:
    """As many messages as before, of which the newer ones are others: an undo of turns by the host."""
    provider = HeldBack()
    manager = summary_manager(provider, store=place.store(), session_id=place.session_id())
    added = await until_asked(manager, provider, OLD)
    kept = (await manager.get_messages())[:3]
    await manager.set_messages(kept)
    for message in rounds((added - 3) // 2, start=500, output=900):
        await manager.add_message(message)
    provider.release.set()
    await wait_for_summaries(manager)
    assert (await manager.explain())["summary"]["reason"] == "the history was edited meanwhile"
    assert not re.search(r"SAW file [1-9]\d?:", str(manager.state(0)))
    await drive(manager, rounds(30, start=600, output=900))
    view = text(await manager.get_messages_for_request(BUDGET))
    assert not re.search(r"file [1-9]\d?:", view)
    assert not re.search(r"file [1-9]\d?:", str([one.messages[1] for one in provider.requests[1:]]))
    await manager.close()
