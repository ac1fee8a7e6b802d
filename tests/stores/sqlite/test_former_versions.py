"""Databases of former versions are brought up to date, or read as they are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from amplifier_context_core.stores.sqlite import schema
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.sqlite.damaged_schema import T_ARCHIVE, T_HISTORY, build


def downgrade(path: Path) -> None:
    """Write a database like version 1: sessions without checksums, entries whose checksum covers only their slot."""
    old = sqlite3.connect(path)
    rows = {
        table: old.execute(f"SELECT * FROM {table}").fetchall()
        for table in ("facts", "sessions", "entries", "archive", "checkpoints", "leases")
    }
    old.close()
    path.unlink()
    new = sqlite3.connect(path, isolation_level=None)
    for statement in schema._CREATE_TABLES:  # pyright: ignore[reportPrivateUsage]
        new.execute(statement)
    new.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    new.execute("PRAGMA user_version = 1")
    for table, found in rows.items():
        for row in found:
            values = list(row[:8] if table == "sessions" else row)
            if table == "entries":
                values[-1] -= values[0] >> schema.SLOT_BITS << schema.SLOT_BITS
            elif table == "archive":
                values[-1] -= values[1] << schema.SLOT_BITS
            new.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    new.execute("PRAGMA journal_mode = WAL")
    new.close()


async def assert_whole(store: SqliteStore) -> None:
    assert_same(await store.read("s"), entries(1, 20))
    assert [one.seq for one in await store.read("t")] == T_HISTORY
    assert [one.seq for one in await store.archived("t")] == T_ARCHIVE
    assert await store.load_checkpoint("s") == b"five"
    assert await store.verify("t") == []


async def test_a_database_of_version_1_is_brought_up_to_date(path: Path) -> None:
    await build(path)
    downgrade(path)
    store = SqliteStore(path)
    assert await store.verify("s") == []
    await store.append("s", [entry(21)])
    await store.replace("s", 20, [])
    await assert_whole(store)
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["sessions.db"]


async def test_a_database_of_version_1_that_may_only_be_read_is_read(path: Path) -> None:
    await build(path)
    downgrade(path)
    before = path.read_bytes()
    db = schema.open_to_read(path, 1.0)
    assert db.execute("SELECT count(*) FROM sessions WHERE crc <> 0").fetchone() == (3,)
    schema.disconnect(db, path)
    assert path.read_bytes() == before
