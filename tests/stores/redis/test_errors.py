"""Errors of Redis and of its client become ours; a server that may lose data is reported."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from redis import exceptions

from amplifier_context_core.errors import OutcomeUnknown, StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_servers.redis_server.client import RedisClient
from amplifier_context_servers.redis_server.store import RedisStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries
from tests.stores.servers import REDIS, PrivateRedis

pytestmark = pytest.mark.redis


async def warned(url: str, caplog: pytest.LogCaptureFixture, durability: Any = "fsync") -> str:
    """Return what a store of this URL logs, which is one warning at most."""
    caplog.clear()
    store = RedisStore.from_url(url, durability=durability)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            await store.append("s", entries(number + 1, number + 1))
        await store.delete("s")
        await store.close()
    assert len(caplog.records) <= 1
    return caplog.text


async def test_a_server_that_may_lose_what_was_acknowledged_is_reported(
    own: PrivateRedis, there: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis(port=own.port) as client:
        assert await there.sessions() == await there.read("s") == []
        assert caplog.text == "", "a reader loses nothing"
        assert "appendonly no" in await warned(own.url, caplog)
        assert not await warned(own.url, caplog, "none")
        assert not await warned(own.url, caplog, "flush")
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert "noeviction" in await warned(own.url, caplog, "none")
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendonly", "yes")
        text = await warned(own.url, caplog)
        assert "appendfsync everysec" in text or not text  # from 7.2 on, each change waits for the file
        client.config_set("appendfsync", "always")
        assert not await warned(own.url, caplog)
        client.execute_command("ACL", "SETUSER", "limited", "on", ">sesame", "~*", "&*", "+@all", "-config")
        text = await warned(f"redis://limited:sesame@127.0.0.1:{own.port}/0", caplog)
        assert "no CONFIG GET" in text or not text
        assert "sesame" not in text


async def test_a_server_that_can_be_asked_is_asked_for_each_change(
    own: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WAITAOF, of 7.2 and later: its replies are as that version gives them."""
    asked: list[Sequence[Any]] = []
    synced: Any = [1, 0]
    exchange = RedisClient._exchange  # pyright: ignore[reportPrivateUsage]
    known = {("INFO", "server"): {"redis_version": "7.2.4"}, ("CONFIG GET", "appendonly"): {"appendonly": "yes"}}

    async def exchanged(client: RedisClient, commands: Sequence[Any]) -> list[Any]:
        asked.extend(waits := [command for command in commands if command[0] == "WAITAOF"])
        sent = [command for command in commands if command not in waits]
        replies = [
            known.get(tuple(command), reply) for command, reply in zip(sent, await exchange(client, sent), strict=True)
        ]
        return [*replies, *[synced] * len(waits)]

    monkeypatch.setattr(RedisClient, "_exchange", exchanged)
    store = RedisStore.from_url(f"{own.url}?socket_timeout=7")
    await store.append("s", entries(1, 2))
    assert set(asked) == {("WAITAOF", 1, 0, 7000)}
    asked.clear()
    await asyncio.gather(*(store.append(f"s{number}", entries(1, 1)) for number in range(8)))
    assert 2 <= len(asked) <= 8
    # It did not come to the disk in time: not acknowledged, though it is there.
    synced = [0, 0]
    with pytest.raises(OutcomeUnknown, match="did not confirm in 7 s"):
        await store.append("s", entries(3, 3))
    synced = [1, 0]
    assert_same(await store.read("s"), entries(1, 3))
    # Its file was switched off: reported once, and not waited for again.
    synced = exceptions.ResponseError("WAITAOF cannot be used when appendonly is disabled")
    await store.append("s", entries(4, 4))
    count = len(asked)
    await store.append("s", entries(5, 5))
    assert len(asked) == count
    assert_same(await store.read("s"), entries(1, 5))
    await store.close()


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("127.0.0.1:{port}/99", r"DB index is out of range\); the server has no database of this number"),
        (":sesame@127.0.0.1:{port}/0", r"without any password configured\); .*leave it out of the URL"),
        ("no_user:sesame@127.0.0.1:{port}/0", r"\(WRONGPASS\); check user and password"),
        ("limited:open@127.0.0.1:{port}/1", r"\(NOPERM: select\); grant"),
        ("limited:open@127.0.0.1:{port}/0", r"\(NOPERM: eval\); grant"),
        ("127.0.0.1:{port}/0?cluster=true", r"Cluster mode is not enabled\); .*leave cluster=true out"),
    ],
)
async def test_an_error_about_the_url_is_quoted_with_what_to_do(own: PrivateRedis, at: str, text: str) -> None:
    with redis.Redis(port=own.port) as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">open", "~*", "+@all", "-select", "-eval")
    store = RedisStore.from_url(f"redis://{at.format(port=own.port)}")
    with pytest.raises(StoreError, match=text) as caught:
        await store.read("s")
    assert "is running" not in str(caught.value)
    assert "sesame" not in str(caught.value)
    await store.close()


async def test_what_keeps_a_server_from_writing_is_reported_and_the_session_goes_on_afterwards(
    own: PrivateRedis, there: Store
) -> None:
    await there.append("s", entries(1, 3))
    before = await whole(there)
    with redis.Redis(port=own.port) as client:
        for setting, text in (
            (("CONFIG", "SET", "maxmemory", "1mb"), "no memory left"),
            (("REPLICAOF", "127.0.0.1", "1"), "URL of the master"),
        ):
            client.execute_command(*setting)
            with pytest.raises(StoreError, match=text):
                await there.append("s", entries(4, 5))
            client.config_set("maxmemory", "0")
            assert not (await whole(there)).differs(before)
        client.execute_command("REPLICAOF", "NO", "ONE")
        await there.append("s", entries(4, 5))
        assert_same(await there.read("s"), entries(1, 5))
        await there.close()
        client.config_set("requirepass", "open sesame")
    for url, text in ((own.url, r"Authentication required\)"), (f"redis://:wrong@127.0.0.1:{own.port}/0", "")):
        store = RedisStore.from_url(url)
        with pytest.raises(StoreError, match=f"{text}.*password in the URL"):
            await store.read("s")
        await store.close()


async def test_a_key_that_another_program_wrote_to_is_left_alone(store: Store, client: Any, prefix: str) -> None:
    await store.append("s", entries(1, 3))
    await store.close()
    client.rename(f"{{{prefix}:s}}:session", "kept")
    client.set(f"{{{prefix}:s}}:session", "mine")
    with pytest.raises(StoreError, match=r"WRONGTYPE.*rename or delete that key"):
        await store.open("s")
    client.rename("kept", f"{{{prefix}:s}}:session")
    assert await store.open("s") == Extent(3, 3)


def test_every_error_of_the_driver_becomes_one_of_ours_and_quotes_no_data() -> None:
    client = RedisClient(RedisStore.from_url(REDIS)._key)
    kinds = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass) if issubclass(kind, Exception)]
    assert len(kinds) > 20
    for kind in kinds:
        problem = kind.__new__(kind)
        problem.args = ("ERR a secret",)
        for error in (client.refused(problem), client._unreachable(problem)):
            assert isinstance(error, StoreError)
            assert "secret" not in str(error)
