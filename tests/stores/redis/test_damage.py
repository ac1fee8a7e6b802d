"""Rows that were damaged by hand, and sessions that were evicted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import Extent, Repair, Store
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry

pytestmark = pytest.mark.redis


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
        client.hset(f"{{{prefix}:s}}:session", "e:1", garbage)
        (problem,) = await store.verify("s")  # type: ignore[attr-defined]
        assert problem.startswith("the message at index 1 ")
        assert problem.endswith("is damaged")
        rest = [*entries(1, 1), *entries(3, 6)]
        assert_same(await store.read("s"), rest)
        assert await store.extent("s") == Extent(5, 6)
        assert [(repair.session_id, repair.lost) for repair in repairs] == [("s", 1)]
        assert client.hget(f"{{{prefix}:s}}:session", "d:0") == garbage
        assert await store.load_checkpoint("s") is None
        assert await store.verify("s") == []  # type: ignore[attr-defined]
        assert_same(await store.find("s", [2, 3, 6]), [*entries(3, 3), *entries(6, 6)])
        await store.append("s", entries(7, 8))
        assert_same(await store.read("s"), [*rest, *entries(7, 8)])
        assert len(repairs) == 1
        await store.rewrite("s", [entry(1, "changed")])
        assert not client.hexists(f"{{{prefix}:s}}:session", "d:0")

    @pytest.mark.parametrize("given", [[], [entry(2, "gone")]], ids=["nothing", "the message itself"])
    async def test_a_quarantined_message_is_erased_though_no_seq_is_known(
        self, store: Store, client: Any, prefix: str, given: list[Entry]
    ) -> None:
        await store.append("s", entries(1, 3))
        await store.open("s")
        client.hset(f"{{{prefix}:s}}:session", "e:1", "garbage")
        assert len(await store.read("s")) == 2
        assert client.hexists(f"{{{prefix}:s}}:session", "d:0")
        await store.rewrite("s", given)
        assert not client.hexists(f"{{{prefix}:s}}:session", "d:0")
        assert [one.seq for one in await store.read("s")] == [1, 3]

    async def test_a_row_that_is_gone_is_reported(self, store: Store, client: Any, prefix: str) -> None:
        repairs: list[Repair] = []
        await store.append("s", entries(1, 6))
        await store.open("s", repairs.append)
        client.hdel(f"{{{prefix}:s}}:session", "e:2")
        assert await store.verify("s") == ["the message at index 2 is gone"]  # type: ignore[attr-defined]
        assert_same(await store.read("s"), [*entries(1, 2), *entries(4, 6)])
        assert [repair.lost for repair in repairs] == [1]
        await store.append("s", entries(7, 7))
        assert_same(await store.read("s", -3), entries(5, 7))
        assert await store.verify("s") == []  # type: ignore[attr-defined]

    async def test_a_reader_leaves_damage_where_it_is(
        self, store: Store, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.append("s", entries(1, 4))
        await store.close()
        client.hset(f"{{{prefix}:s}}:session", "e:1", "no JSON")
        with caplog.at_level(logging.WARNING):
            assert_same(await store.read("s"), [*entries(1, 1), *entries(3, 4)])
        assert "1 damaged" in caplog.text
        assert "no JSON" not in caplog.text
        assert await store.extent("s") == Extent(4, 4)


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
