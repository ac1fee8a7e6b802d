"""Places where histories are kept: each backend, with servers at hand, as tests that run on all of them need it."""

import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from amplifier_context_core.stores import Durability, MemoryStore, Store, open_store

BACKENDS = ("memory", "jsonl", "sqlite", "postgresql", "redis")
KEPT = BACKENDS[1:]  # that outlive a process
_CHOSEN = os.environ.get("AMPLIFIER_TEST_STORES")
ALL = _CHOSEN == "all"  # `make soak`: each store, each case
ONLY_MEMORY = _CHOSEN == "memory"  # `make check`
SERVERS = {
    "postgresql": ("AMPLIFIER_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test"),
    "redis": ("AMPLIFIER_TEST_REDIS", "redis://127.0.0.1:6379/15"),
}
PARAMETERS = {"postgresql": "schema", "redis": "prefix"}  # of a URL: what separates the data of one test process
MARKS = {"postgresql": pytest.mark.postgres, "redis": pytest.mark.redis}


OURS = f"amplifier_tests_{os.getpid()}"  # schema, or prefix of keys: each test process has its own
_used: set[str] = set()


def clean_up() -> None:
    """Take what the tests of this process left on servers away. `make check` needs no client, and imports none."""
    if "postgresql" in _used:
        import psycopg
        from psycopg import sql

        with psycopg.connect(server("postgresql"), autocommit=True) as connection:
            connection.execute("SET lock_timeout = '60s'")  # an error, not a hang, if a test left a transaction open
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(OURS)))
    if "redis" in _used:
        import redis

        with redis.Redis.from_url(server("redis")) as client:
            for key in client.scan_iter(f"*{OURS}*", count=1_000):
                client.unlink(key)


def marked_backends() -> list[tuple[str, tuple[pytest.MarkDecorator, ...]]]:
    """The backends, those with servers with their marks."""
    return [(name, (MARKS[name],) if name in MARKS else ()) for name in BACKENDS]


def parameters(*names: str, soak: Sequence[str] = ()) -> list[Any]:
    """The backends of these names for `parametrize`, in a soak those of `soak` too; all of them without a name."""
    wanted = {*(names or BACKENDS), *(soak if ALL else ())}
    return [pytest.param(name, marks=marks) for name, marks in marked_backends() if name in wanted]


def wanted(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """The backends a test is to run on: those its nearest mark `stores` names; all without one, and in a soak.

    With ``only=True`` no other has what the test is about.
    """
    mark = metafunc.definition.get_closest_marker("stores")
    return BACKENDS if mark is None or (ALL and not mark.kwargs.get("only")) else mark.args


@dataclass
class Place:
    """One backend's data; every store of it sees the same.

    Attributes:
        backend: one of BACKENDS.
        folder: for those that need one.
        durability: of its stores. Tests that do not pull the plug need none.
    """

    backend: str
    folder: Path
    durability: Durability = "none"
    _memory: MemoryStore = field(default_factory=MemoryStore)
    _name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:12]}")

    def session_id(self, name: str = "s") -> str:
        """A session id that no other test has: all of a run share what a server keeps."""
        return f"{name}-{self._name}" if self.backend in SERVERS else name

    def url(self) -> str:
        """Where its stores are found."""
        if self.backend == "memory":
            return "memory:"
        if self.backend == "jsonl":
            return f"jsonl:{self.folder / 'sessions'}"
        if self.backend == "sqlite":
            return f"sqlite:{self.folder / 'sessions.db'}"
        url = server(self.backend)
        _used.add(self.backend)
        joint = "&" if "?" in url else "?"
        return f"{url}{joint}{PARAMETERS[self.backend]}={OURS}"

    def store(self) -> Store:
        """A store of its own, as another process would open it."""
        if self.backend == "memory":
            return self._memory
        return open_store(self.url(), durability=self.durability)


def server(backend: str) -> str:
    """URL of a server; a test without it is skipped, which fails in CI."""
    variable, default = SERVERS[backend]
    url = os.environ.get(variable) or default
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 0), timeout=2).close()
    except OSError as problem:
        pytest.skip(f"no {backend} server at {parts.hostname}:{parts.port} ({problem}); {variable} names another one")
    return url
