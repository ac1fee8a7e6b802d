"""What is peculiar to Redis: scripts, the directory, hash tags, what it keeps, its errors, damage, lost keys, and
forgetting.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import subprocess
import time
from collections.abc import Generator
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from redis import crc, exceptions

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.cli.app import main
from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import Extent, Repair, Store, open_store
from amplifier_context_core.stores.redis import driver as driver_module
from amplifier_context_core.stores.redis.client import RedisClient
from amplifier_context_core.stores.redis.driver import RedisDriver
from amplifier_context_core.stores.redis.store import RedisStore
from amplifier_context_core.transcript.transcript import Entry
from amplifier_context_testing.contract.append import Appending
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.fork import Forking
from amplifier_context_testing.contract.replace import Replacing
from amplifier_context_testing.contract.rewrite import Rewriting
from amplifier_context_testing.contract.samples import ODD_IDS, entries, entry
from amplifier_context_testing.store_contract import MakeStore

from .relay import relayed
from .servers import REDIS, PrivateRedis, drop_prefix, own_name, redis_is_there, with_parameters

pytestmark = pytest.mark.redis


@pytest.fixture
def prefix() -> Generator[str]:
    """A key prefix of this test's own; its keys are gone afterwards."""
    redis_is_there()
    name = own_name()
    yield name
    drop_prefix(name)


@pytest.fixture
def client(prefix: str) -> Generator[Any]:
    """A client that sees the keys."""
    with redis.Redis.from_url(REDIS, decode_responses=True) as client:
        yield client


@pytest.fixture
async def store(prefix: str) -> Any:
    store = RedisStore.from_url(with_parameters(REDIS, prefix=prefix))
    yield store
    await store.close()


@pytest.fixture
def own() -> Generator[PrivateRedis]:
    """A server of this test's own, as it is installed: it keeps nothing."""
    server = PrivateRedis("--appendonly", "no")
    yield server
    server.remove()


@pytest.fixture
async def there(own: PrivateRedis) -> Any:
    """A store on it."""
    store = RedisStore.from_url(own.url)
    yield store
    await store.close()


