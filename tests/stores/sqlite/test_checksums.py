"""Nothing in a database is trusted alone: rows have checksums, indexes are hints, every error of the driver is ours."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config, repair
from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, Repair
from amplifier_context_core.stores.sqlite import driver, schema
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.sqlite.damage import COMMAND, PAGE, repaired
from tests.stores.sqlite.damaged_schema import (
    SECRET,
    T_ARCHIVE,
    T_HISTORY,
    build,
    empty,
    flip,
    none_left,
    not_text,
    page_of,
)


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


# -- indexes -----------------------------------------------------------------------------------------------------------


def one_less(path: Path) -> None:
    """Flip one bit in the index's cell count: the index has fewer rows than the table."""
    flip(path, page_of(path, "sqlite_autoindex_sessions_1") + 4, 0)


def other_name(path: Path) -> None:
    """Give the session's row another id in the index."""
    at = page_of(path, "sqlite_autoindex_sessions_1")
    flip(path, path.read_bytes().index(b"s", at + 8), 1)  # s becomes q


def other_row(path: Path) -> None:
    """Make the index lead from the session's id to the row of another."""
    at = page_of(path, "sqlite_autoindex_sessions_1")
    data = bytearray(path.read_bytes())
    data[data.index(b"t\x02", at) + 1] = 3
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [one_less, none_left, other_name, other_row])
@pytest.mark.parametrize("name", ["s", "t", "u"])
async def test_a_damaged_index_of_ids_never_makes_a_session_open_as_new(
    path: Path, damage: Callable[[Path], None], name: str
) -> None:
    await build(path)
    damage(path)
    reported: list[Repair] = []
    store = await repaired(SqliteStore(path), name, reported)
    lengths = {"s": 20, "t": 9, "u": 3}
    assert len(await store.read(name)) == lengths[name]
    await store.append(name, [entry(100, session_id=name)])
    assert {info.session_id: info.length for info in await store.sessions()} == lengths | {name: lengths[name] + 1}
    assert all(repair.lost == 0 for repair in reported)
    await store.close()
    for other in lengths:
        assert await store.verify(other) == [] or not reported


async def test_a_damaged_index_is_reported_by_verify_and_repaired(path: Path) -> None:
    for name in ("sqlite_autoindex_sessions_1", "entries_by_seq", "archive_by_session"):
        path.unlink(missing_ok=True)
        await build(path)
        empty(path, name)
        reported: list[Repair] = []
        store = SqliteStore(path)
        assert name in str(await store.verify("t"))
        await store.repair("t", reported.append)
        assert await store.verify("t") == []
        assert [repair.lost for repair in reported] == [0]
        assert [one.seq for one in await store.read("t")] == T_HISTORY
        assert [one.seq for one in await store.archived("t")] == T_ARCHIVE
        await store.close()


async def test_find_misses_nothing_that_a_damaged_index_misses(path: Path) -> None:
    await build(path)
    empty(path, "entries_by_seq")
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=COMMAND):
        await store.find("t", range(20))
    await store.repair(None)
    assert [one.seq for one in await store.find("t", range(20))] == T_HISTORY
    await store.close()


@pytest.mark.parametrize("index", ["entries_by_seq", "archive_by_session"])
async def test_the_archive_is_whole_and_erased_whatever_an_index_says(path: Path, index: str) -> None:
    await build(path)
    empty(path, index)
    store = await repaired(SqliteStore(path), "t", [])
    assert [one.seq for one in await store.archived("t")] == T_ARCHIVE
    await store.close()
    await build_again(path, index)
    with pytest.raises(StoreError, match=COMMAND):
        await store.rewrite("t", [entry(7, "(erased)", session_id="t")])
    await store.repair(None)
    for file in path.parent.glob("*.damaged-*"):
        file.unlink()
    await store.rewrite("t", [entry(seq, "(erased)", session_id="t") for seq in T_ARCHIVE + T_HISTORY])
    assert {one.message["content"] for one in [*await store.archived("t"), *await store.read("t")]} == {"(erased)"}
    await store.close()
    assert SECRET.encode() not in bytes_of(path)


