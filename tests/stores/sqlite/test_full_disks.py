"""Disks that are full or read-only: the database is read, and writing names the way out."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.small_disks import file_system, largest_file

BIG = [entry(seq, "x" * 90_000) for seq in range(10, 16)]


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    with file_system(tmp_path, "1m") as folder:
        yield folder


def fill(disk: Path) -> None:
    """Write until not a single byte is free."""
    with open(disk / "filling", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1_024))


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


KILLED = """
import asyncio, os, sys
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries, entry
async def main():
    await SqliteStore(sys.argv[1]).append("s", entries(1, 1_200))
    os._exit(9)
asyncio.run(main())
"""


@pytest.mark.parametrize(("limit", "says"), [(fill, "the disk is full; free some"), (make_read_only, "read-only")])
@pytest.mark.parametrize("left", ["", "-wal -shm", "-wal"], ids=["closed", "killed", "killed, no shared memory"])
async def test_a_disk_that_takes_no_byte_is_read_and_says_so_when_written_to(
    disk: Path, limit: Callable[[Path], None], says: str, left: str
) -> None:
    path = disk / "sessions.db"
    if left:
        subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        path.with_name("sessions.db-shm").unlink() if "-shm" not in left else None
    else:
        store = SqliteStore(path)
        await store.append("s", entries(1, 1_200))
        await store.close()
    limit(disk)
    store = SqliteStore(path, busy=0.1)
    if left == "-wal":  # the newest messages cannot be read, so nothing is
        with pytest.raises(StoreError, match=says):
            await store.read("s")
        return
    assert_same(await store.read("s"), entries(1, 1_200))
    assert await store.extent("s") == Extent(1_200, 1_200)
    assert [one.seq for one in await store.find("s", [7])] == [7]
    assert [info.session_id for info in await store.sessions()] == ["s"]
    assert len(await store.search("s", "module 7", 3)) == 3
    assert await store.archived("s") == []
    assert await store.load_checkpoint("s") is None
    assert await store.verify("s") == []
    for call in (store.append("s", entries(1_201, 1_201)), store.rewrite("s", entries(1, 1))):
        with pytest.raises(StoreError, match=says):
            await call
    shown = subprocess.run(
        [Path(sys.executable).with_name("amplifier-context"), "show", "s", "--last", "1", "--store", f"sqlite:{path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "It defines f_1200." in shown.stdout
    await store.close()


async def test_a_repair_for_which_the_disk_has_some_space_is_whole_or_changes_nothing(disk: Path) -> None:
    path = disk / "sessions.db"
    store = SqliteStore(path)
    await store.append("s", entries(1, 150))
    await store.close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE sessions SET length = 2")
    db.close()
    broken = path.read_bytes()
    repaired = 0
    for free in range(16_384, 4 * len(broken), 16_384):
        fill(disk)
        with open(disk / "filling", "r+b") as file:
            file.truncate((disk / "filling").stat().st_size - free)
        try:
            await store.repair(None)
        except StoreError:
            await store.close()
            assert path.read_bytes() == broken
        else:
            assert_same(await store.read("s"), entries(1, 150))
            await store.close()
            repaired += 1
        for one in disk.iterdir():
            one.unlink() if one.is_file() else one.rmdir()
        path.write_bytes(broken)
    assert repaired > 0


async def test_closing_on_a_full_disk_keeps_what_was_acknowledged(path: Path) -> None:
    store = SqliteStore(path)
    await store.append("s", BIG)
    with largest_file(8_192):
        try:
            await store.close()
        except StoreError as problem:
            error = str(problem)
        else:
            error = ""
    assert "x" * 100 not in error
    other = SqliteStore(path)
    assert_same(await other.read("s"), BIG)
    await other.append("s", entries(20, 21))
    await other.close()
