"""A store in Redis and its keys, or a server of the test's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

import pytest
import redis

from amplifier_context_servers.redis_server.store import RedisStore
from tests.stores.servers import REDIS, PrivateRedis


@pytest.fixture
def client(prefix: str) -> Generator[Any]:
    """A client that sees the keys."""
    with redis.Redis.from_url(REDIS, decode_responses=True) as client:
        yield client


@pytest.fixture(scope="module")
def backend() -> str:
    return "redis"


@pytest.fixture
def own() -> Generator[PrivateRedis]:
    """A server of this test's own, as it is installed: it keeps nothing."""
    with closing(PrivateRedis("--appendonly", "no")) as server:
        yield server


@pytest.fixture
async def there(own: PrivateRedis) -> Any:
    """A store on it."""
    store = RedisStore.from_url(own.url)
    yield store
    await store.close()