async def test_a_deleted_session_leaves_no_archive_behind_whatever_an_index_says(path: Path) -> None:
    await build(path)
    empty(path, "archive_by_session")
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=COMMAND):
        await store.delete("t")
    await store.repair(None)
    await store.delete("t")
    await store.close()
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM archive NOT INDEXED").fetchone() == (0,)
    db.close()


async def build_again(path: Path, index: str) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    await build(path)
    empty(path, index)


# -- rows --------------------------------------------------------------------------------------------------------------


COLUMNS = {
    "stop": (0, 5, 19, 21, 10**9, -1, "'x'", "x'ff'"),
    "holes": ("'[3]'", "'[25]'", "'[3,2]'", "'{'", "'[null]'", "x'ff'", "7"),
    "last_seq": (0, 10, 2**62, "'x'", -3),
    "updated": (0, "'x'", 2**62, -1),
    "size": (0, "'x'"),
    "indexed": (3, 10**6, "'x'"),
    "archived": (1, -1, "'x'"),
    "crc": (0, "'x'"),
}


@pytest.mark.parametrize(
    ("column", "value"), [(column, value) for column, values in COLUMNS.items() for value in values]
)
async def test_a_damaged_row_of_a_session_is_known_for_damaged_and_made_of_its_messages(
    path: Path, column: str, value: object
) -> None:
    await build(path)
    change(path, f"UPDATE sessions SET {column} = {value} WHERE number = 1")
    reported: list[Repair] = []
    store = await repaired(SqliteStore(path), "s", reported)
    assert await store.extent("s") == Extent(20, 20)
    assert_same(await store.read("s"), entries(1, 20))
    assert await store.load_checkpoint("s") == b"five"
    assert [(repair.session_id, repair.lost) for repair in reported] == [("s", 0)]
    await store.append("s", [entry(21)])
    assert await store.extent("s") == Extent(21, 21)
    assert sorted(info.session_id for info in await store.sessions()) == ["s", "t", "u"]
    assert await store.verify("s") == []
    await store.close()


@pytest.mark.parametrize(("name", "kept"), [("'q'", "q"), ("'t'||char(9)", "recovered-2"), ("x'ff'", "recovered-2")])
async def test_a_session_whose_id_is_lost_is_kept_under_a_reported_one(path: Path, name: str, kept: str) -> None:
    await build(path)
    change(path, f"UPDATE sessions SET id = {name} WHERE id = 't'")  # and so does the index
    reported: list[Repair] = []
    store = await repaired(SqliteStore(path), "t", reported)
    assert await store.extent("t") == Extent()
    assert [repair.session_id for repair in reported] == ["t"]
    assert f"messages of sessions whose ids could not be read are in: {kept}" in reported[0].description
    assert [one.seq for one in await store.read(kept)] == T_HISTORY
    assert_same(await store.read("s"), entries(1, 20))
    await store.close()


@pytest.mark.parametrize("claimed", [True, False])
async def test_entries_of_another_session_count_as_damaged(path: Path, claimed: bool) -> None:
    """A key says to which session an entry belongs, and the checksum covers the key."""
    await build(path)
    step = 1 << schema.SLOT_BITS
    change(path, "DELETE FROM entries WHERE session = 3 AND seq = 2")
    moved = "session = 3, " if claimed else ""
    change(path, f"UPDATE entries SET {moved}id = id + 2 * {step} WHERE session = 1 AND seq = 2")
    change(path, "UPDATE archive SET session = 3 WHERE seq = 7")
    store = await repaired(SqliteStore(path), "u", [])
    assert [one.seq for one in await store.read("u")] == [1, 3]
    assert [one.seq for one in await store.read("s")] == [1, *range(3, 21)]
    assert [one.seq for one in await store.archived("u")] == []
    await store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE leases SET token = x'ff00'",
        "UPDATE leases SET fence = 'x'",
        "UPDATE leases SET pid = x'00'",
        "UPDATE leases SET host = x'c3'",
        "UPDATE leases SET expires = 'soon'",
        "UPDATE leases SET released = 'x'",
        "UPDATE leases SET session = x'ff' WHERE session = 's'",
        "UPDATE facts SET value = NULL",
        "UPDATE facts SET value = 'x'",
        "INSERT INTO facts VALUES ('erasing', 'x')",
        "INSERT INTO repairs(session, what, lost, kept) VALUES ('s', x'ff', 1, '')",
        "INSERT INTO repairs(session, what, lost, kept) VALUES ('s', 'x', 'y', '')",
        "UPDATE checkpoints SET data = 7",
        "UPDATE checkpoints SET crc = 'x'",
        "UPDATE entries SET session = 'x'",
        "UPDATE entries SET session = 3 WHERE session = 2",
        "UPDATE archive SET seq = x'00', turn = 'x', message = 7",
    ],
)
async def test_whatever_is_in_a_column_every_call_ends_in_a_value_or_a_store_error(path: Path, damage: str) -> None:
    await build(path)
    change(path, damage)
    store = SqliteStore(path)
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: store.verify("s"),
        lambda: store.sessions(),
        lambda: store.open("s"),
        lambda: store.open("t"),
        lambda: store.append("s", [entry(50)]),
        lambda: store.find("t", range(20)),
        lambda: store.archived("t"),
        lambda: store.load_checkpoint("s"),
        lambda: store.search("t", "message", 3),
        lambda: store.rewrite("t", [entry(7, "(erased)", session_id="t")]),
        lambda: store.repair("t"),
        lambda: store.fork("t", "child"),
        lambda: store.delete("u"),
        lambda: store.close(),
    ]
    for call in calls:
        with suppress(StoreError):
            await call()
    await store.repair(None)
    assert await store.verify("t") == []
    assert_same(await store.read("s", 0, 20), entries(1, 20))
    await store.close()


