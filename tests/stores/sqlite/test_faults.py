"""Real faults around a SQLite database: the caller gets advice, and continues when they end."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import OutcomeUnknown, StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.sqlite import engine, errors
from amplifier_context_core.stores.sqlite.driver import Connection
from amplifier_context_core.stores.sqlite.errors import driver_error
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.sqlite.damage import change


async def test_a_full_database_fails_the_call_and_nothing_else(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = engine.open_database

    def limited(*arguments: Any) -> sqlite3.Connection:
        db = whole(*arguments)
        db.execute("PRAGMA max_page_count = 30")
        return db

    big = [entry(seq, "x" * 90_000) for seq in range(10, 16)]
    with monkeypatch.context() as patch:
        patch.setattr(engine, "open_database", limited)
        await store.append("s", entries(1, 3))
        came = await asyncio.gather(
            store.append("a", entries(1, 1)),
            store.append("s", big),
            store.append("b", entries(1, 1)),
            return_exceptions=True,
        )
        assert [type(one).__name__ for one in came] == ["NoneType", "StoreError", "NoneType"]
        with pytest.raises(StoreError, match=r"cannot grow: the disk is full; free some space"):
            await store.save_checkpoint("s", 1, b"x" * 300_000)
        assert_same(await store.read("s"), entries(1, 3))
    await store.close()
    await store.append("s", big)
    assert (await store.extent("s")).length == 9


async def test_a_database_locked_by_another_program_is_reported_and_read(path: Path, store: SqliteStore) -> None:
    await store.append("s", entries(1, 1))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another process"):
            await store.append("s", entries(2, 2))
        assert_same(await store.read("s"), entries(1, 1))  # a reader need not wait
    await store.append("s", entries(2, 2))
    assert_same(await store.read("s"), entries(1, 2))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE])
async def test_a_database_that_cannot_be_created_is_reported_and_created_later(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("amplifier_context_core.stores.sqlite.schema.make_file", refuse)
        assert await store.read("s") == []
        for call in (store.append("s", entries(1, 1)), store.save_checkpoint("s", 0, b"")):
            with pytest.raises(StoreError, match=rf"sessions.db cannot.*\({errno.errorcode[code]}\)"):
                await call
    await store.append("s", entries(1, 1))
    assert await store.extent("s") == Extent(1, 1)


async def test_what_a_failed_commit_may_have_written_is_not_written_twice(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite writes the whole transaction to its log before it syncs the log: after a failed sync it may be there."""
    execute = Connection.execute

    def unsynced(db: Connection, sql: str, *parameters: Any) -> sqlite3.Cursor:
        done = execute(db, sql, *parameters)
        if sql == "COMMIT":
            raise driver_error(sqlite3.OperationalError, "disk I/O error", "SQLITE_IOERR_FSYNC")
        return done

    await store.append("s", entries(1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "execute", unsynced)
        came = await asyncio.gather(
            store.append("s", entries(2, 2)), store.append("t", entries(1, 1)), return_exceptions=True
        )
        assert [type(one) for one in came] == [OutcomeUnknown, OutcomeUnknown]
    assert_same(await store.read("s"), entries(1, 2))
    assert_same(await store.read("t"), entries(1, 1))


def test_every_error_of_the_driver_is_one_of_ours_and_quotes_no_content(path: Path) -> None:
    kinds = [kind for _, kind in inspect.getmembers(sqlite3, inspect.isclass) if issubclass(kind, sqlite3.Error)]
    assert len(kinds) > 8
    for kind in kinds:
        outcome = str(errors.store_error(kind("some words of a message"), path))
        assert outcome == f"the database {path} could not do what was asked ({kind.__name__})"


async def test_a_listener_for_repairs_may_fail(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("theirs")

    await store.append("s", entries(1, 3))
    await store.open("s", fail)
    change(path, "UPDATE entries SET crc = 0 WHERE seq = 2")
    assert [one.seq for one in await store.read("s")] == [1, 3]
    assert "a listener for repairs failed (RuntimeError)" in caplog.text
    assert "1 damaged message was left out. " in caplog.text
