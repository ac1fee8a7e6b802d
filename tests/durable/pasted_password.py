"""A session in which a person pasted a password, and all that is kept of it."""

from __future__ import annotations

import json
from typing import Any

from amplifier_context_core import ContextManager
from tests.durable.host import Host
from tests.durable.sessions import manager_on
from tests.managers import ask, feed
from tests.messages import Message, rounds, says, system, user
from tests.places import Place

SECRET = "my password is hunter2-topsecret"


async def pasted(place: Place, host: Host | None = None, name: str = "s") -> ContextManager:
    """A session in which a password was pasted; the mark of that message is m2."""
    manager = manager_on(place.store(), place.session_id(name))
    talk = [system("Be brief."), user(SECRET), says("I will keep it.", metadata=None), user("go on"), *rounds(3)]
    await ask(await feed(manager, [*talk, says("done")]))
    if host:
        await host.save(manager)
        await host.save(manager)
    return manager


async def everything(manager: ContextManager) -> str:
    """All that the session and its store say, as text."""
    store, name = manager.store, manager.history.session_id
    entries = [*await store.read(name), *await store.archived(name)]
    parts: list[Any] = [await manager.get_messages(), await ask(manager), [entry.message for entry in entries]]
    return json.dumps(parts) + (await store.load_checkpoint(name) or b"").decode()


def stripped(message: Message) -> Message:
    return {key: value for key, value in message.items() if key not in ("metadata", "timestamp")}
