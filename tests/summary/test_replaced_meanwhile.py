"""The history is cleared, edited, erased or replaced while a model is asked: nothing of the old one rises again.

Each way in which it changes meets an answer that comes at once, and one that comes only after a new conversation has
begun. Then the session is compacted again, saved and opened by another manager.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from amplifier_context_testing import check_request
from tests.messages import rounds, text, work
from tests.places import Place
from tests.summary.scripted import BUDGET, HeldBack, Provider, drive, opened, until_asked, wait_for_summaries

pytestmark = pytest.mark.kernel
OLD = work(60, task="Do the old work.", output=900)
NEW = work(1, task="Do the new work.")[:1] + rounds(40, start=500, output=900)
IS_OLD = re.compile(r"\bfile_?\s?\d{1,2}\b|old work")
CHANGES = ("cleared", "emptied", "replaced", "erased", "taken back")


async def changed(manager: Any, change: str) -> list[dict[str, Any]]:
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


def shows_old(view: list[dict[str, Any]]) -> bool:
    assert check_request(view) == [] or not view, "the history may be empty"
    return IS_OLD.search(text(view)) is not None


async def assert_only_new(manager: Any, provider: Provider, asked: int, place: Place) -> None:
    """Nothing of the old conversation is shown, kept, saved or sent, in this process or the next."""
    for number in range(asked, len(provider.requests)):
        assert not IS_OLD.search(str(provider.requests[number].messages[1:])), "the old history is asked about"
    assert not shows_old(await manager.get_messages_for_request(BUDGET))
    await manager.close()
    assert not IS_OLD.search((await manager.store.load_checkpoint(manager.session_id) or b"").decode())
    again = opened(place, None)
    assert not shows_old(await again.get_messages_for_request(BUDGET))
    assert not IS_OLD.search(str(again.state(0)))
    await again.close()


@pytest.mark.parametrize(("held", "is_late"), [(1, True), (2, False)], ids=["after new messages", "at once"])
@pytest.mark.parametrize("change", CHANGES)
async def test_an_answer_about_a_history_that_is_gone_brings_nothing_of_it_back(
    change: str, held: int, is_late: bool, place: Place
) -> None:
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


@pytest.mark.parametrize("change", CHANGES[:3])
async def test_a_compaction_that_waits_for_the_answer_leaves_no_chapter_of_what_is_gone(
    change: str, place: Place
) -> None:
    provider = HeldBack()
    manager = opened(place, provider)
    for message in OLD[:25]:
        await manager.add_message(message)
    compacting = asyncio.create_task(manager.compact())
    await provider.asked.wait()
    messages = await changed(manager, change)
    provider.release.set()
    await compacting  # it may have been made of the old history before that was gone
    assert not IS_OLD.search(str(await manager.chapters()))
    assert not shows_old(await manager.get_messages_for_request(BUDGET))
    await drive(manager, messages)
    await assert_only_new(manager, provider, 1, place)


async def test_a_request_that_waits_for_the_answer_leaves_no_view_of_what_is_gone(place: Place) -> None:
    provider = HeldBack()
    manager = opened(place, provider, summary_background=False)
    request = None
    for message in OLD:
        await manager.add_message(message)
        request = asyncio.create_task(manager.get_messages_for_request(BUDGET))
        while not request.done() and not provider.asked.is_set():
            await asyncio.sleep(0.001)
        if provider.asked.is_set():
            break
    await manager.clear()
    provider.release.set()
    assert request is not None
    await request  # it may have been answered before the old history was gone
    assert not shows_old(await manager.get_messages_for_request(BUDGET))
    await drive(manager, NEW)
    await assert_only_new(manager, provider, 1, place)


async def test_a_conversation_that_goes_back_and_on_another_way_has_no_state_of_the_way_that_it_left(
    place: Place,
) -> None:
    """As many messages as before, of which the newer ones are others: an undo of turns by the host."""
    provider = HeldBack()
    manager = opened(place, provider)
    added = await until_asked(manager, provider, OLD)
    await manager.set_messages((await manager.get_messages())[:3])
    for message in rounds((added - 3) // 2, start=500, output=900):
        await manager.add_message(message)
    provider.release.set()
    await wait_for_summaries(manager)
    assert (await manager.explain())["summary"]["reason"] == "the history was edited meanwhile"
    assert not re.search(r"SAW file [1-9]\d?:", str(manager.state(0)))
    await drive(manager, rounds(30, start=600, output=900))
    shown = [await manager.get_messages_for_request(BUDGET), [one.messages[1] for one in provider.requests[1:]]]
    assert not re.search(r"file [1-9]\d?:", str(shown))
    await manager.close()
