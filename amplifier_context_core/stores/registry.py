"""A store by its address: ``memory:``, ``jsonl:PATH``, ``sqlite:PATH``, ``postgresql://…``, ``redis://…``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module

from ..errors import ConfigError
from ..plugins import Plugins, installed_plugins
from .memory_store import MemoryStore
from .protocol import Durability, Store

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*")  # RFC 3986, 3.1
_DRIVE = re.compile(r"[a-zA-Z]:[/\\]")  # of a path on Windows
_DATABASES = (".db", ".db3", ".sqlite", ".sqlite3")  # how files of SQLite are named
_EXTRAS = {"psycopg": "postgresql", "psycopg_pool": "postgresql", "redis": "redis"}  # driver -> extra that brings it


def open_store(
    address: str, plugins: Plugins | None = None, *, durability: Durability = "fsync", archive: bool = True
) -> Store:
    """The store at an address. Opens no file and no connection.

    Args:
        address: a scheme and what the store makes of the rest, e.g. ``sqlite:~/sessions.db``.
        plugins: where other schemes are found; a plug-in's store is given the address only.
        durability: what acknowledged means: on disk (``fsync``), with the operating system (``flush``), or neither.
        archive: keep what edits and interrupts take out of a history.

    Raises:
        ConfigError: no store answers to that scheme, it cannot use the address, or its driver is not installed.
        PluginError: the plug-in that answers failed.
    """
    scheme, colon, _ = address.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme) or _DRIVE.match(address):
        raise ConfigError("store", _without_scheme(address))
    builtin = _builtin(address, durability, archive)
    if scheme in builtin:
        return builtin[scheme]()
    found = (plugins or installed_plugins()).make_offered(
        "amplifier_context_stores", scheme, "store", builtin, address=address
    )
    if not isinstance(found, Store):
        raise ConfigError("store", f"what answers to {scheme!r} is no store")
    return found


def _without_scheme(given: str) -> str:
    """Say what is wrong with a text without a scheme, and what may be meant.

    Only a path is quoted. What else is meant for an address may hold a password.
    """
    path = re.search(r"[/\\]|^[.~]|\.\w+$", given) and given.isprintable() and not re.search("@|^//|://", given)
    if not path and not (given and os.path.exists(given)):
        return "is no address; an address begins with a scheme, like 'jsonl:FOLDER', 'sqlite:FILE' or 'memory:'"
    scheme = "sqlite" if given.endswith(_DATABASES) else "jsonl"
    return f"{given!r} is no address; an address begins with a scheme: {scheme}:{given}"


def _builtin(address: str, durability: Durability, archive: bool) -> Mapping[str, Callable[[], Store]]:
    def of(module: str, name: str) -> Callable[[], Store]:
        def make() -> Store:
            try:
                kind = getattr(import_module(f".{module}", __package__), name)
            except ModuleNotFoundError as problem:
                extra = _EXTRAS.get((problem.name or "").partition(".")[0])
                if extra is None:
                    raise
                raise ConfigError(
                    "store", f"needs a driver that is not installed: pip install 'amplifier-context-core[{extra}]'"
                ) from None
            return kind.from_url(address, durability=durability, archive=archive)

        return make

    def memory() -> Store:
        if address != "memory:":
            raise ConfigError("store", "'memory:' takes nothing after it")
        return MemoryStore()

    postgres, redis = of("postgres.store", "PostgresStore"), of("redis.store", "RedisStore")
    return {
        "memory": memory,
        "jsonl": of("jsonl.store", "JsonlStore"),
        "sqlite": of("sqlite.store", "SqliteStore"),
        "postgresql": postgres,
        "postgres": postgres,
        "redis": redis,
        "rediss": redis,
    }
