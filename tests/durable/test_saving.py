"""When the state of a session is saved: after a compaction, before its handlers, and again if the store refused it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.view.session_state import load
from tests.managers import feed
from tests.places import Place

from .sessions import manager_on, turns

pytestmark = pytest.mark.stores("memory", "sqlite")


async def compactions_saved(place: Place) -> int:
    """Return the compactions that a resumed session knows of."""
    store = place.store()
    data = await store.load_checkpoint(place.session_id())
    await store.close()
    state = load(data) if data else None
    return state.compactions if state else 0


class Hanging:
    """A handler that never returns from the report of a compaction."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        if event == "context:compaction":
            self.reached.set()
            await asyncio.Event().wait()


async def commit_measured(manager: ContextManager) -> None:
    async def count(view: list[dict[str, Any]]) -> Mapping[str, Any]:
        return {"dispatch": {"messages": view}}

    await (await manager.measured_request_view(count_view=count))["transaction"].commit()


WAYS: dict[str, Callable[[ContextManager], Coroutine[Any, Any, Any]]] = {
    "request": lambda manager: manager.get_messages_for_request(),
    "command": lambda manager: manager.compact(),
    "measured request": commit_measured,
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_compaction_is_saved_before_its_handlers_run(place: Place, way: str) -> None:
    hooks = Hanging()
    manager = await feed(manager_on(place.store(), place.session_id(), hooks=hooks), turns(60))
    request = asyncio.create_task(WAYS[way](manager))
    async with asyncio.timeout(30):
        await hooks.reached.wait()
    assert await compactions_saved(place) == 1
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await manager.store.close()


async def test_a_request_that_is_cancelled_while_its_compaction_is_saved_saves_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), turns(60))
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
