"""Open a store by its URL: ``memory:``, ``jsonl:PATH``, ``sqlite:PATH``, ``postgresql://…``, ``redis://…``."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Sequence
from importlib import import_module

from ..errors import ConfigError, install_command
from ..plugins import Plugins, installed_plugins
from .memory_store import MemoryStore
from .protocol import Durability, Store

log = logging.getLogger(__name__)

URLS = "jsonl:FOLDER, sqlite:FILE, postgresql://…, redis://…"  # of stores that outlive a process, for help texts

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*")  # RFC 3986, 3.1
_POINT = "amplifier_context_stores"
_FILES = {"jsonl": ("jsonl.store", "JsonlStore"), "sqlite": ("sqlite.store", "SqliteStore")}  # modules and classes
_SERVERS = {"postgresql": "postgresql", "postgres": "postgresql", "redis": "redis", "rediss": "redis"}
"""Schemes of the package amplifier-context-servers, and the extra of it that each needs."""


def open_store(
    url: str, plugins: Plugins | None = None, *, durability: Durability = "fsync", archive: bool = True
) -> Store:
    """Return the store at a URL. Opens no file and no connection.

    Args:
        url: a scheme, and what the store needs after it, e.g. ``sqlite:~/sessions.db``.
        plugins: where other schemes are found. What a plug-in's store does not take is named in the log.
        durability: what an acknowledged change has reached: the disk (``fsync``), the operating system (``flush``), or
            neither (``none``).
        archive: keep what edits and interrupts take out of a history.

    Raises:
        ConfigError: no store has this scheme, it cannot use the URL, or its package or driver is not installed.
        PluginError: the plug-in of this scheme failed.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):  # not quoted: it may hold a password
        example = "a store's URL begins with a scheme, like 'jsonl:FOLDER', 'sqlite:FILE' or 'memory:'"
        raise ConfigError("store", f"is not a URL; {example}")
    if scheme == "memory":
        if url != "memory:":
            raise ConfigError("store", "'memory:' takes nothing after it")
        return MemoryStore()
    if scheme in _FILES:
        module, name = _FILES[scheme]
        kind = getattr(import_module(f".{module}", __package__), name)
        return kind.from_url(url, durability=durability, archive=archive)
    known = ["memory", *_FILES, *_SERVERS]
    store = _offered(url, scheme, plugins or installed_plugins(), known, durability, archive)
    if not isinstance(store, Store):
        raise ConfigError("store", f"the object that a plug-in made for {scheme!r} is no store")
    return store


def _offered(
    url: str, scheme: str, plugins: Plugins, known: Sequence[str], durability: Durability, archive: bool
) -> object:
    """Return what a plug-in makes of a URL. Its maker gets `durability` and `archive` if it has such parameters."""
    offer = plugins.find(_POINT, scheme)
    if offer is None and scheme in _SERVERS:
        command = install_command(_SERVERS[scheme], "amplifier-context-servers")
        raise ConfigError(
            "store", f"needs a package that is not installed: {command} (in a clone: ./amplifier_context_servers)"
        )
    settings = {"durability": durability, "archive": archive}
    taken = settings.keys() & (inspect.signature(offer[1]).parameters if offer else {})
    store = plugins.make_offered(_POINT, scheme, "store", known, url=url, **{name: settings[name] for name in taken})
    asked = [key for key, is_asked in (("durability", durability != "fsync"), ("archive", not archive)) if is_asked]
    ignored = [key for key in asked if key not in taken]
    if ignored:
        log.warning(
            "store: %s ignored: the plug-in of %s: has no such parameter",
            " and ".join(ignored) + (" is" if len(ignored) == 1 else " are"),
            scheme,
        )
    return store
