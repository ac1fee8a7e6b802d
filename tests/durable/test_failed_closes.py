"""A session whose close fails is free: another manager of the same process opens it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
from typing import Any

import pytest

from amplifier_context_core import StoreError, open_store
from amplifier_context_core.stores.sqlite.engine import SqliteEngine
from amplifier_context_servers.postgres_server.driver import PostgresDriver
from amplifier_context_servers.redis_server.driver import RedisDriver
from tests.durable.sessions import manager_on, user
from tests.managers import feed
from tests.places import KEPT, SERVERS, Place

LAST_STEP: dict[str, tuple[type, str, Exception]] = {
    "jsonl": (SqliteEngine, "disconnect", OSError(errno.EIO, os.strerror(errno.EIO))),
    "sqlite": (SqliteEngine, "disconnect", sqlite3.OperationalError("disk I/O error")),
    "postgresql": (PostgresDriver, "release", StoreError("refused; try again")),
    "redis": (RedisDriver, "release", StoreError("refused; try again")),
}
"""What a close of each store calls, and how that fails."""
EXPIRES = 0.5  # seconds: a lease that a server was not asked to release


@pytest.mark.stores(*KEPT)
async def test_a_session_whose_close_fails_is_free(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, problem = LAST_STEP[place.backend]
    refused: list[int] = []

    def refuse(*_: object) -> Any:
        refused.append(1)
        raise problem

    url = f"{place.url()}&lease_ttl={EXPIRES}" if place.backend in SERVERS else place.url()
    manager = await feed(manager_on(open_store(url), place.session_id()), [user("a")])
    with monkeypatch.context() as patched, contextlib.suppress(StoreError):
        patched.setattr(owner, name, refuse)
        await manager.close()
    assert refused
    await asyncio.sleep(3 * EXPIRES if place.backend in SERVERS else 0)
    other = await feed(manager_on(place.store(), place.session_id()), [user("b")])
    assert [message["content"] for message in await other.get_messages()] == ["a", "b"]
    await other.close()
    await manager.close()
