"""Compactions are saved before their handlers run; nothing older comes back to a session that another manager had."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from amplifier_context_core import ContextManager, StoreError
from amplifier_context_core.items import ContextItem
from amplifier_context_core.view.session_state import load
from tests.durable.sessions import SECRET, manager_on
from tests.manager.measured import Counting, measure
from tests.managers import feed
from tests.messages import call, result, text, user, work
from tests.places import BACKENDS, Place

pytestmark = pytest.mark.stores("jsonl")  # and SQLite with a model: what differs by store is the contract's


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
