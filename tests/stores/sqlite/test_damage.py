"""Damaged SQLite databases: readable data is recovered, the rest is reported, nothing is silent."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, Repair
from amplifier_context_core.stores.sqlite import recovery, schema
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.other_process import running
from tests.stores.sqlite.damage import COMMAND, repaired


async def build(path: Path, count: int = 300) -> None:
    """Make a database of two sessions, closed."""
    store = SqliteStore(path, durability="none")
    await store.append("s", entries(1, count))
    await store.append("t", entries(1, 20, session_id="t"))
    await store.replace("t", 15, [])
    await store.save_checkpoint("s", 5, b"five")
    await store.save_checkpoint("t", 15, b"fifteen")
    await store.close()


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


def damaged_files(path: Path) -> list[Path]:
    return sorted(file for file in path.parent.iterdir() if ".damaged-" in file.name)


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "message = 'no JSON'",
        "message = replace(message, 'module', 'nodule')",  # still JSON: only the checksum shows it
        "message = x'ff00fe'",
        "tokens = tokens + 1",
        "seq = 999",
        "extra = '{'",
        "crc = 'x'",
        "message = '[]'",
    ],
)
async def test_a_damaged_row_is_left_out_quarantined_and_reported(path: Path, damage: str) -> None:
    await build(path, 9)
    change(path, f"UPDATE entries SET {damage} WHERE session = 1 AND seq = 5")
    reported: list[Repair] = []
    store = SqliteStore(path)
    assert await store.open("s", reported.append) == Extent(9, 9)
    assert_same(await store.read("s"), [*entries(1, 4), *entries(6, 9)])
    assert [(repair.session_id, repair.lost) for repair in reported] == [("s", 1)]
    assert "damaged" in reported[0].quarantined_at
    assert (await store.extent("s")).length == 8
    assert_same(await store.read("s", 3, 6), [*entries(4, 4), *entries(6, 7)])
    assert_same(await store.read("s", -5), [*entries(4, 4), *entries(6, 9)][-5:])
    assert_same(await store.find("s", [4, 5, 6]), [*entries(4, 4), *entries(6, 6)])
    assert await store.load_checkpoint("s") is None  # it covered the damaged one, too
    await store.append("s", entries(10, 10))
    await store.replace("s", 8, entries(11, 12))
    assert_same(await store.read("s"), [*entries(1, 4), *entries(6, 9), *entries(11, 12)])
    assert len(reported) == 1
    await store.close()
    assert_same(await store.read("s"), [*entries(1, 4), *entries(6, 9), *entries(11, 12)])
    await store.close()
    change(path, "UPDATE damaged SET came = came")
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*), count(message) FROM damaged").fetchone() == (1, 1)
    db.close()


async def test_checkpoints_before_the_damage_stay(path: Path) -> None:
    await build(path, 9)
    change(path, "UPDATE entries SET crc = 0 WHERE session = 1 AND seq = 6")
    store = SqliteStore(path)
    assert len(await store.read("s")) == 8
    assert await store.load_checkpoint("s") == b"five"
    await store.close()


async def test_missing_and_damaged_rows_anywhere_leave_all_others_in_order(path: Path) -> None:
    await build(path, 60)
    change(path, "DELETE FROM entries WHERE session = 1 AND seq IN (1, 20, 21, 60)")
    change(path, "UPDATE entries SET crc = 1 WHERE session = 1 AND seq IN (2, 30)")
    store = SqliteStore(path)
    sound = [one for one in entries(1, 60) if one.seq not in (1, 2, 20, 21, 30, 60)]
    assert_same(await store.read("s"), sound)
    assert await store.extent("s") == Extent(54, 60)
    for start, stop in ((0, 5), (15, 30), (-3, None), (53, None), (54, None)):
        assert_same(await store.read("s", start, stop), sound[start:stop])
    await store.fork("s", "child", 40)
    assert_same(await store.read("child"), sound[:40])
    await store.replace("s", 20, [entry(61)])
    assert_same(await store.read("s"), [*sound[:20], entry(61)])
    assert_same(await store.archived("s"), sound[20:])
    assert await store.verify("s") == []
    await store.close()


async def test_a_damaged_row_of_the_archive_is_quarantined(path: Path) -> None:
    await build(path)
    change(path, "UPDATE archive SET message = 'x' WHERE seq = 17")
    reported: list[Repair] = []
    store = SqliteStore(path)
    await store.open("t", reported.append)
    assert [one.seq for one in await store.archived("t")] == [16, 18, 19, 20]
    assert [one.seq for one in await store.archived("t")] == [16, 18, 19, 20]
    assert [repair.lost for repair in reported] == [1]
    assert await store.extent("t") == Extent(15, 20)
    assert await store.load_checkpoint("t") == b"fifteen"
    await store.close()


async def test_a_reader_without_the_lease_repairs_nothing(path: Path) -> None:
    await build(path, 9)
    holder, reader = SqliteStore(path), SqliteStore(path)
    await holder.open("s")
    change(path, "UPDATE entries SET crc = 0 WHERE session = 1 AND seq = 5")
    assert len(await reader.read("s")) == 8
    assert (await reader.extent("s")).length == 9
    assert len(await holder.read("s")) == 8
    assert (await reader.extent("s")).length == 8
    await holder.close()
    await reader.close()


async def test_a_damaged_checkpoint_is_reported_and_dropped(path: Path) -> None:
    await build(path, 9)
    change(path, "UPDATE checkpoints SET data = x'00' WHERE session = 1")
    reported: list[Repair] = []
    store = SqliteStore(path)
    await store.open("s", reported.append)
    assert await store.load_checkpoint("s") is None
    assert await store.load_checkpoint("s") is None
    assert [repair.description for repair in reported] == [
        "the checkpoint was damaged; a new one is made from the history"
    ]
    await store.close()


# -- verify -----------------------------------------------------------------------------------------------------------


async def test_verify_finds_what_is_wrong_and_changes_nothing(path: Path) -> None:
    await build(path, 9)
    store = SqliteStore(path)
    assert await store.verify("s") == []
    assert await store.verify("never seen") == []
    await store.close()
    change(path, "UPDATE entries SET crc = 0 WHERE session = 1 AND seq = 5")
    change(
        path, "UPDATE checkpoints SET crc = 0 WHERE session = 1", "DELETE FROM entries WHERE seq = 8 AND session = 1"
    )
    change(path, "UPDATE archive SET crc = 0")
    before = path.read_bytes()
    assert await store.verify("s") == [
        "the message at index 4 is damaged or missing",
        "the message at index 7 is damaged or missing",
        "the checkpoint is damaged",
    ]
    assert await store.verify("t") == ["5 archived messages are damaged"]
    await store.close()
    assert path.read_bytes() == before
    assert not damaged_files(path)


async def test_verify_of_no_database_makes_none_and_of_garbage_says_so(path: Path) -> None:
    store = SqliteStore(path)
    assert await store.verify("s") == []
    assert not path.exists()
    path.write_bytes(b"garbage" * 1_000)
    assert "is no database" in (await store.verify("s"))[0]
    assert path.read_bytes() == b"garbage" * 1_000
    await store.close()


# -- the file ---------------------------------------------------------------------------------------------------------


def flip(path: Path, start: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    data[start : start + length] = bytes(byte ^ 0x5A for byte in data[start : start + length])
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def garbage_header(path: Path) -> None:
    flip(path, 0, 100)


def no_first_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[:4096] = bytes(4096)
    path.write_bytes(data)


def pages_of(path: Path, table: str) -> list[int]:
    db = sqlite3.connect(path)
    found = [page for (page,) in db.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno", (table,))]
    db.close()
    return found


def flipped_page(path: Path) -> None:
    flip(path, (pages_of(path, "entries")[6] - 1) * 4096, 4096)


def flipped_sessions(path: Path) -> None:
    flip(path, (pages_of(path, "sessions")[0] - 1) * 4096, 200)


def flipped_root(path: Path) -> None:
    flip(path, (pages_of(path, "leases")[0] - 1) * 4096, 4096)


DAMAGES: list[tuple[Callable[[Path], None], int]] = [
    (cut, 0),
    (garbage_header, 300),
    (no_first_page, 300),
    (flipped_page, 200),
    (flipped_sessions, 300),
    (flipped_root, 300),
]


@pytest.mark.parametrize(("damage", "least"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
async def test_a_damaged_database_is_rewritten_and_the_damaged_one_kept(
    path: Path, damage: Callable[[Path], None], least: int
) -> None:
    await build(path)
    damage(path)
    broken = path.read_bytes()
    reported: list[Repair] = []
    shared: list[Repair] = []
    store = await repaired(SqliteStore(path), "s", reported, shared)
    history = await store.read("s")
    extent = await store.extent("s")
    assert len(history) == extent.length >= least
    whole = {one.seq: one for one in entries(1, 300)}
    assert_same(history, [whole[one.seq] for one in history])
    assert [one.seq for one in history] == sorted({one.seq for one in history})
    (kept,) = damaged_files(path)
    if damage is flipped_page:  # found after opening, with the lease written
        assert kept.stat().st_size == len(broken)
    else:
        assert kept.read_bytes() == broken
    assert str(kept) in str([*reported, *shared])
    if extent.length < 300:
        assert sum(repair.lost for repair in reported) == 300 - extent.length
    assert await store.verify("s") == []
    await store.append("s", entries(400, 402))
    await store.close()
    assert_same(await store.read("s", -3), entries(400, 402))
    await store.close()
    assert {path, kept} == set(path.parent.iterdir()) - {schema.sidecar(kept, "-wal")}


async def test_losses_of_another_session_are_reported_when_it_is_opened(path: Path) -> None:
    await build(path, 30)
    garbage_header(path)
    change_later = path.read_bytes()
    assert change_later
    store = await repaired(SqliteStore(path), "s", [])
    await store.close()
    change(path, "INSERT INTO repairs(session, what, lost, kept) VALUES ('t', 'lost', 3, 'there')")
    reported: list[Repair] = []
    await store.open("t", reported.append)
    await store.open("t", reported.append)
    assert reported == [Repair("t", "lost", 3, "there")]
    await store.close()


async def test_damage_of_one_session_leaves_the_others_as_they_are(path: Path) -> None:
    """No call but `repair` rewrites a database, and that keeps the leases of its store."""
    await build(path)
    flipped_page(path)
    store = SqliteStore(path)
    await store.open("t")
    for _ in range(2):
        with pytest.raises(StoreError, match=COMMAND):
            await store.read("s")
        await store.append("t", [entry((await store.extent("t")).last_seq + 1, session_id="t")])
    assert not damaged_files(path)
    await store.repair(None)
    assert len(await store.read("s")) < 300
    assert len(damaged_files(path)) == 1
    await store.append("t", entries(40, 41, session_id="t"))
    assert await store.extent("t") == Extent(19, 41)
    await store.close()


@pytest.mark.parametrize("stop", [0, 3, 299, 10**9, 2**40, -5])
async def test_a_history_that_ends_elsewhere_than_it_says_is_found_whole(path: Path, stop: int) -> None:
    await build(path)
    change(path, f"UPDATE sessions SET stop = {stop} WHERE id = 's'")
    reported: list[Repair] = []
    store = await repaired(SqliteStore(path), "s", reported)
    assert await store.extent("s") == Extent(300, 300)
    assert_same(await store.read("s"), entries(1, 300))
    assert len(reported) == 1
    await store.append("s", entries(301, 302))
    assert_same(await store.read("s", -3), entries(300, 302))
    await store.close()


async def test_an_append_onto_a_history_that_is_longer_than_it_says_overwrites_nothing(path: Path) -> None:
    await build(path)
    change(path, "UPDATE sessions SET stop = 100 WHERE id = 's'")
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=COMMAND):
        await store.append("s", entries(301, 302))
    await store.repair(None)
    await store.append("s", entries(301, 302))
    assert_same(await store.read("s"), entries(1, 302))
    await store.close()


async def test_entries_that_changed_slots_count_as_damaged(path: Path) -> None:
    await build(path, 9)
    change(path, "UPDATE entries SET id = id + 1000 WHERE session = 1 AND seq = 3")
    change(path, "UPDATE entries SET id = id - 1 WHERE session = 1 AND seq = 4")
    change(path, "UPDATE entries SET id = id - 999 WHERE session = 1 AND seq = 3")
    store = SqliteStore(path)
    assert_same(await store.read("s"), [*entries(1, 2), *entries(5, 9)])
    await store.close()


async def test_a_file_that_never_was_a_database_is_left_alone(path: Path) -> None:
    for content in (b"my notes\n" * 900, random.Random(1).randbytes(20_000), b"SQLite format 3\0" + bytes(5_000)):
        path.write_bytes(content)
        store = SqliteStore(path)
        with pytest.raises(StoreError, match=r"left as it is|another application|no database"):
            await store.append("s", entries(1, 1))
        await store.close()
        assert path.read_bytes() == content
        assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_a_damaged_database_that_others_use_is_left_alone(path: Path) -> None:
    await build(path)
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('select 1 from sessions').fetchone();"
        "print('ready', flush=True); sys.stdin.read()"
    )
    store = SqliteStore(path)
    with running(code, str(path)):
        flipped_page(path)
        with pytest.raises(StoreError, match="other processes use it"):
            await store.repair(None)
        assert not damaged_files(path)
    await store.repair(None)
    assert len(await store.read("s")) >= 200
    await store.close()


@pytest.mark.parametrize("step", range(4))
async def test_a_recovery_killed_half_way_is_finished_by_the_next_process(path: Path, step: int) -> None:
    """The files as they are after each step of replacing the database."""
    await build(path, 30)
    new = schema.sidecar(path, ".salvaged-20260101T000000-1")
    kept = schema.sidecar(path, ".damaged-20260101T000000-1")
    shutil.copy(path, new)
    log, kept_log = schema.sidecar(path, "-wal"), schema.sidecar(kept, "-wal")
    log.write_bytes(b"the log of the damaged one")
    path.write_bytes(b"damaged")
    if step > 0:
        path.rename(kept)
    if step > 1:
        log.rename(kept_log)
    if step > 2:
        new.rename(path)
    store = SqliteStore(path)
    assert_same(await store.read("s"), entries(1, 30))
    await store.close()
    assert kept.read_bytes() == b"damaged"
    assert kept_log.read_bytes() == b"the log of the damaged one"
    assert not new.exists()


async def test_an_intact_database_is_recovered_completely(path: Path) -> None:
    await build(path)
    status = path.stat()
    kept = recovery.recover(path, (status.st_dev, status.st_ino))
    assert kept is not None
    store = SqliteStore(path)
    assert_same(await store.read("s"), entries(1, 300))
    assert_same(await store.archived("t"), entries(16, 20, session_id="t"))
    assert await store.load_checkpoint("s") == b"five"
    assert await store.extent("t") == Extent(15, 20)
    assert await store.verify("s") == []
    await store.close()
    assert recovery.recover(path, (status.st_dev, status.st_ino)) is None  # another database is there meanwhile


async def test_recoveries_that_wait_for_the_lock_run_one_at_a_time(path: Path) -> None:
    """Each removes the lock file when it is done."""
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with recovery._locked(path):  # pyright: ignore[reportPrivateUsage]
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
    assert set(most) == {1}
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("seed", range(12))
async def test_random_damage_is_always_reported_and_never_mixes_messages(path: Path, seed: int) -> None:
    await build(path, 120)
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 4)):
        flip(path, chance.randrange(100, path.stat().st_size), chance.choice((1, 8, 300, 4096)))
    reported: list[Repair] = []
    store = await repaired(SqliteStore(path), "s", reported)
    history = await store.read("s")
    whole = {one.seq: one for one in entries(1, 120)}
    assert_same(history, [whole[one.seq] for one in history])
    assert len(history) == 120 or reported
    assert (await store.extent("s")).length == len(history)
    await store.append("s", entries(500, 500))
    assert_same(await store.read("s", -1), entries(500, 500))
    await store.close()