# -- the schema --------------------------------------------------------------------------------------------------------


def other_column(path: Path) -> None:
    flip(path, path.read_bytes().index(b"last_seq INTEGER NOT NULL DEFAULT"), 0)


def other_table(path: Path) -> None:
    flip(path, path.read_bytes().index(b"CREATE TABLE archive(") + 14, 1)


def other_root(path: Path) -> None:
    """Make the tables of messages and of archived messages begin at one page."""
    data = bytearray(path.read_bytes())
    at = data.index(b"CREATE TABLE archive(") - 1
    db = sqlite3.connect(path)
    roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master"))
    db.close()
    assert data[at] == roots["archive"]
    data[at] = roots["entries"]
    path.write_bytes(data)


def format_4(path: Path) -> None:
    flip(path, 47, 3)


@pytest.mark.parametrize("damage", [not_text, other_column, other_table, other_root, format_4])
@pytest.mark.parametrize("erased", [False, True])
async def test_a_damaged_schema_loses_nothing(path: Path, damage: Callable[[Path], None], erased: bool) -> None:
    await build(path)
    if erased:  # a VACUUM has moved the tables
        change(path, "VACUUM")
    damage(path)
    store = SqliteStore(path)
    assert (await store.verify("s")) != []
    reported: list[Repair] = []
    await repaired(store, "t", reported)
    assert [one.seq for one in await store.read("t")] == T_HISTORY
    assert [one.seq for one in await store.archived("t")] == T_ARCHIVE
    assert_same(await store.read("s"), entries(1, 20))
    assert await store.load_checkpoint("s") == b"five"
    assert sum(repair.lost for repair in reported) == 0
    await store.repair(None)
    assert await store.verify("s") == []
    await store.close()


@pytest.mark.parametrize("searched", [False, True])
async def test_without_its_first_page_a_database_that_was_rewritten_loses_nothing(path: Path, searched: bool) -> None:
    await build(path)
    store = SqliteStore(path)
    if searched:
        assert await store.search("s", "module", 3)
    await store.close()
    change(path, "VACUUM")
    data = bytearray(path.read_bytes())
    data[:PAGE] = bytes(PAGE)
    path.write_bytes(data)
    await repaired(store, "t", [])
    assert [one.seq for one in await store.read("t")] == T_HISTORY
    assert [one.seq for one in await store.archived("t")] == T_ARCHIVE
    assert await store.load_checkpoint("s") == b"five"
    await store.close()


