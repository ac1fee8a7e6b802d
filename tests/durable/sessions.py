"""Sessions of the tests of this folder: a manager on a store, messages, and the same session in another process."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from amplifier_context_core import ContextManager, Store, load_config
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import coding_session
from tests.authors import make_manager
from tests.durable.host import Host
from tests.managers import ask, feed
from tests.messages import Message, rounds, says, system, user
from tests.places import Place

BUDGET = 6_000


def manager_on(store: Store, session_id: str = "s", *, hooks: Any = None, **config: Any) -> ContextManager:
    """Return a manager; other keyword arguments are config keys."""
    settings = load_config({"token_counter": "heuristic", "max_tokens": BUDGET, **config})
    return make_manager(settings, session_id=session_id, store=store, hooks=hooks)


def turns(number: int) -> list[Message]:
    return [one for n in range(number) for one in (user(f"question {n} " * 30), says(f"a{n} " * 60))]


async def again(manager: ContextManager, place: Place, **config: Any) -> ContextManager:
    """Close a session and resume it as another process would, without the checkpoints that this one shares."""
    await manager.close()
    shared_cache.clear()
    return manager_on(place.store(), manager.session_id, **config)


@asynccontextmanager
async def opened(place: Place, name: str = "s", **config: Any) -> AsyncGenerator[ContextManager]:
    """A manager on this place's data; closed at the end, as a host ends a session."""
    manager = manager_on(place.store(), place.session_id(name), **config)
    try:
        yield manager
    finally:
        await manager.close()


async def compacted(manager: ContextManager, messages: int = 100, seed: int = 0) -> list[Message]:
    """A session long enough to be compacted, asked for views as a loop would; the newest view."""
    for message in coding_session(messages, seed):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request()
    assert manager.compactor.compactions > 2
    return await ask(manager)


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
