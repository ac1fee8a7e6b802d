"""Where history is kept: a small protocol, and the reference that keeps it in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from .errors import ConfigError
from .plugins import Plugins, installed_plugins
from .transcript import Entry


@runtime_checkable
class Store(Protocol):
    """Keeps the histories of sessions.

    Every method raises `StoreError` when it cannot do what it was asked; then nothing of the call was done.
    """

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Add entries, all or none. Appending nothing is a no-op. Returns when they are as durable as it promises."""
        ...

    async def replace(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Make these entries the current history (after an edit, an interrupt or a clear)."""
        ...

    async def read(self, session_id: str) -> list[Entry]:
        """The current history in order; an unknown session has none."""
        ...

    async def close(self) -> None:
        """Give back what it holds open. Closing twice is a no-op."""
        ...


class MemoryStore:
    """Keeps histories for as long as the process lives: the reference for all stores."""

    def __init__(self) -> None:
        self._sessions: dict[str, list[Entry]] = {}

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        self._sessions.setdefault(session_id, []).extend(entries)

    async def replace(self, session_id: str, entries: Sequence[Entry]) -> None:
        self._sessions[session_id] = list(entries)

    async def read(self, session_id: str) -> list[Entry]:
        return list(self._sessions.get(session_id, ()))

    async def close(self) -> None:
        return None


def open_store(address: str, plugins: Plugins | None = None) -> Store:
    """The store at an address: ``memory:``, or a scheme that a plug-in brings. Opens no file and no connection.

    Raises:
        ConfigError: no store answers to that scheme.
        PluginError: the plug-in that does failed.
    """
    scheme, colon, _ = address.partition(":")
    if not colon:
        # Not quoted: what was meant for an address may hold a password.
        raise ConfigError("store", "is no address; an address begins with a scheme, like 'memory:'")
    builtin: Mapping[str, type[MemoryStore]] = {"memory": MemoryStore}
    if scheme in builtin:
        return builtin[scheme]()
    found = (plugins or installed_plugins()).make("amplifier_context_stores", scheme, "store", {}, address=address)
    if not isinstance(found, Store):
        raise ConfigError("store", f"what answers to {scheme!r} is no store")
    return found
