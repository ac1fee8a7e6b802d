"""What is peculiar to SQLite: files, versions, groups, locks, faults of the system, the search index, format 2."""

import asyncio
import errno
import fcntl
import inspect
import lzma
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import filelock
import pytest

from amplifier_context_core import repair
from amplifier_context_core.errors import OutcomeUnknown, SessionInUse, StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.sqlite import engine, errors, schema
from amplifier_context_core.stores.sqlite.driver import Connection
from amplifier_context_core.stores.sqlite.errors import driver_error
from amplifier_context_core.stores.sqlite.locks import SessionLocks
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.refusals import refused
from tests.stores.sqlite.damage import change, overwritten_page


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (f"PRAGMA user_version = {schema.VERSION + 1}", "newer version"),
        ("PRAGMA user_version = 1", "has format 1, .* open it once with commit 37ba2a6"),
        ("PRAGMA application_id = 7", "another application"),
    ],
)
async def test_a_database_that_another_program_wrote_is_refused_and_left_as_it_is(
    path: Path, store: SqliteStore, damage: str, says: str
) -> None:
    path.touch()  # an empty file becomes a database
    await store.append("s", entries(1, 1))
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT session, seq, message ->> 'role' FROM messages").fetchall() == [("s", 1, "user")]
    change(path, damage)
    before = path.read_bytes()
    await refused(store.read("s"), store.append("s", entries(2, 2)), store.open("s"), says=says)
    assert await store.verify("s") != []
    await store.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize(("durability", "synchronous"), [("fsync", 2), ("flush", 1), ("none", 0)])
async def test_durability_sets_the_synchronous_mode(path: Path, durability: str, synchronous: int) -> None:
    store = SqliteStore(path, durability=durability)  # type: ignore[arg-type]
    seen: list[object] = []
    await store.open("s")
    await store._engine.write(lambda db: seen.append(db.execute("PRAGMA synchronous").fetchone()))  # pyright: ignore[reportPrivateUsage]
    await store.close()
    assert seen == [(synchronous,)]


async def test_appends_that_come_together_share_commits(store: SqliteStore) -> None:
    commits: list[str] = []
    await store.append("first", entries(1, 1))
    await store._engine.read(lambda db: db.set_trace_callback(commits.append))  # pyright: ignore[reportPrivateUsage]
    for first in range(1, 11):
        await asyncio.gather(*(store.append(f"session {n}", entries(first, first)) for n in range(16)))
    assert commits.count("COMMIT") < 40  # of 160 appends


async def test_a_change_that_fails_takes_none_of_its_group_along_and_leaves_their_locks(
    store: SqliteStore, other: SqliteStore
) -> None:
    await other.open("taken")
    bad = entry(1, "x")
    bad.message["content"] = b"no JSON"
    came = await asyncio.gather(
        store.append("a", entries(1, 2)),
        store.append("taken", entries(1, 2)),
        store.append("b", [entry(1), bad]),
        store.append("c", [bad]),
        store.append("c", entries(1, 2)),
        store.replace("a", 9, []),
        store.append("a", entries(3, 3)),
        return_exceptions=True,
    )
    assert [type(one) for one in came if one] == [SessionInUse, TypeError, TypeError, StoreError]
    assert [(await store.extent(name)).length for name in ("a", "taken", "b", "c")] == [3, 0, 0, 2]
    await other.open("b")  # a failed task has acquired no lock
    await refused(other.open("c"), error=SessionInUse)


async def test_a_long_read_mixes_no_two_states(path: Path, other: SqliteStore) -> None:
    store = SqliteStore(path, durability="none")
    await store.append("s", entries(1, 5_000))
    readings = [asyncio.create_task(one.read("s")) for one in (store, other)]
    await asyncio.sleep(0)
    await store.replace("s", 10, entries(6_000, 8_000))
    before, new = list(range(1, 5_001)), [*range(1, 11), *range(6_000, 8_001)]
    assert [one.seq for one in await readings[0]] == before
    assert [one.seq for one in await readings[1]] in (before, new)
    await store.close()


FILES = ("", "-wal", "-shm")


def move(path: Path, to: Path) -> None:
    for ending in FILES:
        schema.sidecar(path, ending).rename(schema.sidecar(to, ending))


async def fail(store: SqliteStore) -> None:
    """Let a call of a store fail as on a disk that cannot be read: its connection is closed."""

    def raise_error(_: object) -> None:
        raise driver_error(sqlite3.OperationalError, "disk I/O error", "SQLITE_IOERR")

    with pytest.raises(StoreError):
        await store._engine.write(raise_error)  # pyright: ignore[reportPrivateUsage]