class TestInPieces(Appending, Replacing, Rewriting, Forking):
    """The contract again, with rows staged three at a time and read seven at a time."""

    @pytest.fixture
    def make_store(self, prefix: str, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
        monkeypatch.setattr(driver_module, "_MAX_ROWS", 3)
        monkeypatch.setattr(driver_module, "_WINDOW", 7)

        async def make() -> Store:
            return RedisStore.from_url(with_parameters(REDIS, prefix=prefix))

        return make


class TestScripts:
    async def test_scripts_that_the_server_forgot_are_loaded_again(self, store: Store, client: Any) -> None:
        await store.append("s", entries(1, 2))
        client.script_flush()
        await store.append("s", entries(3, 3))
        client.script_flush()
        assert_same(await store.read("s"), entries(1, 3))
        client.script_flush()
        await asyncio.gather(*(store.append(f"s{number}", entries(1, 3)) for number in range(12)))
        client.script_flush()
        assert len(await store.sessions()) == 13
        client.script_flush()
        await store.fork("s", "child")
        client.script_flush()
        await store.delete("child")
        assert len(await store.sessions()) == 13

    async def test_a_seq_in_use_is_refused(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        before = await whole(store)
        for change in (
            store.append("s", entries(5, 5)),
            store.append("s", entries(5, 7)),
            store.replace("s", 3, entries(2, 2)),
        ):
            with pytest.raises(StoreError, match="one of these seqs already"):
                await change
            assert not (await whole(store)).differs(before)

    async def test_staged_rows_that_are_lost_are_missed(
        self, store: Store, client: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.append("s", entries(1, 2))
        monkeypatch.setattr(driver_module, "_MAX_ROWS", 3)
        stage = RedisDriver._stage

        async def lossy(driver: RedisDriver, keys: Any, packed: Any) -> None:
            await stage(driver, keys, packed)
            await driver._call("LPOP", keys[-1])

        monkeypatch.setattr(RedisDriver, "_stage", lossy)
        before = await whole(store)
        with pytest.raises(StoreError, match="lost rows"):
            await store.append("s", entries(3, 20))
        assert not (await whole(store)).differs(before)


class TestDirectory:
    async def test_a_lost_directory_is_found_again_among_the_keys(self, store: Store, client: Any, prefix: str) -> None:
        ids = [*ODD_IDS[:30], "[a]*?\\", "{}%7D"]
        for session_id in (one for one in ids if "\\" not in one):
            await store.append(session_id, entries(1, 1))
        listed = await store.sessions()
        client.delete(f"{prefix}:sessions")
        assert sorted(info.session_id for info in await store.sessions()) == sorted(one.session_id for one in listed)
        assert client.zcard(f"{prefix}:sessions") == len(listed)

    async def test_a_session_missing_from_the_directory_is_added_when_it_is_opened(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        await store.append("a", entries(1, 1))
        await store.append("b", entries(1, 1))
        client.zrem(f"{prefix}:sessions", "a")
        await store.close()
        await store.open("a")
        assert len(await store.sessions()) == 2

    async def test_names_without_a_session_are_dropped_in_time(self, store: Store, client: Any, prefix: str) -> None:
        await store.append("a", entries(1, 1))
        now = time.time()
        client.zadd(f"{prefix}:sessions", {"about to be made": now, "never made": now - 90_000})
        assert [info.session_id for info in await store.sessions()] == ["a"]
        assert sorted(client.zrange(f"{prefix}:sessions", 0, -1)) == ["a", "about to be made"]

    async def test_nothing_is_left_of_a_deleted_session_or_an_unused_lease(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        await store.append("s", entries(1, 6))
        await store.replace("s", 2, entries(7, 7))
        await store.save_checkpoint("s", 1, b"one")
        await store.delete("s")
        await store.open("unused")
        await store.close()
        assert [key for key in client.scan_iter(f"*{prefix}*", count=5_000) if key != f"{prefix}:sessions"] == []

    async def test_an_unreleased_session_expires_only_if_it_was_never_written(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        await store.open("leased")
        await store.append("written", entries(1, 1))
        assert client.pttl(f"{{{prefix}:leased}}:meta") > 0
        assert [client.pttl(key) for key in client.scan_iter(f"{{{prefix}:written}}*", count=5_000)] == [-1, -1, -1]


class TestCluster:
    def test_all_keys_of_a_session_are_in_one_slot(self) -> None:
        driver = RedisDriver(RedisStore.from_url(with_parameters(REDIS, prefix="a{b}c"))._key)
        slots = set()
        for session_id in ODD_IDS:
            keys = driver._keys(session_id)
            assert len({crc.key_slot(key.encode()) for key in keys}) == 1
            slots |= {crc.key_slot(key.encode()) for key in keys}
        assert len(slots) > len(ODD_IDS) * 0.9  # no tag is cut short, and so the same for all

    async def test_a_node_of_a_cluster_takes_every_call(self) -> None:
        """A node in cluster mode refuses scripts and commands whose keys are not of one slot."""
        server = PrivateRedis("--appendonly", "no", "--cluster-enabled", "yes")
        try:
            with redis.Redis(port=server.port) as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            server.await_cluster()
            await self.work_on(server.url)
        finally:
            server.remove()

    async def test_sessions_are_spread_over_the_nodes_of_a_cluster(self) -> None:
        with contextlib.ExitStack() as stack:
            servers: list[PrivateRedis] = []
            for _ in range(3):
                servers.append(PrivateRedis("--appendonly", "no", "--cluster-enabled", "yes"))
                stack.callback(servers[-1].remove)
            nodes = [f"127.0.0.1:{server.port}" for server in servers]
            subprocess.run(
                ["redis-cli", "--cluster", "create", *nodes, "--cluster-yes"],
                check=True,
                timeout=60,
                stdout=subprocess.DEVNULL,
            )
            for server in servers:
                server.await_cluster()
            await self.work_on(f"{servers[0].url}?cluster=true")
            with pytest.raises(StoreError, match="MOVED"):
                await self.work_on(servers[0].url)

    async def work_on(self, url: str) -> None:
        store = RedisStore.from_url(url)
        try:
            for session_id in ("s", "{a}", "}{", "a b"):
                await store.append(session_id, entries(1, 5))
                await store.replace(session_id, 3, entries(6, 7))
                await store.rewrite(session_id, [entry(1, "changed")])
                await store.save_checkpoint(session_id, 2, b"two")
                await store.fork(session_id, f"child of {session_id}")
                assert len(await store.find(session_id, [1, 2, 6])) == 3
                assert (await whole(store, f"child of {session_id}")).extent == Extent(5, 7)
                await store.release(session_id)
            await asyncio.gather(*(store.append(f"at once {number}", entries(1, 3)) for number in range(8)))
            assert len(await store.sessions()) == 16
            driver = store._driver
            assert isinstance(driver, RedisDriver)
            await driver.loop_thread.run(driver._call("DEL", driver._directory))
            assert len(await store.sessions()) == 16  # found on all nodes
            for info in await store.sessions():
                await store.delete(info.session_id)
            assert await store.sessions() == []
        finally:
            await store.close()


class TestDurabilityWarnings:
    """A server that is less durable than configured is reported once."""

    async def warned(self, url: str, caplog: pytest.LogCaptureFixture, durability: Any = "fsync") -> str:
        caplog.clear()
        store = RedisStore.from_url(url, durability=durability)
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                await store.append("s", entries(number + 1, number + 1))
            await store.delete("s")
            await store.close()
        assert len(caplog.records) <= 1
        return caplog.text

    async def test_a_server_without_an_append_only_file(
        self, own: PrivateRedis, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert "appendonly no" in await self.warned(own.url, caplog)
        assert not await self.warned(own.url, caplog, "none")
        assert not await self.warned(own.url, caplog, "flush")

    async def test_a_server_that_writes_every_second(self, own: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
        with redis.Redis(port=own.port) as client:
            client.config_set("appendonly", "yes")
        text = await self.warned(own.url, caplog)
        assert "appendfsync everysec" in text or not text  # from 7.2 on, each change waits for the file

    async def test_a_server_that_keeps_everything(self, own: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
        with redis.Redis(port=own.port) as client:
            client.config_set("appendonly", "yes")
            client.config_set("appendfsync", "always")
        assert not await self.warned(own.url, caplog)

    async def test_a_server_that_evicts(self, own: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
        with redis.Redis(port=own.port) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        assert "noeviction" in await self.warned(own.url, caplog, "none")

    async def test_a_server_that_hides_its_settings(self, own: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
        with redis.Redis(port=own.port) as client:
            client.execute_command("ACL", "SETUSER", "limited", "on", ">sesame", "~*", "&*", "+@all", "-config")
        text = await self.warned(f"redis://limited:sesame@127.0.0.1:{own.port}/0", caplog)
        assert "unknown whether" in text or not text
        assert "sesame" not in text

    async def test_a_server_that_can_be_asked_is_asked_for_each_change(self, own: PrivateRedis) -> None:
        """WAITAOF, of 7.2 and later."""
        asked: list[list[bytes]] = []
        synced = b"*2\r\n:1\r\n:0\r\n"

        def answer(command: list[bytes]) -> bytes | None:
            if command[0] == b"INFO":
                text = b"# Server\r\nredis_version:7.2.4\r\n"
                return b"$%d\r\n%b\r\n" % (len(text), text)
            if command[:3] == [b"CONFIG", b"GET", b"appendonly"]:
                return b"*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n"
            if command[0] == b"WAITAOF":
                asked.append(command)
                return synced
            return None

        with relayed(own.port, answer) as port:
            store = RedisStore.from_url(f"redis://127.0.0.1:{port}/0?socket_timeout=7")
            await store.append("s", entries(1, 2))
            assert {tuple(command) for command in asked} == {(b"WAITAOF", b"1", b"0", b"7000")}
            asked.clear()
            await asyncio.gather(*(store.append(f"s{number}", entries(1, 1)) for number in range(8)))
            assert 2 <= len(asked) <= 8
            with redis.Redis(port=own.port) as client:
                client.script_flush()
            await store.append("s", entries(3, 3))
            # It did not come to the disk in time: not acknowledged, and so not there.
            synced = b"*2\r\n:0\r\n:0\r\n"
            with pytest.raises(StoreError, match="did not confirm in 7 s"):
                await store.append("s", entries(4, 4))
            synced = b"*2\r\n:1\r\n:0\r\n"
            assert_same(await store.read("s"), entries(1, 3))
            # Its file was switched off: reported once, and not waited for again.
            synced = b"-ERR WAITAOF cannot be used when appendonly is disabled\r\n"
            await store.append("s", entries(4, 4))
            count = len(asked)
            await store.append("s", entries(5, 5))
            assert len(asked) == count
            assert_same(await store.read("s"), entries(1, 5))
            await store.close()


class TestErrors:
    async def test_a_server_that_is_not_there_is_named_at_once_without_the_password(self) -> None:
        store = RedisStore.from_url("redis://somebody:sesame@127.0.0.1:1/3")
        for call in (store.append("s", entries(1, 1)), store.sessions(), store.open("s")):
            with pytest.raises(StoreError, match=r"127\.0\.0\.1:1, database 3 cannot be reached.*again") as caught:
                await call
            assert "sesame" not in str(caught.value) + str(caught.value.__cause__)
        await store.close()

    async def test_a_wrong_password_is_reported_as_such(self, own: PrivateRedis) -> None:
        with redis.Redis(port=own.port) as client:
            client.config_set("requirepass", "open sesame")
        for url in (own.url, f"redis://:wrong@127.0.0.1:{own.port}/0"):
            store = RedisStore.from_url(url)
            with pytest.raises(StoreError, match="password in the URL"):
                await store.read("s")
            await store.close()

    @pytest.mark.parametrize(
        ("at", "text"),
        [
            ("127.0.0.1:{port}/99", r"DB index is out of range\); the server has no database of this number"),
            (":sesame@127.0.0.1:{port}/0", r"without any password configured\); .*leave it out of the URL"),
            ("nobody:sesame@127.0.0.1:{port}/0", r"\(WRONGPASS\); check user and password"),
            ("limited:open@127.0.0.1:{port}/1", r"\(NOPERM: select\); grant"),
            ("limited:open@127.0.0.1:{port}/0", r"\(NOPERM: evalsha\); grant"),
            ("127.0.0.1:{port}/0?cluster=true", r"Cluster mode is not enabled\); .*leave cluster=true out"),
        ],
    )
    async def test_an_error_about_the_url_is_quoted_with_what_to_do(
        self, own: PrivateRedis, at: str, text: str
    ) -> None:
        with redis.Redis(port=own.port) as client:
            client.execute_command("ACL", "SETUSER", "limited", "on", ">open", "~*", "+@all", "-select", "-evalsha")
        store = RedisStore.from_url(f"redis://{at.format(port=own.port)}")
        with pytest.raises(StoreError, match=text) as caught:
            await store.read("s")
        assert "is running" not in str(caught.value)
        assert "sesame" not in str(caught.value)
        await store.close()

    async def test_a_server_that_wants_a_password_is_reported(self, own: PrivateRedis) -> None:
        with redis.Redis(port=own.port) as client:
            client.config_set("requirepass", "open sesame")
        store = RedisStore.from_url(own.url)
        with pytest.raises(StoreError, match=r"Authentication required\); give user and password"):
            await store.read("s")
        await store.close()

    async def test_a_key_that_another_program_wrote_to_is_left_alone(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        await store.append("s", entries(1, 3))
        await store.close()
        client.set(f"{{{prefix}:s}}:archive", "mine")
        with pytest.raises(StoreError, match=r"WRONGTYPE.*rename or delete that key"):
            await store.open("s")
        client.delete(f"{{{prefix}:s}}:archive")
        assert await store.open("s") == Extent(3, 3)

    async def test_a_full_memory_is_reported_and_the_session_goes_on_afterwards(
        self, own: PrivateRedis, there: Store
    ) -> None:
        await there.append("s", entries(1, 3))
        with redis.Redis(port=own.port) as client:
            client.config_set("maxmemory", "1mb")
            before = await whole(there)
            for change in (
                lambda: there.append("s", entries(4, 5)),
                lambda: there.replace("s", 1, entries(4, 5)),
                lambda: there.save_checkpoint("s", 1, b"one"),
            ):
                with pytest.raises(StoreError, match="no memory left"):
                    await change()
                assert not (await whole(there)).differs(before)
            client.config_set("maxmemory", "0")
        await there.append("s", entries(4, 5))
        assert_same(await there.read("s"), entries(1, 5))

    async def test_a_replica_that_takes_no_writes_is_reported(self, own: PrivateRedis, there: Store) -> None:
        await there.append("s", entries(1, 3))
        with redis.Redis(port=own.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            with pytest.raises(StoreError, match="URL of the master"):
                await there.append("s", entries(4, 5))
            client.execute_command("REPLICAOF", "NO", "ONE")
        await there.append("s", entries(4, 5))
        assert_same(await there.read("s"), entries(1, 5))

    async def test_a_server_that_is_loading_is_reported(self, own: PrivateRedis) -> None:
        loading = True

        def answer(command: list[bytes]) -> bytes | None:
            return b"-LOADING Redis is loading the dataset in memory\r\n" if loading else None

        with relayed(own.port, answer) as port:
            store = RedisStore.from_url(f"redis://127.0.0.1:{port}/0")
            with pytest.raises(StoreError, match="still loading"):
                await store.append("s", entries(1, 1))
            loading = False
            await store.append("s", entries(1, 1))
            loading = True
            for _ in range(2):
                with pytest.raises(StoreError, match="still loading"):
                    await store.append("s", entries(2, 2))
            loading = False
            await store.append("s", entries(2, 2))
            assert_same(await store.read("s"), entries(1, 2))
            await store.close()

    def test_every_error_of_the_driver_becomes_one_of_ours_and_quotes_no_data(self) -> None:
        client = RedisClient(RedisStore.from_url(REDIS)._key)
        kinds = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass) if issubclass(kind, Exception)]
        assert len(kinds) > 20
        for kind in kinds:
            problem = kind.__new__(kind)
            problem.args = ("ERR a secret",)
            for error in (client.refused(problem), client._unreachable(problem)):
                assert isinstance(error, StoreError)
                assert "secret" not in str(error)

    @pytest.mark.parametrize(
        "more",
        [
            "prefix=",
            f"prefix={'x' * 101}",
            "lease_ttl=soon",
            "lease_ttl=0",
            "pool_size=0",
            "no_such_parameter=1",
            "db=x",
            "db=3&cluster=true",
        ],
    )
    def test_parameters_that_cannot_be_are_refused_without_the_password(self, more: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"redis://somebody:sesame@127.0.0.1/0?{more}")
        assert "sesame" not in str(caught.value)

    @pytest.mark.parametrize("scheme", ["redis", "rediss"])
    def test_both_schemes_are_known_and_show_no_password(self, scheme: str) -> None:
        store = open_store(f"{scheme}://somebody:sesame@127.0.0.1/0?health_check_interval=10&protocol=3")
        assert isinstance(store, RedisStore)
        assert "sesame" not in repr(store) + repr(vars(store))


class TestDamage:
    @pytest.mark.parametrize(
        "garbage", ["garbage", '2 1 7 \n{"role": "us', "", "2 1 x \n{}", '2 1 7 {"a\n{"role": "user"}']
    )
    async def test_a_damaged_row_is_taken_out_reported_and_quarantined(
        self, store: Store, client: Any, prefix: str, garbage: str
    ) -> None:
        repairs: list[Repair] = []
        await store.append("s", entries(1, 6))
        await store.save_checkpoint("s", 5, b"five")
        await store.open("s", repairs.append)
        client.lset(f"{{{prefix}:s}}:entries", 1, garbage)
        assert await store.verify("s") == ["the message at index 1 (m2) is damaged"]  # type: ignore[attr-defined]
        rest = [*entries(1, 1), *entries(3, 6)]
        assert_same(await store.read("s"), rest)
        assert await store.extent("s") == Extent(5, 6)
        assert [(repair.session_id, repair.lost) for repair in repairs] == [("s", 1)]
        assert client.lrange(f"{{{prefix}:s}}:damaged", 0, -1) == [garbage]
        assert await store.load_checkpoint("s") is None
        assert await store.verify("s") == []  # type: ignore[attr-defined]
        assert_same(await store.find("s", [2, 3, 6]), [*entries(3, 3), *entries(6, 6)])
        await store.append("s", entries(7, 8))
        assert_same(await store.read("s"), [*rest, *entries(7, 8)])
        assert len(repairs) == 1
        await store.rewrite("s", [entry(1, "changed")])
        assert not client.exists(f"{{{prefix}:s}}:damaged")

    @pytest.mark.parametrize("given", [[], [entry(2, "gone")]], ids=["nothing", "the message itself"])
    async def test_a_quarantined_message_is_erased_though_no_seq_is_known(
        self, store: Store, client: Any, prefix: str, given: list[Entry]
    ) -> None:
        await store.append("s", entries(1, 3))
        await store.open("s")
        client.lset(f"{{{prefix}:s}}:entries", 1, "garbage")
        assert len(await store.read("s")) == 2
        assert client.llen(f"{{{prefix}:s}}:damaged") == 1
        await store.rewrite("s", given)
        assert not client.exists(f"{{{prefix}:s}}:damaged")
        assert [one.seq for one in await store.read("s")] == [1, 3]

    async def test_a_reader_leaves_damage_where_it_is(
        self, store: Store, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.append("s", entries(1, 4))
        await store.close()
        client.lset(f"{{{prefix}:s}}:entries", 1, "no JSON")
        with caplog.at_level(logging.WARNING):
            assert_same(await store.read("s"), [*entries(1, 1), *entries(3, 4)])
        assert "1 damaged" in caplog.text
        assert "no JSON" not in caplog.text
        assert await store.extent("s") == Extent(4, 4)

    async def test_a_row_that_is_there_twice_is_taken_out_once(self, store: Store, client: Any, prefix: str) -> None:
        repairs: list[Repair] = []
        await store.append("s", entries(1, 4))
        await store.close()
        client.rpush(f"{{{prefix}:s}}:entries", client.lindex(f"{{{prefix}:s}}:entries", 1))
        assert await store.open("s", repairs.append) == Extent(4, 4)
        assert [repair.lost for repair in repairs] == [0]
        assert_same(await store.read("s"), entries(1, 4))
        assert client.llen(f"{{{prefix}:s}}:damaged") == 1
        assert await store.verify("s") == []  # type: ignore[attr-defined]

    async def test_a_checkpoint_of_other_bytes_is_left_out_and_reported(
        self, store: Store, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        repairs: list[Repair] = []
        await store.append("s", entries(1, 4))
        await store.save_checkpoint("s", 2, b"two")
        await store.close()
        client.set(f"{{{prefix}:s}}:checkpoint", "TWO")
        assert await store.verify("s") == ["the checkpoint is damaged"]  # type: ignore[attr-defined]
        assert await store.load_checkpoint("s") is None
        assert "checkpoint of session 's' is damaged" in caplog.text
        await store.fork("s", "child")
        assert await store.verify("child") == []  # type: ignore[attr-defined]
        await store.open("s", repairs.append)
        assert repairs == []
        assert await store.load_checkpoint("s") is None
        assert repairs == [Repair("s", "the checkpoint is damaged")]
        assert not client.exists(f"{{{prefix}:s}}:checkpoint")
        assert await store.verify("s") == []  # type: ignore[attr-defined]
        assert_same(await store.read("s"), entries(1, 4))


HELD = [*entries(1, 5), *entries(7, 8)]


class TestLostKeys:
    """Keys that were evicted, expired or deleted by hand. The session holds m1 to m5, m7 and m8, and archived m6."""

    @pytest.fixture
    async def lose(self, store: Store, client: Any, prefix: str) -> Any:
        await store.append("s", entries(1, 6))
        await store.replace("s", 5, entries(7, 8))
        await store.save_checkpoint("s", 4, b"four")
        await store.close()
        return lambda *names: client.delete(*(f"{{{prefix}:s}}:{name}" for name in names))

    async def opened(self, store: Store) -> list[Repair]:
        """Open it and return its repairs; opening it once more repairs nothing, and all is well."""
        repairs: list[Repair] = []
        await store.open("s", repairs.append)
        again: list[Repair] = []
        await store.release("s")
        await store.open("s", again.append)
        assert again == []
        assert await store.verify("s") == []  # type: ignore[attr-defined]
        return repairs

    async def goes_on(self, store: Store, left: list[Any]) -> None:
        """It holds what is left, gives no seq twice, and takes every change."""
        assert await store.extent("s") == Extent(len(left), 8)
        assert_same(await store.read("s"), left)
        await store.append("s", entries(9, 11))
        await store.replace("s", len(left) + 1, entries(12, 12))
        await store.rewrite("s", [entry(12, "changed")])
        await store.save_checkpoint("s", 1, b"one")
        assert_same(await store.read("s"), [*left, *entries(9, 9), entry(12, "changed")])
        seqs = [one.seq for one in left]
        assert [one.seq for one in await store.find("s", [*seqs, 9, 10, 12])] == [*seqs, 9, 12]
        assert await store.load_checkpoint("s") == b"one"
        assert await store.verify("s") == []  # type: ignore[attr-defined]

    async def test_a_manager_at_work_writes_again_what_was_lost(self, store: Store, client: Any, prefix: str) -> None:
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id="s", store=store)
        for number in range(3):
            await manager.add_message({"role": "user", "content": f"question {number}"})
            await manager.add_message({"role": "assistant", "content": f"answer {number}"})
        key = f"{{{prefix}:s}}:entries"
        client.lrem(key, 1, client.lindex(key, 1))
        await manager.add_message({"role": "user", "content": "go on"})
        call = {"id": "c1", "tool": "look", "arguments": {}}
        await manager.add_message({"role": "assistant", "content": None, "tool_calls": [call]})
        await manager.interrupt()
        held = [entry.seq for entry in await store.read("s")]
        assert held == [1, 2, 3, 4, 5, 6]
        assert [entry.seq for entry in manager.snapshot()] == held
        assert any("1 message lost" in text for text in manager.warnings.texts)
        await manager.close()

    @pytest.mark.parametrize("names", [("entries",), ("entries", "places"), ("entries", "checkpoint")])
    async def test_lost_entries_are_reported_when_the_session_is_opened(
        self, store: Store, lose: Any, names: tuple[str, ...], caplog: pytest.LogCaptureFixture
    ) -> None:
        lose(*names)
        assert any("7 of 7 messages are gone" in line for line in await store.verify("s"))  # type: ignore[attr-defined]
        assert await store.extent("s") == Extent(0, 8)  # for a reader
        assert "7 of 7 messages are gone" in caplog.text
        assert await store.load_checkpoint("s") is None
        (repair,) = await self.opened(store)
        assert repair.lost == 7
        assert "7 of 7 messages are gone" in repair.description
        assert "goes on with 0" in repair.description
        assert [one.seq for one in await store.archived("s")] == [6]
        await self.goes_on(store, [])

    async def test_a_part_of_the_entries_is_enough_to_go_on_with(
        self, store: Store, lose: Any, client: Any, prefix: str
    ) -> None:
        client.ltrim(f"{{{prefix}:s}}:entries", 2, 5)
        assert_same(await store.find("s", [1, 3]), [])  # the recorded indices are wrong
        (repair,) = await self.opened(store)
        assert repair.lost == 3
        await self.goes_on(store, HELD[2:6])

    async def test_lost_entries_are_reported_though_no_length_is_recorded(
        self, store: Store, lose: Any, client: Any, prefix: str
    ) -> None:
        client.hdel(f"{{{prefix}:s}}:meta", "length", "archived", "crc")
        assert await self.opened(store) == []
        assert await store.load_checkpoint("s") == b"four"
        await store.close()
        lose("entries")
        (repair,) = await self.opened(store)
        assert repair.lost == 7
        await self.goes_on(store, [])

    async def test_lost_indices_are_recorded_again_and_nothing_else_changes(self, store: Store, lose: Any) -> None:
        lose("places")
        (repair,) = await self.opened(store)
        assert repair == Repair("s", "it has 7 messages, and indices of 0")
        assert await store.load_checkpoint("s") == b"four"
        await self.goes_on(store, HELD)

    async def test_a_lost_archive_is_reported(self, store: Store, lose: Any) -> None:
        lose("archive")
        (repair,) = await self.opened(store)
        assert repair == Repair("s", "1 of 1 archived messages are gone from the server", lost=1)
        await self.goes_on(store, HELD)

    async def test_a_lost_checkpoint_is_reported(self, store: Store, lose: Any) -> None:
        lose("checkpoint")
        (repair,) = await self.opened(store)
        assert repair == Repair("s", "the checkpoint is gone from the server")
        await self.goes_on(store, HELD)

    @pytest.mark.parametrize("more", [(), ("places",), ("checkpoint", "archive")])
    async def test_a_lost_meta_is_rebuilt_from_the_entries(
        self, store: Store, lose: Any, more: tuple[str, ...]
    ) -> None:
        lose("meta", *more)
        assert any("key meta" in line for line in await store.verify("s"))  # type: ignore[attr-defined]
        assert [(info.session_id, info.length) for info in await store.sessions()] == [("s", 7)]
        (repair,) = await self.opened(store)
        assert repair.lost == 0
        assert "goes on with 7 messages" in repair.description
        assert (await store.sessions())[0].size > 0
        assert await store.load_checkpoint("s") is None  # how much it covered is unknown
        await self.goes_on(store, HELD)

    async def test_with_meta_and_entries_gone_no_seq_is_given_again(self, store: Store, lose: Any) -> None:
        lose("meta", "entries", "archive")
        (repair,) = await self.opened(store)
        assert repair.lost == 7
        await self.goes_on(store, [])

    async def test_a_session_of_which_parts_are_there_is_not_made_again_by_a_fork(
        self, store: Store, lose: Any
    ) -> None:
        lose("meta")
        await store.append("other", entries(1, 2))
        with pytest.raises(StoreError, match="there is a session 's' already"):
            await store.fork("other", "s")
        await store.fork("s", "child")
        assert_same(await store.read("child"), HELD)
        await store.delete("s")
        assert await store.extent("s") == Extent()

    async def test_an_append_without_opening_repairs_first(
        self, store: Store, lose: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        lose("meta", "places")
        await store.append("s", entries(9, 9))
        assert "key meta" in caplog.text
        assert_same(await store.read("s"), [*HELD, *entries(9, 9)])
        assert await store.extent("s") == Extent(8, 9)

    @pytest.mark.parametrize(("names", "left"), [(("entries",), []), (("places",), HELD), (("entries", "places"), [])])
    async def test_a_loss_while_the_session_is_open_is_reported_by_the_next_change(
        self, store: Store, lose: Any, names: tuple[str, ...], left: list[Any]
    ) -> None:
        repairs: list[Repair] = []
        await store.open("s", repairs.append)
        lose(*names)
        await store.append("s", entries(9, 9))
        assert [repair.lost for repair in repairs] == [7 - len(left)]
        assert_same(await store.read("s"), [*left, *entries(9, 9)])
        assert await store.verify("s") == []  # type: ignore[attr-defined]
        lose(*names)
        await store.rewrite("s", [entry(1, "changed")])
        assert len(repairs) == 2
        assert await store.verify("s") == []  # type: ignore[attr-defined]

    async def test_an_edit_of_what_is_lost_changes_nothing(self, store: Store, lose: Any) -> None:
        await store.open("s")
        lose("entries")
        with pytest.raises(StoreError, match="holds 0 messages, not 5"):
            await store.replace("s", 5, entries(9, 9))
        assert await store.extent("s") == Extent(0, 8)
        assert await store.verify("s") == []  # type: ignore[attr-defined]

    async def test_a_repair_that_is_refused_is_made_when_the_session_is_opened_again(
        self, own: PrivateRedis, there: Store
    ) -> None:
        repairs: list[Repair] = []
        await there.append("s", entries(1, 5))
        await there.close()
        with redis.Redis(port=own.port) as client:
            client.delete("{amplifier-context:s}:places")
            client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreError, match="no memory left"):
                await there.open("s", repairs.append)
            client.config_set("maxmemory", "0")
        assert await there.open("s", repairs.append) == Extent(5, 5)
        assert len(repairs) == 1

    async def test_repair_reports_how_many_are_lost(self, store: Store, lose: Any, prefix: str) -> None:
        lose("entries")

        def run(*words: str) -> Any:
            return CliRunner().invoke(main, [*words, "s", "--store", with_parameters(REDIS, prefix=prefix)])

        assert "7 of 7 messages are gone" in (await asyncio.to_thread(run, "verify")).output
        repaired = await asyncio.to_thread(run, "repair")
        assert "repaired: 7 of 7 messages are gone" in repaired.output
        assert "0 messages, 1 repair, 7 messages lost" in repaired.output
        assert (repaired.exit_code, "left" in repaired.output) == (0, False)
        assert (await asyncio.to_thread(run, "verify")).exit_code == 0


class TestErasing:
    async def test_what_was_rewritten_is_in_no_key_nor_in_the_append_only_file(self) -> None:
        secret = "hunter2 is the password"
        server = PrivateRedis()
        try:
            store = RedisStore.from_url(server.url)
            await store.append("s", [entry(1, secret), *entries(2, 3), entry(4, secret)])
            await store.replace("s", 3, [])
            await store.save_checkpoint("s", 2, secret.encode())
            assert self.found(server, secret)
            await store.rewrite("s", [entry(1, "[forgotten]"), entry(4, "[forgotten]")])
            for _ in range(3_000):
                if not self.found(server, secret):
                    break
                await asyncio.sleep(0.02)
            assert not self.found(server, secret)
            assert len(await store.read("s")) == 3
            await store.close()
        finally:
            server.remove()

    def found(self, server: PrivateRedis, secret: str) -> bool:
        while True:
            try:
                read = [path.read_bytes() for path in server.folder.rglob("*") if path.is_file()]
            except FileNotFoundError:  # the server renamed one meanwhile: look again at all
                continue
            assert read
            return any(secret.encode() in content for content in read)