async def test_a_manager_names_the_command_that_repairs_and_goes_on_after_it(path: Path) -> None:
    manager = ContextManager(load_config({}), session_id="s", store=SqliteStore(path))
    for number in range(5):
        await manager.add_message({"role": "user", "content": f"message {number}"})
    await manager.close()
    not_text(path)
    identity = path.stat().st_ino
    manager = ContextManager(load_config({}), session_id="s", store=SqliteStore(path))
    for _ in range(2):
        with pytest.raises(StoreError, match=COMMAND):
            await manager.add_message({"role": "user", "content": "the next"})
    await manager.close()
    assert path.stat().st_ino == identity
    assert await asyncio.to_thread(repair.main, [str(path)]) == 0
    manager = ContextManager(load_config({}), session_id="s", store=SqliteStore(path))
    assert len(await manager.get_messages()) == 5
    await manager.add_message({"role": "user", "content": "the next"})
    assert len(await manager.get_messages()) == 6
    await manager.close()


# -- the driver --------------------------------------------------------------------------------------------------------


def test_undocumented_errors_of_the_driver_become_documented_ones(path: Path) -> None:
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("CREATE TABLE a(b)")
    plain.execute("PRAGMA writable_schema = ON")
    plain.execute("UPDATE sqlite_master SET sql = CAST(x'435245415445205441424c45206128622920ff' AS TEXT)")
    plain.close()
    with pytest.raises(UnicodeDecodeError):
        sqlite3.connect(path).execute("SELECT 1 FROM sqlite_master")
    db = sqlite3.connect(path, factory=driver.CheckedConnection)
    for run in (db.execute, lambda sql: db.cursor(driver.CheckedCursor).execute(sql)):  # pyright: ignore[reportUnknownLambdaType]
        with pytest.raises(sqlite3.DatabaseError) as caught:
            run("SELECT 1 FROM sqlite_master")
        assert caught.value.sqlite_errorname == "SQLITE_CORRUPT"
    with pytest.raises(sqlite3.DataError):
        sqlite3.connect(":memory:", factory=driver.CheckedConnection).execute("SELECT ?", (2**64,))
    db.close()


async def test_a_refused_row_is_an_error_and_changes_no_file(path: Path) -> None:
    """A constraint that fails is a fault of the package, and no damage: the other sessions go on."""
    await build(path)
    change(path, "CREATE UNIQUE INDEX fault ON entries(turn) WHERE seq = 21")
    store = SqliteStore(path)
    await store.append("s", [entry(21, turn=7)])
    identity = path.stat().st_ino
    with pytest.raises(StoreError, match="refused a row"):
        await store.append("t", [entry(21, turn=7, session_id="t")])
    assert await store.extent("t") == Extent(9, 14)
    await store.append("t", [entry(22, session_id="t")])
    assert path.stat().st_ino == identity
    assert not [file for file in path.parent.iterdir() if "damaged" in file.name]
    await store.close()


async def test_settings_and_tables_of_an_operator_are_no_damage(path: Path) -> None:
    await build(path)
    change(
        path,
        "PRAGMA auto_vacuum = FULL",
        "VACUUM",
        "CREATE INDEX by_turn ON entries(session, turn)",
        "CREATE TABLE notes(text)",
    )
    store = SqliteStore(path)
    reported: list[Repair] = []
    assert await store.open("s", reported.append) == Extent(20, 20)
    await store.append("s", [entry(21)])
    assert await store.verify("s") == []
    await store.close()
    assert reported == []
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_a_number_past_64_bits_is_a_store_error(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="number this large"):
        await store.append("s", [entry(1, tokens=2**70)])
    assert await store.extent("s") == Extent()
    await store.close()


async def test_an_error_of_the_driver_while_repairing_is_a_store_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await build(path)
    change(path, "UPDATE sessions SET stop = 3 WHERE id = 's'")
    store = SqliteStore(path)

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("some words of a message")

    monkeypatch.setattr("amplifier_context_core.stores.sqlite.engine.pop_repairs", fail)
    with pytest.raises(StoreError) as caught:
        await store.repair("s")
    assert "some words" not in str(caught.value)
    await store.close()


async def test_a_file_of_which_nothing_can_be_saved_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(8_000))
    copied: list[Path] = []

    def note(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())
        copied.append(source)

    monkeypatch.setattr("amplifier_context_core.stores.sqlite.recovery._copy", note)
    store = SqliteStore(path)
    for _ in range(3):
        with pytest.raises(StoreError, match="restore a backup"):
            await store.repair(None)
    assert copied == [path]
    await store.close()