async def test_a_session_whose_file_was_removed_does_not_begin_again(path: Path, store: SqliteStore) -> None:
    """It is noticed when the file is opened again, here after an error."""
    await store.append("s", entries(1, 2))
    move(path, path.with_name("away.db"))
    await fail(store)
    for call in (store.append("s", entries(3, 3)), store.replace("s", 0, []), store.append("s", entries(3, 3))):
        with pytest.raises(StoreError, match=f"another program removed or replaced {path}; .*release its sessions"):
            await call
    await store.release("s")
    await store.append("t", entries(1, 1, session_id="t"))  # others may begin in a new file
    await store.close()
    path.unlink()
    move(path.with_name("away.db"), path)
    assert await store.open("s") == Extent(2, 2)


@pytest.mark.parametrize("closed", [True, False])
async def test_a_file_that_was_replaced_is_not_mixed_with_the_log_of_the_former_one(
    path: Path, store: SqliteStore, closed: bool
) -> None:
    theirs = SqliteStore(path.with_name("other.db"))
    await theirs.append("s", entries(1, 1))
    await theirs.close()
    await store.append("s", entries(1, 200))
    path.with_name("other.db").replace(path)
    await (store.close() if closed else fail(store))
    await store.release("s")
    await store.open("s")
    await store.append("s", entries(2, 3))
    assert await store.verify("s") == []
    assert [one.seq for one in await store.read("s")] == [1, 2, 3]
    await store.close()
    (kept,) = (file for file in path.parent.iterdir() if ".damaged-" in file.name)
    assert kept.name.endswith("-wal")
    assert kept.stat().st_size


async def test_changes_that_fail_leave_their_session_free_and_ended_ones_no_lock(
    path: Path, store: SqliteStore, other: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_locks = Mock(side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)))
    await other.append("t", entries(1, 1, session_id="t"))
    await refused(store.fork("t", "s", 9))
    await store.close()
    (interrupted := path.with_name("sessions.db.repaired")).touch()
    await refused(store.open("s"), says="interrupted")
    interrupted.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(filelock.FileLock, "_acquire", no_locks)
        with pytest.raises(StoreError, match=f"session 's' cannot be locked: the file system of {path}.* has no locks"):
            await store.append("s", entries(1, 1))
    await other.open("s")
    await other.close()
    await store.append("a", entries(1, 1, session_id="a"))
    await store.append("b", entries(1, 1, session_id="b"))
    await store.delete("a")
    assert len(list((folder := path.with_name("sessions.db.locks")).iterdir())) == 1
    await store.close()
    assert not folder.exists()


def test_a_listing_that_looks_at_a_lock_keeps_no_writer_from_it(tmp_path: Path) -> None:
    """It looks at the lock that a killed process left. In a busy process it has the lock for some 10 ms."""
    path = tmp_path / "left.lock"
    path.write_text("pid 1 on host, since then")
    locks = SessionLocks(tmp_path, path.name)
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        timer = threading.Timer(0.02, fcntl.flock, (looking, fcntl.LOCK_UN))
        timer.start()
        assert locks.acquire("s")
        timer.join()
    locks.release_all()


