"""Snapshots of a SQLite database: the connection that one search used serves the next, and hinders no other."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.sqlite import snapshots
from amplifier_context_core.stores.sqlite.schema import connection_count, sidecar
from amplifier_context_core.stores.sqlite.snapshots import Snapshots
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entry
from tests.stores.searched import append_texts


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, durability="none")
    await append_texts(store, "some words")
    yield store
    await store.close()


async def test_a_later_search_opens_no_connection_and_finds_what_was_added(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await store.search("s", "words", 5) == [1]
    monkeypatch.delattr(snapshots, "open_to_read")
    await store.append("s", [entry(2, "other words")])
    assert await store.search("s", "words", 5) == [2, 1]


async def test_between_searches_nothing_is_read_from_the_log(store: SqliteStore, path: Path) -> None:
    await store.search("s", "words", 5)
    await store.append("s", [entry(2, "other words")])
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, "a reader is in its way"
    other.close()


async def test_a_closed_store_leaves_no_connection_and_no_log(store: SqliteStore, path: Path) -> None:
    await store.search("s", "words", 5)
    await store.close()
    assert connection_count(path) == 0
    assert not sidecar(path, "-wal").exists()


async def test_a_connection_in_use_is_closed_at_its_end_if_the_database_was_closed_meanwhile(
    store: SqliteStore, path: Path
) -> None:
    await store.close()
    opened = Snapshots(path, 1.0)
    with opened.open(keeps=True):
        opened.close()
        assert connection_count(path) == 1
    assert connection_count(path) == 0


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_connection_is_closed_after_an_error_and_if_it_is_not_to_be_kept(
    store: SqliteStore, path: Path, keeps: bool
) -> None:
    await store.close()
    opened = Snapshots(path, 1.0)
    with opened.open(keeps=False):
        pass
    assert connection_count(path) == 0
    with pytest.raises(StoreError), opened.open(keeps=keeps):
        raise StoreError("of the task")
    assert connection_count(path) == 0
