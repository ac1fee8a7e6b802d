"""What is peculiar to Redis: scripts, keys, erasing, damage, and clusters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_servers.redis_server import driver as driver_module
from amplifier_context_servers.redis_server.store import RedisStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.reference import MatchesReference
from amplifier_context_testing.contract.samples import ODD_IDS, entries, entry
from amplifier_context_testing.store_contract import MakeStore
from tests.stores.server_contract_damage import DamageContract
from tests.stores.servers import REDIS, PrivateRedis, with_parameters

pytestmark = pytest.mark.redis


class TestInPieces(MatchesReference):
    """Random histories, with rows read seven at a time."""

    examples = 8

    @pytest.fixture
    def make_store(self, prefix: str, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
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

    @pytest.mark.parametrize(
        ("limit", "most", "text"), [("_MAX_ROWS", 3, "at most 3 messages and"), ("_MAX_BYTES", 99, "and 99 bytes in")]
    )
    async def test_a_change_of_more_than_a_command_takes_is_refused(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, text: str
    ) -> None:
        await store.append("s", entries(1, 2))
        monkeypatch.setattr(driver_module, limit, most)
        before = await whole(store)
        with pytest.raises(StoreError, match=text):
            await store.append("s", entries(3, 6))
        assert not (await whole(store)).differs(before)

    async def test_a_large_change_is_one_change(self, store: Store) -> None:
        many = [entry(seq, "x" * 2_000) for seq in range(1, 20_001)]
        await store.append("s", many)
        assert await store.extent("s") == Extent(20_000, 20_000)
        assert_same(await store.read("s", -3), many[-3:])


class TestKeys:
    async def test_sessions_are_found_among_the_keys(self, store: Store, client: Any, prefix: str) -> None:
        ids = [*ODD_IDS[:30], "{}%7D", "}:session", "a}:b"]
        for session_id in ids:
            await store.append(session_id, entries(1, 1))
        client.hset(f"{{{prefix}:s}}:other", "updated", 1)  # of another program
        client.set(f"{{{prefix}x:s}}:session", "of another prefix")
        assert sorted(info.session_id for info in await store.sessions()) == sorted(ids)

    @pytest.mark.parametrize("odd", ["[a]*?\\", "{%}^"])
    async def test_a_prefix_is_no_pattern(self, prefix: str, odd: str) -> None:
        store = RedisStore.from_url(with_parameters(REDIS, prefix=quote(odd + prefix)))
        await store.append("s", entries(1, 1))
        assert [info.session_id for info in await store.sessions()] == ["s"]
        await store.delete("s")
        await store.close()

    async def test_nothing_is_left_of_a_deleted_session_or_an_unused_lease(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        await store.append("s", entries(1, 6))
        await store.replace("s", 2, entries(7, 7))
        await store.save_checkpoint("s", 1, b"one")
        await store.delete("s")
        await store.open("unused")
        await store.close()
        assert list(client.scan_iter(f"*{prefix}*", count=5_000)) == []

    async def test_an_unreleased_session_expires_only_if_it_was_never_written(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        await store.open("leased")
        await store.append("written", entries(1, 1))
        assert client.pttl(f"{{{prefix}:leased}}:session") > 0
        assert [client.pttl(key) for key in client.scan_iter(f"{{{prefix}:written}}*", count=5_000)] == [-1]


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
            await store.rewrite("s", [entry(seq, "[forgotten]")._replace(redaction_trace="") for seq in (1, 4)])
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


class TestDamage(DamageContract):
    @pytest.fixture(params=['2 1 7 \n{"role": "us', "", "2 1 x \n{}", '2 1 7 {"a\n{"role": "user"}', None], ids=repr)
    def harm(self, request: pytest.FixtureRequest, client: Any, prefix: str) -> Callable[[], object]:
        key, garbage = f"{{{prefix}:s}}:session", request.param
        return lambda: client.hdel(key, "e:1") if garbage is None else client.hset(key, "e:1", garbage)

    @pytest.mark.parametrize(
        ("field", "value", "text"),
        [
            ("length", 6, "the message at index 4 is gone"),
            ("last_seq", 2, "it holds m4, and its record says that no seq above 2"),
            ("e:2", '9 1 7 \n{"role": "user", "content": "x"}', "m9 at index 2 is not found by its seq"),
            ("a:0", "garbage", "of the archive is damaged"),
        ],
    )
    async def test_what_does_not_fit_together_is_found(
        self, store: Store, client: Any, prefix: str, field: str, value: Any, text: str
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 4, [])
        client.hset(f"{{{prefix}:s}}:session", field, value)
        problems = await store.verify("s")  # type: ignore[attr-defined]
        assert text in problems[0]


class TestLostSessions:
    """A session is one key: it is there or it is gone."""

    async def test_a_session_that_was_evicted_is_lost_and_goes_on_in_a_fork_of_what_memory_held(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        manager = ContextManager(
            load_config({"token_counter": "heuristic", "on_conflict": "fork"}), session_id="s", store=store
        )
        await manager.add_message({"role": "user", "content": "question"})
        client.delete(f"{{{prefix}:s}}:session")
        await manager.add_message({"role": "user", "content": "go on"})
        (fork,) = [info.session_id for info in await store.sessions()]
        assert fork != "s"
        assert [one.message["content"] for one in await store.read(fork)] == ["question", "go on"]
        await manager.close()


class TestCluster:
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
            await self.close_without_a_node(f"{servers[0].url}?cluster=true", servers[1])

    async def close_without_a_node(self, url: str, server: PrivateRedis) -> None:
        """The client looks for its nodes again when one is gone; the connections to the others must still be closed."""
        store = RedisStore.from_url(url)
        names = [f"session {number}" for number in range(12)]
        await asyncio.gather(*(store.append(name, entries(1, 1)) for name in names))
        server.stop()
        made = await asyncio.gather(*(store.append(name, entries(2, 2)) for name in names), return_exceptions=True)
        assert any(isinstance(one, StoreError) for one in made)
        await store.close()
        del store, made
        gc.collect()  # a connection that was not closed is a warning, and so an error

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
            await asyncio.gather(*(store.append(f"at once {number}", entries(1, 3)) for number in range(80)))
            assert len(await store.sessions()) == 88  # of all nodes, with fewer connections
            for info in await store.sessions():
                await store.delete(info.session_id)
            assert await store.sessions() == []
        finally:
            await store.close()
