"""What `forget` keeps: everything, where it selects nothing; else all of the session state that holds no word."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.session import forgetting
from amplifier_context_core.transcript.entry import Entry
from tests.durable.pasted_password import SECRET
from tests.durable.sessions import BUDGET, again, compacted, manager_on
from tests.managers import ask
from tests.messages import Message, digest
from tests.places import Place

pytestmark = pytest.mark.stores("jsonl")  # and SQLite with a model: what differs by store is the contract's

SMALL = 4_000  # tokens, of a request whose budget the config does not have


async def dwelling(place: Place) -> tuple[ContextManager, list[Message]]:
    """A compacted session with a focus; its view."""
    manager = manager_on(place.store(), place.session_id())
    await compacted(manager)
    await manager.compact("dwell on the paths")
    return manager, await ask(manager)


@pytest.mark.parametrize("containing", ["", "no message has this"])
async def test_forgetting_nothing_drops_nothing(place: Place, containing: str) -> None:
    manager, before = await dwelling(place)
    compactions = manager.compactor.compactions
    marks = [] if containing else ["m9999"]
    assert await manager.forget(marks, containing=containing) == []
    assert digest(await ask(manager)) == digest(before)
    assert (manager.compactor.focus, manager.compactor.compactions) == ("dwell on the paths", compactions)
    assert await manager.store.load_checkpoint(manager.session_id)
    manager = await again(manager, place)
    assert digest(await ask(manager)) == digest(before)
    assert manager.compactor.focus == "dwell on the paths"
    await manager.close()


async def test_a_text_that_only_the_focus_has_is_forgotten(place: Place) -> None:
    manager, _ = await dwelling(place)
    await manager.compact(f"dwell on {SECRET}")
    assert await manager.forget(containing=SECRET) == []
    assert manager.compactor.focus is None
    assert SECRET.encode() not in (await manager.store.load_checkpoint(manager.session_id) or b"")
    await manager.close()


async def test_forgetting_keeps_the_budgets_of_a_session(place: Place) -> None:
    manager, _ = await dwelling(place)
    await ask(manager, SMALL)
    await manager.pin("m3")
    learned = dict(manager.meter.corrections)
    assert await manager.forget(["m2"]) == ["m2"]
    assert (await manager.explain())["view"]["budget"] == SMALL
    assert manager.compactor.focus is None
    manager = await again(manager, place)
    await manager.load()
    saved = {one.served_budget for one in manager.compactor.cache.uncompacted(await manager.token_counter())}
    assert saved == {SMALL, BUDGET}
    assert (manager.compactor.pins, manager.meter.corrections) == ({3}, learned)
    assert "(erased)" in str(await manager.recall("m2"))
    await ask(manager, SMALL)
    await manager.close()


async def test_forget_names_the_messages_that_still_have_its_words(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id())
    texts = [SECRET, f"You said: {SECRET}", "yes", "yes"]
    for number, text in enumerate(texts):
        await manager.add_message({"role": "assistant" if number % 2 else "user", "content": text})
    erased = await manager.forget(["m1"])
    assert (erased, erased.also_in) == (["m1"], ("m2",))
    assert (await manager.forget(["m2"])).also_in == ()
    assert (await manager.forget(["m3"])).also_in == ()  # too short to look for
    await manager.close()


async def test_the_search_for_copies_does_not_outlast_its_caller(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(entries: Iterable[Entry], texts: Collection[str]) -> list[Entry]:
        begun.set()
        may_end.wait(30)
        return []

    monkeypatch.setattr(forgetting, "holding", slow)
    manager = manager_on(place.store(), place.session_id())
    await manager.add_message({"role": "user", "content": SECRET})
    call = asyncio.create_task(manager.forget(["m1"]))
    await asyncio.to_thread(begun.wait, 30)
    call.cancel()
    try:
        assert [one["content"] for one in await manager.get_messages()] == ["(erased)"]
        await asyncio.wait_for(manager.close(), 10)
    finally:
        may_end.set()
