"""Keys that were damaged, evicted, expired or deleted by hand."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.cli.app import main
from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, Repair, Store
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.servers import REDIS, PrivateRedis, with_parameters

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
