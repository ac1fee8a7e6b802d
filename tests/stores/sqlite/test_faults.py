"""Real faults around a SQLite database: the caller gets advice, and continues when they end."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine, Generator
from functools import partial
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
from tests.stores.jsonl.files import running
from tests.stores.sqlite.damage import change

BIG = [entry(seq, "x" * 90_000) for seq in range(10, 16)]


async def test_a_full_database_fails_the_call_and_nothing_else(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = engine.open_database

    def limited(*arguments: Any) -> sqlite3.Connection:
        db = whole(*arguments)
        db.execute("PRAGMA max_page_count = 30")
        return db

    with monkeypatch.context() as patch:
        patch.setattr(engine, "open_database", limited)
        await store.append("s", entries(1, 3))
        with pytest.raises(StoreError, match=r"cannot grow: the disk is full; free some space"):
            await store.append("s", BIG)
        came = await asyncio.gather(
            store.append("a", entries(1, 1)),
            store.append("s", BIG),
            store.append("b", entries(1, 1)),
            return_exceptions=True,
        )
        assert [type(one).__name__ for one in came] == ["NoneType", "StoreError", "NoneType"]
        with pytest.raises(StoreError, match="disk is full"):
            await store.save_checkpoint("s", 1, b"x" * 300_000)
        assert_same(await store.read("s"), entries(1, 3))
    await store.close()
    await store.append("s", BIG)
    assert (await store.extent("s")).length == 9
    assert await store.verify("s") == []


WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("begin immediate")
print("ready", flush=True)
sys.stdin.read()
"""


async def test_a_database_locked_by_another_process_is_waited_for_and_reported(path: Path, store: SqliteStore) -> None:
    await store.append("s", entries(1, 1))
    with running(WRITER, str(path)):
        with pytest.raises(StoreError, match="locked by another process"):
            await store.append("s", entries(2, 2))
        assert_same(await store.read("s"), entries(1, 1))  # a reader need not wait
    await store.append("s", entries(2, 2))
    assert_same(await store.read("s"), entries(1, 2))


def without_privileges(work: Callable[[], Coroutine[Any, Any, object]]) -> str:
    """Run work in a process that file permissions apply to (they do not apply to root), and return its outcome."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgid(65_534)
                os.setuid(65_534)
            outcome = repr(asyncio.run(work()))
        except BaseException as problem:  # noqa: BLE001 - sent to the parent process
            outcome = f"{type(problem).__name__}: {problem}"
        os.write(write, outcome.encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as came:
        outcome = came.read()
    os.waitpid(child, 0)
    return outcome


@pytest.fixture
def open_folder() -> Generator[Path]:
    """Yield a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize(
    "modes", [(0o600, 0o555), (0o444, 0o755), (0o444, 0o555)], ids=["read-only folder", "read-only file", "both"]
)
async def test_a_read_only_database_is_read_and_no_log_that_cannot_be_read_along_is_left_out(
    open_folder: Path, modes: tuple[int, int]
) -> None:
    path = open_folder / "sessions.db"
    store = SqliteStore(path)
    await store.append("s", entries(1, 1_200))
    for ending in ("", "-wal"):
        path.with_name(f"copy.db{ending}").write_bytes(path.with_name(path.name + ending).read_bytes())
    await store.close()
    path.chmod(modes[0] | 0o044)
    open_folder.chmod(modes[1])
    reader = SqliteStore(path)

    async def read() -> object:
        listed = [info.session_id for info in await reader.sessions()]
        found = await reader.search("s", "message 7", 3)
        counts = [len(some) for some in (await reader.read("s"), await reader.find("s", [7]), found)]
        return listed, counts, await reader.verify("s")

    assert await asyncio.to_thread(without_privileges, read) == "(['s'], [1200, 1, 1], [])"
    refused = await asyncio.to_thread(without_privileges, partial(reader.append, "s", entries(1_201, 1_201)))
    assert refused.startswith(f"StoreError: the database {path} cannot be ")
    assert sorted(file.name for file in open_folder.iterdir()) == ["copy.db", "copy.db-wal", "sessions.db"]
    logged = SqliteStore(open_folder / "copy.db")
    outcome = await asyncio.to_thread(without_privileges, partial(logged.read, "s"))
    assert outcome.startswith(f"StoreError: the database {open_folder / 'copy.db'} cannot be ")


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


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list open files")
async def test_openings_that_fail_leave_no_file_open(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    async def left_open() -> int:
        with pytest.raises(StoreError):
            await store.append("s", entries(1, 1))
        return len(list(Path("/proc/self/fd").iterdir()))

    with monkeypatch.context() as patched:
        patched.setattr(engine, "open_database", fail)
        before = await left_open()
        assert [await left_open() for _ in range(5)] == [before] * 5
    await store.append("s", entries(1, 1))
