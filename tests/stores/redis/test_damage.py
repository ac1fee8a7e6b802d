"""Rows that were damaged by hand, and sessions that were evicted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from amplifier_context_core import ContextManager, StoreError, load_config
from amplifier_context_core.stores import Extent, Repair, Store
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries

pytestmark = pytest.mark.redis


class TestDamage:
    @pytest.mark.parametrize(
        "garbage", ["garbage", '2 1 7 \n{"role": "us', "", "2 1 x \n{}", '2 1 7 {"a\n{"role": "user"}', None]
    )
    async def test_a_damaged_row_is_left_out_and_reported_once_and_its_session_is_not_changed(
        self, store: Store, client: Any, prefix: str, garbage: str | None
    ) -> None:
        repairs: list[Repair] = []
        await store.append("s", entries(1, 6))
        await store.save_checkpoint("s", 5, b"five")
        await store.open("s", repairs.append)
        key = f"{{{prefix}:s}}:session"
        client.hdel(key, "e:1") if garbage is None else client.hset(key, "e:1", garbage)
        (problem,) = await store.verify("s")  # type: ignore[attr-defined]
        assert problem.startswith("the message at index 1 ")
        assert problem.endswith("is gone" if garbage is None else "is damaged")
        for _ in range(2):
            assert_same(await store.read("s"), [*entries(1, 1), *entries(3, 6)])
        assert [(repair.session_id, repair.lost) for repair in repairs] == [("s", 1)]
        before = client.hgetall(key)
        for change in (store.append("s", entries(7, 8)), store.replace("s", 2, []), store.rewrite("s", entries(1, 1))):
            with pytest.raises(StoreError, match="damaged messages, so nothing was written"):
                await change
        assert client.hgetall(key) == before
        assert await store.load_checkpoint("s") == b"five"
        await store.delete("s")
        assert not client.exists(key)

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
