"""Managers of the laws: each on its own, with a clock that gives one time; and what a provider counts."""

from typing import Any

from amplifier_context_core import ContextManager, Plugins, approx_token_counter, count_tokens, load_config
from amplifier_context_core.stores import Store, open_store
from amplifier_context_core.view import shared_cache
from tests.manager.measured import Counting

from .histories import Message

NOW = "2026-01-01T00:00:00.000+00:00"


def new_manager(
    store: Store | str | None = None, session_id: str = "s", *, kindred: bool = False, hooks: Any = None, **config: Any
) -> ContextManager:
    """Return a manager; unless `kindred`, it finds nothing that another session has made.

    Args:
        store: where it keeps its history, or the URL.
        session_id: of its session.
        kindred: it shares checkpoints with the sessions before it.
        hooks: that get its events.
        config: keys.
    """
    if not kindred:
        shared_cache.clear()
    settings = load_config({"token_counter": "heuristic", **config})
    opened = open_store(store, durability="none") if isinstance(store, str) else store
    parts: dict[str, Any] = {"session_id": session_id, "store": opened, "hooks": hooks}
    return ContextManager(settings, **parts, plugins=Plugins(), clock=lambda: NOW)


def tokens_of(*messages: Message) -> int:
    return count_tokens(list(messages), approx_token_counter)


def counting(percent: int = 100, limit: int = 10**9) -> Counting:
    """Return a provider's count of a request: so many percent of our own, of a limit in tokens."""
    return Counting(ratio=percent / 100, overhead=0, reserve=0, limit=limit)