async def test_a_session_whose_close_fails_is_free(
    store: SqliteStore, other: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("s", entries(1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(engine.SqliteEngine, "disconnect", Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
        await refused(store.close())
    await other.append("s", entries(2, 2))
    assert_same(await other.read("s"), entries(1, 2))


@pytest.mark.parametrize(("of_file", "of_folder"), [(0o644, 0o555), (0o444, 0o755)])
async def test_a_read_only_database_is_read_and_no_log_that_cannot_be_read_along_is_left_out(
    of_file: int, of_folder: int
) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "sessions.db"
        store, logged = SqliteStore(path), SqliteStore(path.with_name("copy.db"))
        await store.append("s", entries(1, 1_200))
        for ending in FILES[:2]:
            shutil.copy(schema.sidecar(path, ending), schema.sidecar(path.with_name("copy.db"), ending))
        await store.close()
        path.chmod(of_file)
        path.parent.chmod(of_folder)
        os.seteuid(user or 65_534)  # permissions do not apply to root
        try:
            found = await store.sessions(), await store.read("s"), await store.search("s", "message 7", 3)
            assert [len(one) for one in found] == [1, 1_200, 1]
            for call in (store.append("s", entries(1_201, 1_201)), store.rewrite("s", [entry(1)]), logged.read("s")):
                with pytest.raises(StoreError, match="cannot be"):
                    await call
            await store.close()
            await logged.close()
        finally:
            os.seteuid(user)
        path.parent.chmod(0o755)


async def test_a_database_locked_by_another_program_is_reported_and_read(path: Path, store: SqliteStore) -> None:
    await store.append("s", entries(1, 1))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        await refused(store.append("s", entries(2, 2)), says="locked by another process")
        assert_same(await store.read("s"), entries(1, 1))  # a reader need not wait
    await store.append("s", entries(2, 2))
    assert_same(await store.read("s"), entries(1, 2))


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


async def test_a_damaged_index_is_rebuilt_and_hinders_no_edit_that_keeps_no_archive(path: Path) -> None:
    store, reported = SqliteStore(path, durability="none", archive=False), list[object]()
    await store.append("s", [entry(seq, text) for seq, text in enumerate(("needle one", "two", "needle three"), 1)])
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


async def test_while_an_index_is_filled_messages_are_appended_and_then_a_search_waits_for_no_writer(
    path: Path, store: SqliteStore
) -> None:
    await store.append("s", [entry(seq, f"needle {seq}") for seq in range(1, 8_001)])
    searching = asyncio.create_task(store.search("s", "needle 7999", 1))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        while writer.execute("SELECT indexed FROM sessions").fetchone() == (0,):
            await asyncio.sleep(0)
        await store.append("s", [entry(8_001, "appended")])
        assert writer.execute("SELECT indexed FROM sessions").fetchone() < (8_000,)
        assert await searching == [7999]
        assert await store.search("s", "appended", 1) == [8001]
        writer.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(2):
            assert await store.search("s", "needle 7999", 1) == [7999]


@pytest.mark.parametrize(("version", "module"), [((3, 33, 0), "'fts5'"), (sqlite3.sqlite_version_info, "'no fts5'")])
async def test_without_fts5_or_its_trigrams_the_history_is_scanned_and_what_was_indexed_goes_stale_unseen(
    store: SqliteStore, version: tuple[int, ...], module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(db: Connection, statement: str, *values: Any) -> sqlite3.Cursor:
        assert "words" not in statement, "no such module"
        return execute(db, statement.replace("'fts5'", module), *values)

    execute = Connection.execute
    await store.append("s", [entry(seq, f"needle {seq}") for seq in (1, 2, 3)])
    assert await store.search("s", "needle", 5) == [3, 2, 1]
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "execute", without)
        patch.setattr(sqlite3, "sqlite_version_info", version)
        assert await store.search("s", "needle", 5) == [3, 2, 1]
        assert await store.search("s", "登", 5) == []
        await store.replace("s", 1, [entry(4, "other")])
    assert await store.search("s", "needle", 5) == [1]
    assert await store.search("s", "other", 5) == [4]


RECORDED = Path(__file__).with_name("format_2.db.xz")
"""Four sessions: one plain, one edited, a fork, and one whose messages 3 and 6 were damaged and taken out."""


@pytest.fixture
def former(path: Path) -> Path:
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    return path


async def assert_whole(store: SqliteStore) -> None:
    assert_same(await store.read("s"), entries(1, 12))
    assert await store.load_checkpoint("s") == b"five"
    assert_same(await store.read("t"), [*entries(1, 6, session_id="t"), entry(10, session_id="t")])
    assert_same(await store.archived("t"), entries(7, 9, session_id="t"))
    assert await store.load_checkpoint("t") == b"seven"
    assert_same(await store.read("child"), entries(1, 4))
    assert await store.extent("child") == Extent(4, 12)
    left = [one for one in entries(1, 8, session_id="holes") if one.seq not in (3, 6)]
    assert_same(await store.read("holes"), left)
    assert_same(await store.find("holes", [8, 4]), [left[2], left[5]])
    assert [info.session_id for info in await store.sessions()] == ["holes", "child", "t", "s"]


async def test_a_database_of_format_2_is_carried_over_and_goes_on(former: Path, store: SqliteStore) -> None:
    change(former, "CREATE TRIGGER refuse BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreError):  # what fails leaves the database as it was
        await store.read("s")
    await store.close()
    change(former, "DROP TRIGGER refuse")
    await store.open("holes")
    await assert_whole(store)
    assert sorted(await store.search("holes", "module", 9)) == [1, 2, 5]
    await store.append("new", entries(1, 1, session_id="new"))
    for name in ("s", "t", "child", "holes"):
        assert await store.verify(name) == []
    await store.append("holes", [entry(9, session_id="holes")])
    await store.close()
    assert [one.seq for one in await store.read("holes")] == [1, 2, 4, 5, 7, 8, 9]
    with closing(sqlite3.connect(former)) as db:
        assert db.execute("SELECT number FROM sessions WHERE id = 'new'").fetchone() == (6,)  # 4 was deleted
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'damaged'").fetchone() is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: overwritten_page(path, "leases", 0),
        lambda path: change(path, "UPDATE sessions SET last_seq = 0 WHERE id = 's'"),
    ],
)
async def test_a_damaged_one_is_not_carried_over_and_the_version_that_repairs_it_is_named(
    former: Path, store: SqliteStore, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(former)
    await refused(store.read("s"), says=r"amplifier_context_core\.repair")
    await store.close()
    before = former.read_bytes()
    assert await asyncio.to_thread(repair.main, [str(former)]) == 1
    assert "has format 2, which is repaired by the version that wrote it: open it with commit 37ba2a6" in (
        capsys.readouterr().err
    )
    assert former.read_bytes() == before
