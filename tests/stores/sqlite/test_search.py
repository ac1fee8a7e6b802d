"""The search index in a SQLite database: what it finds, in which order, and that it keeps up."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_core.transcript.search import ScanIndex
from amplifier_context_testing.contract.samples import entry
from tests.stores.sqlite.damage import change


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, durability="none")
    yield store
    await store.close()


async def append_texts(store: SqliteStore, *texts: str) -> None:
    await store.append("s", [entry(seq, text) for seq, text in enumerate(texts, 1)])


WORDS = ["alpha", "src/beta.py", "gamma_7", "登录", "DELTA", "epsilon"]


async def test_one_word_finds_what_a_scan_finds_in_the_same_order(store: SqliteStore) -> None:
    """Words that begin no other word; of several words, both find the same entries."""

    @given(st.lists(st.lists(st.sampled_from(WORDS), max_size=4), min_size=1, max_size=12))
    def agree(talks: list[list[str]]) -> None:
        history = [entry(seq, " ".join(talk) or "-") for seq, talk in enumerate(talks, 1)]

        async def compare() -> None:
            await store.replace("s", 0, history)
            for word in WORDS:
                scanned = [one.seq for one in ScanIndex().search(history, word, 5)]
                assert await store.search("s", word, 5) == scanned
            scanned = [one.seq for one in ScanIndex().search(history, "alpha epsilon", 99)]
            assert sorted(await store.search("s", "alpha epsilon", 99)) == sorted(scanned)

        asyncio.run(compare())

    await asyncio.to_thread(agree)


# -- updating the index -----------------------------------------------------------------------------------------------


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


async def test_a_damaged_index_is_rebuilt(path: Path, store: SqliteStore) -> None:
    reported: list[object] = []
    await store.open("s", reported.append)
    await append_texts(store, "needle one", "two", "needle three")
    assert await store.search("s", "needle", 5) == [3, 1]
    await store.close()
    change(path, "DELETE FROM words_data WHERE id > 10")
    await store.open("s", reported.append)
    assert await store.search("s", "needle", 5) == [3, 1]
    assert "search index was damaged" in str(reported)


async def test_a_damaged_index_does_not_hinder_an_edit_that_keeps_no_archive(path: Path) -> None:
    store = SqliteStore(path, durability="none", archive=False)
    await append_texts(store, "needle one", "two", "needle three")
    assert await store.search("s", "needle", 5) == [3, 1]
    await store.close()
    change(path, "DELETE FROM words_data WHERE id = 1")
    await store.replace("s", 2, [])
    assert await store.search("s", "needle", 5) == [1]
    await store.close()
    assert b"three" not in path.read_bytes()
