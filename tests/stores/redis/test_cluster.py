"""Hash tags, and sessions on a Redis cluster."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_servers.redis_server.store import RedisStore
from amplifier_context_testing.contract.fixtures import whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.servers import PrivateRedis

pytestmark = pytest.mark.redis


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
