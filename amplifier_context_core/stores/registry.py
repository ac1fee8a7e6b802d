"""Open a store by its URL: ``memory:``, ``jsonl:PATH``, ``sqlite:PATH``, ``postgresql://…``, ``redis://…``."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module

from ..errors import ConfigError, install_command
from ..plugins import Plugins, installed_plugins
from .memory_store import MemoryStore
from .protocol import Durability, Store

log = logging.getLogger(__name__)

URLS = "jsonl:FOLDER, sqlite:FILE, postgresql://…, redis://…"  # of stores that outlive a process, for help texts

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*")  # RFC 3986, 3.1
_DRIVE = re.compile(r"[a-zA-Z]:[/\\]")  # of a path on Windows
_DATABASES = (".db", ".db3", ".sqlite", ".sqlite3")  # usual suffixes of SQLite files
_EXTRAS = {"psycopg": "postgresql", "psycopg_pool": "postgresql", "redis": "redis"}  # by driver: the extra with it


def open_store(
    url: str, plugins: Plugins | None = None, *, durability: Durability = "fsync", archive: bool = True
) -> Store:
    """Return the store at a URL. Opens no file and no connection.

    Args:
        url: a scheme, and what the store needs after it, e.g. ``sqlite:~/sessions.db``.
        plugins: where other schemes are found. A plug-in's store gets only the URL; the log has a warning that names
            what else was asked for.
        durability: what an acknowledged change has reached: the disk (``fsync``), the operating system (``flush``), or
            neither (``none``).
        archive: keep what edits and interrupts take out of a history.

    Raises:
        ConfigError: no store has this scheme, it cannot use the URL, or its driver is not installed.
        PluginError: the plug-in of this scheme failed.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme) or _DRIVE.match(url):
        raise ConfigError("store", _without_scheme(url))
    builtin = _builtin(url, durability, archive)
    if scheme in builtin:
        return builtin[scheme]()
    store = (plugins or installed_plugins()).make_offered("amplifier_context_stores", scheme, "store", builtin, url=url)
    if not isinstance(store, Store):
        raise ConfigError("store", f"the object that a plug-in made for {scheme!r} is no store")
    asked = [key for key, is_asked in (("durability", durability != "fsync"), ("archive", not archive)) if is_asked]
    if asked:
        log.warning(
            "store: %s ignored: the store of %s: comes from a plug-in, which gets only the URL",
            " and ".join(asked) + (" is" if len(asked) == 1 else " are"),
            scheme,
        )
    return store


def _without_scheme(given: str) -> str:
    """Return what is wrong with a text without a scheme, and a URL that may be meant.

    Only a path is quoted: any other text may hold a password.
    """
    path = re.search(r"[/\\]|^[.~]|\.\w+$", given) and given.isprintable() and not re.search("@|^//|://", given)
    if not path and not (given and os.path.exists(given)):
        return "is not a URL; a store's URL begins with a scheme, like 'jsonl:FOLDER', 'sqlite:FILE' or 'memory:'"
    scheme = "sqlite" if given.endswith(_DATABASES) else "jsonl"
    return f"{given!r} is not a URL; a store's URL begins with a scheme: {scheme}:{given}"


def _builtin(url: str, durability: Durability, archive: bool) -> Mapping[str, Callable[[], Store]]:
    def maker(module: str, name: str) -> Callable[[], Store]:
        def make() -> Store:
            try:
                kind = getattr(import_module(f".{module}", __package__), name)
            except ModuleNotFoundError as problem:
                extra = _EXTRAS.get((problem.name or "").partition(".")[0])
                if extra is None:
                    raise
                raise ConfigError("store", f"needs a driver that is not installed: {install_command(extra)}") from None
            return kind.from_url(url, durability=durability, archive=archive)

        return make

    def memory() -> Store:
        if url != "memory:":
            raise ConfigError("store", "'memory:' takes nothing after it")
        return MemoryStore()

    postgres, redis = maker("postgres.store", "PostgresStore"), maker("redis.store", "RedisStore")
    return {
        "memory": memory,
        "jsonl": maker("jsonl.store", "JsonlStore"),
        "sqlite": maker("sqlite.store", "SqliteStore"),
        "postgresql": postgres,
        "postgres": postgres,
        "redis": redis,
        "rediss": redis,
    }
