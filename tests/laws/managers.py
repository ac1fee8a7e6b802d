"""Managers of the laws: each on its own, with a clock that gives one time; and what holds of every view."""

from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_context_core import ContextManager, Plugins, approx_token_counter, count_tokens, load_config
from amplifier_context_core.stores import Store, open_store
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import checked

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


def is_spoken(view: list[Message]) -> bool:
    """True if there is anything in it but instructions. A history that has nothing to show has no valid view."""
    return any(message["role"] not in ("system", "developer") for message in view)


def valid(view: list[Message]) -> list[Message]:
    """Return a view that is valid for every provider, if it holds anything but instructions."""
    return checked(view) if is_spoken(view) else view


def tokens_of(*messages: Message) -> int:
    return count_tokens(list(messages), approx_token_counter)


def counting(percent: int = 100, limit: int = 10**9) -> Callable[[list[Message]], Awaitable[dict[str, Any]]]:
    """Return a provider's count of a request.

    Args:
        percent: of our own count.
        limit: tokens that the provider takes.
    """

    async def count(view: list[Message]) -> dict[str, Any]:
        tokens = tokens_of(*view) * percent // 100
        measurement = {"kind": "provider_count", "source": "test", "input_tokens": tokens}
        decision = {"estimated_input_tokens": tokens, "input_limit_tokens": limit, "measurement": measurement}
        return {"dispatch": object(), "budget_decision": decision}

    return count
