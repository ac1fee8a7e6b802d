"""What is peculiar to Redis: keys, erasing, clusters, errors, durability, and sessions of commit 37ba2a6."""

import asyncio
import contextlib
import gc
import inspect
import json
import logging
import subprocess
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from redis import exceptions

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.errors import OutcomeUnknown, SessionInUse, SessionLost, StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_servers.redis_server import driver as driver_module
from amplifier_context_servers.redis_server.client import RedisClient
from amplifier_context_servers.redis_server.store import RedisStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.refusals import refused
from tests.stores.servers import REDIS, PrivateRedis, with_parameters


@pytest.fixture
def client(prefix: str) -> Generator[Any]:
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
    store = RedisStore.from_url(own.url)
    yield store
    await store.close()


pytestmark = pytest.mark.redis


async def test_a_change_is_one_command_and_refused_where_it_is_more_than_that_takes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [entry(seq, "x" * 200) for seq in range(1, 20_001)]
    await store.append("s", many)
    assert await store.extent("s") == Extent(20_000, 20_000)
    assert_same(await store.read("s", -3), many[-3:])
    for limit, most, text in (("_MAX_ROWS", 3, "at most 3 messages and"), ("_MAX_BYTES", 99, "and 99 bytes in")):
        with monkeypatch.context() as patch:
            patch.setattr(driver_module, limit, most)
            await refused(store.append("t", entries(3, 6)), says=text)
    assert await store.extent("t") == Extent()


async def test_sessions_are_found_among_the_keys(store: Store, client: Any, prefix: str) -> None:
    ids = ["s", "{}%7D", "}:session", "a}:b"]
    for session_id in ids:
        await store.append(session_id, entries(1, 1))
    client.hset(f"{{{prefix}:s}}:other", "updated", 1)  # of another program
    client.set(f"{{{prefix}x:s}}:session", "of another prefix")
    assert sorted(info.session_id for info in await store.sessions()) == sorted(ids)
    other = RedisStore.from_url(with_parameters(REDIS, prefix=quote("[a]*?\\{%}^" + prefix)))  # it is no pattern
    await other.append("s", entries(1, 1))
    assert [info.session_id for info in await other.sessions()] == ["s"]
    await other.close()


async def test_nothing_is_left_of_deleted_sessions_and_leases_that_were_never_used_expire(
    store: Store, client: Any, prefix: str
) -> None:
    await store.append("s", entries(1, 6))
    await store.replace("s", 2, entries(7, 7))
    await store.save_checkpoint("s", 1, b"one")
    await store.delete("s")
    await store.open("unused")
    assert client.pttl(f"{{{prefix}:unused}}:session") > 0
    await store.close()
    assert list(client.scan_iter(f"*{prefix}*", count=5_000)) == []
    await store.append("written", entries(1, 1))
    assert [client.pttl(key) for key in client.scan_iter(f"{{{prefix}:written}}*", count=5_000)] == [-1]


def holds(folder: Path, secret: str) -> bool:
    """True if a file of a server holds a text."""
    while True:
        try:
            read = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        except FileNotFoundError:  # the server renamed one meanwhile: look again at all
            continue
        assert read
        return any(secret.encode() in content for content in read)


async def test_what_was_rewritten_is_in_no_key_nor_in_the_append_only_file() -> None:
    secret = "hunter2 is the password"
    with contextlib.closing(PrivateRedis()) as server:
        store = RedisStore.from_url(server.url)
        await store.append("s", [entry(1, secret), *entries(2, 3), entry(4, secret)])
        await store.replace("s", 3, [])
        await store.save_checkpoint("s", 2, secret.encode())
        assert holds(server.folder, secret)
        await store.rewrite("s", [entry(seq, "[forgotten]")._replace(redaction_trace="") for seq in (1, 4)])
        async with asyncio.timeout(60):
            while holds(server.folder, secret):
                await asyncio.sleep(0.02)
        assert len(await store.read("s")) == 3
        await store.close()


@pytest.mark.parametrize("on_conflict", ["error", "fork"])
async def test_a_session_that_was_evicted_is_an_error_that_says_so_or_goes_on_in_a_fork_of_what_memory_held(
    store: Store, client: Any, prefix: str, on_conflict: str
) -> None:
    config = load_config({"token_counter": "heuristic", "on_conflict": on_conflict})
    manager = ContextManager(config, session_id="s", store=store)
    await manager.add_message({"role": "user", "content": "question"})
    client.delete(f"{{{prefix}:s}}:session")
    if on_conflict == "error":
        with pytest.raises(SessionLost, match="gone from the store"):
            await manager.add_message({"role": "user", "content": "go on"})
        assert await store.sessions() == []
    else:
        await manager.add_message({"role": "user", "content": "go on"})
        (fork,) = [info.session_id for info in await store.sessions()]
        assert [one.message["content"] for one in await store.read(fork)] == ["question", "go on"]
    await manager.close()


async def test_a_key_that_another_program_wrote_to_is_left_alone(store: Store, client: Any, prefix: str) -> None:
    await store.append("s", entries(1, 3))
    await store.close()
    client.rename(f"{{{prefix}:s}}:session", f"{prefix}:kept")
    client.set(f"{{{prefix}:s}}:session", "mine")
    await refused(store.open("s"), says=r"another program wrote to a key.*rename or delete that key")
    client.rename(f"{prefix}:kept", f"{{{prefix}:s}}:session")
    assert await store.open("s") == Extent(3, 3)


