"""A manager that is closed, and used again after another one had its session: nothing older comes back."""

from __future__ import annotations

import asyncio
from typing import Any

from amplifier_context_core import load_config
from tests.authors import make_manager
from tests.durable.sessions import BUDGET, manager_on, user
from tests.managers import feed
from tests.messages import work
from tests.places import Place

SECRET = "hunter2-topsecret"


class Waiting:
    """Handlers of events, of which the one before a compaction waits for the test."""

    def __init__(self) -> None:
        self.asked, self.release = asyncio.Event(), asyncio.Event()

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        if event == "context:pre_compact":
            self.asked.set()
            await self.release.wait()


async def test_a_compaction_that_ends_after_the_close_does_not_open_the_store_again(place: Place) -> None:
    hooks = Waiting()
    settings = load_config({"token_counter": "heuristic", "max_tokens": BUDGET})
    manager = make_manager(settings, session_id=place.session_id(), store=place.store(), hooks=hooks)
    await feed(manager, [user(SECRET), *work(80, output=900)])
    request = asyncio.create_task(manager.get_messages_for_request())
    await asyncio.wait_for(hooks.asked.wait(), 30)
    await manager.close()
    other = manager_on(place.store(), place.session_id())
    assert await other.forget(["m1"]) == ["m1"]
    await other.pin("m3")
    await other.close()
    saved = await other.store.load_checkpoint(other.session_id)
    hooks.release.set()
    await asyncio.wait_for(asyncio.wait({request}), 30)
    assert await other.store.load_checkpoint(other.session_id) == saved
    await other.close()
    await feed(manager_on(place.store(), place.session_id()), [user("next")])  # the session is not in use
