"""The search index in a SQLite database: what it finds, in which order, and that it keeps up."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entry
from tests.stores.sqlite.damage import change


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, durability="none")
    yield store
    await store.close()


async def append_texts(store: SqliteStore, *texts: str) -> None:
    await store.append("s", [entry(seq, text) for seq, text in enumerate(texts, 1)])


async def test_while_an_index_is_filled_messages_are_appended_and_then_a_search_waits_for_no_writer(
    store: SqliteStore, path: Path
) -> None:
    await append_texts(store, *(f"needle {seq}" for seq in range(1, 3_001)))
    searching = asyncio.create_task(store.search("s", "needle 2999", 1))
    await asyncio.sleep(0)
    await store.append("s", [entry(3_001, "appended")])
    assert not searching.done()
    assert await searching == [2999]
    assert await store.search("s", "appended", 1) == [3001]
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(2):
            assert await store.search("s", "needle 2999", 1) == [2999]


async def test_without_fts5_the_history_is_scanned_and_what_was_indexed_before_goes_stale_unseen(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(db: sqlite3.Connection) -> bool:
        return False

    await append_texts(store, "needle one", "needle two", "needle three")
    assert await store.search("s", "needle", 5) == [3, 2, 1]
    with monkeypatch.context() as patch:
        for module in ("search", "changes"):
            patch.setattr(f"amplifier_context_core.stores.sqlite.{module}.can_index", without)
        assert await store.search("s", "needle", 5) == [3, 2, 1]
        assert await store.search("s", "登", 5) == []
        await store.replace("s", 1, [entry(4, "other")])
    assert await store.search("s", "needle", 5) == [1]
    assert await store.search("s", "other", 5) == [4]


async def test_a_damaged_index_is_rebuilt_and_hinders_no_edit_that_keeps_no_archive(path: Path) -> None:
    store, reported = SqliteStore(path, durability="none", archive=False), list[object]()
    await append_texts(store, "needle one", "two", "needle three")
    for damage in ("id > 10", "id = 1"):
        assert await store.search("s", "needle", 5) == [3, 1]
        await store.close()
        change(path, f"DELETE FROM words_data WHERE {damage}")
        await store.open("s", reported.append)
        assert damage == "id = 1" or await store.search("s", "needle", 5) == [3, 1]
        assert "search index was damaged" in str(reported)
    await store.replace("s", 2, [])
    assert await store.search("s", "needle", 5) == [1]
    await store.close()
    assert b"three" not in path.read_bytes()