async def test_sessions_are_spread_over_the_nodes_of_a_cluster() -> None:
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(contextlib.closing(PrivateRedis("--appendonly", "no", "--cluster-enabled", "yes")))
            for _ in range(3)
        ]
        nodes = [f"127.0.0.1:{server.port}" for server in servers]
        create = ["redis-cli", "--cluster", "create", *nodes, "--cluster-yes"]
        subprocess.run(create, check=True, timeout=60, stdout=subprocess.DEVNULL)
        async with asyncio.timeout(100):
            for server in servers:
                with redis.Redis(port=server.port) as client:
                    while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                        await asyncio.sleep(0.02)
        single = RedisStore.from_url(servers[0].url)
        await refused(work_on(single), says="MOVED")
        await single.close()
        store = RedisStore.from_url(f"{servers[0].url}?cluster=true&pool_size=3")
        await work_on(store)
        # The client looks for its nodes again when one is gone; the connections to the others are closed all the same.
        servers[1].stop()
        names = [f"at once {number}" for number in range(6)]  # two on each node
        made = await asyncio.gather(*(store.append(name, entries(9, 9)) for name in names), return_exceptions=True)
        assert any(isinstance(one, StoreError) for one in made)
        await store.close()
        del store, made
        gc.collect()  # a connection that was not closed is a warning, and so an error


async def work_on(store: Store) -> None:
    for session_id in ("s", "{a}", "}{", "a b"):
        await store.append(session_id, entries(1, 5))
        await store.replace(session_id, 3, entries(6, 7))
        await store.rewrite(session_id, [entry(1, "changed")])
        await store.save_checkpoint(session_id, 2, b"two")
        await store.fork(session_id, f"child of {session_id}")
        assert len(await store.find(session_id, [1, 2, 6])) == 3
        assert (await whole(store, f"child of {session_id}")).extent == Extent(5, 7)
        await store.release(session_id)
    await asyncio.gather(*(store.append(f"at once {number}", entries(1, 3)) for number in range(16)))
    assert len(await store.sessions()) == 24  # of all nodes, with fewer connections
    await store.delete("s")
    assert len(await store.sessions()) == 23


RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "sessions_of_37ba2a6.json").read_text())
FAR = 2**53  # milliseconds: a lease that does not expire


@pytest.fixture
def former(client: Any, prefix: str) -> Any:
    for name, (kind, value) in RECORDED.items():
        add = {"hash": lambda key, value: client.hset(key, mapping=value), "zset": client.zadd, "string": client.set}
        add["list"] = lambda key, value: client.rpush(key, *value)
        add[kind](name.replace("PREFIX", prefix), value)
    client.hset(f"{{{prefix}:leased}}:meta", "expires", FAR)
    return client


async def test_a_former_session_goes_on_without_its_damaged_rows_and_all_are_listed(
    store: Store, former: Any, prefix: str
) -> None:
    key = f"{{{prefix}:s}}:session"
    await store.append("s", entries(12, 13))
    assert "garbage" not in former.hvals(key)
    await store.replace("s", 6, entries(14, 14))
    assert [one.seq for one in await store.read("s")] == [1, 3, 4, 5, 9, 10, 14]
    assert [one.seq for one in await store.archived("s")] == [6, 7, 8, 11, 12, 13]
    former.hset(f"{{{prefix}:leased}}:meta", "expires", 1)
    listed = sorted((one.session_id, one.length) for one in await store.sessions())
    assert listed == [("child", 4), ("empty", 0), ("leased", 1), ("s", 7)]
    await store.delete("child")
    assert former.keys(f"{{{prefix}:child}}:*") == []
    assert "child" not in former.zrange(f"{prefix}:sessions", 0, -1)


async def test_what_cannot_be_carried_over_is_refused_and_what_was_lost_before_is_logged(
    store: Store, former: Any, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    for call in (store.open("leased"), store.read("leased"), store.append("leased", entries(2, 2))):
        with pytest.raises(SessionInUse, match="pid 1 on recorder, with an earlier version"):
            await call
    former.delete(f"{{{prefix}:s}}:entries")
    length = former.hget(f"{{{prefix}:s}}:meta", "length")
    former.hdel(f"{{{prefix}:s}}:meta", "length")  # of a layout before that
    await refused(store.open("s"), says="commit 37ba2a6")
    former.hset(f"{{{prefix}:s}}:meta", "length", length)
    assert await store.open("s") == Extent(0, 11)
    assert "7 of 7 messages are gone" in caplog.text


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
    # It did not come to the disk in time: not acknowledged, though it is there.
    synced = [0, 0]
    await refused(store.append("s", entries(3, 3)), says="did not confirm in 7 s", error=OutcomeUnknown)
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


async def test_what_keeps_a_server_from_writing_is_reported_and_the_session_goes_on_afterwards(
    own: PrivateRedis, there: Store
) -> None:
    await there.append("s", entries(1, 3))
    before = await whole(there)
    with redis.Redis(port=own.port) as client:
        for setting, text in (("CONFIG SET maxmemory 1mb", "memory left"), ("REPLICAOF 127.0.0.1 1", "of the master")):
            client.execute_command(setting)
            await refused(there.append("s", entries(4, 5)), says=text)
            client.config_set("maxmemory", "0")
            assert not (await whole(there)).differs(before)
        client.execute_command("REPLICAOF", "NO", "ONE")
        await there.append("s", entries(4, 5))
        assert_same(await there.read("s"), entries(1, 5))
        await there.close()
        client.config_set("requirepass", "open sesame")
    await refused(there.read("s"), says=r"Authentication required\).*password in the URL")


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
