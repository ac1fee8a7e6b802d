"""Sessions of the tests of this folder: a manager on a store, messages, and the same session in another process."""

from __future__ import annotations

from typing import Any

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import Store
from amplifier_context_core.view import shared_cache
from tests.places import Place

Message = dict[str, Any]


def manager_on(store: Store, session_id: str = "s", **config: Any) -> ContextManager:
    """Return a manager; keyword arguments are config keys."""
    settings = load_config({"token_counter": "heuristic", "max_tokens": 6_000, **config})
    return ContextManager(settings, session_id=session_id, store=store)


def user(text: str) -> Message:
    """Return a message of a person."""
    return {"role": "user", "content": text}


def call(name: str) -> Message:
    """Return a message with one tool call, of this id."""
    return {"role": "assistant", "content": None, "tool_calls": [{"id": name, "tool": "look", "arguments": {}}]}


def turns(number: int) -> list[Message]:
    """Return questions with an answer each."""
    return [
        m for n in range(number) for m in (user(f"question {n} " * 30), {"role": "assistant", "content": f"a{n} " * 60})
    ]


async def again(manager: ContextManager, place: Place, **config: Any) -> ContextManager:
    """Close a session and resume it as another process would, without the checkpoints that this one shares."""
    await manager.close()
    shared_cache.clear()
    return manager_on(place.store(), manager.session_id, **config)
