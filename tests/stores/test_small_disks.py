"""Disks that are full or read-only: stores in files are read, and writing names the way out."""

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import CHANGES, Change, begin


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A file system of a megabyte, in memory."""
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def fill(disk: Path, free: int = 0) -> None:
    """Write until so many bytes are free."""
    with open(disk / "filling", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1_024))
    with open(disk / "filling", "r+b") as file:
        file.truncate((disk / "filling").stat().st_size - free)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


KILLED = """
import asyncio, os, sys
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries
async def main():
    await SqliteStore(sys.argv[1]).append("s", entries(1, 1_200))
    os._exit(9)
asyncio.run(main())
"""


@pytest.mark.parametrize(("limit", "says"), [(fill, "the disk is full; free some"), (make_read_only, "read-only")])
@pytest.mark.parametrize("left", ["", "-wal -shm", "-wal"], ids=["closed", "killed", "killed, no shared memory"])
async def test_on_a_disk_that_takes_no_byte_a_database_is_read_and_says_so_when_written_to(
    disk: Path, limit: Callable[[Path], None], says: str, left: str
) -> None:
    path = disk / "sessions.db"
    store = SqliteStore(path, busy=0.1)
    if left:
        subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        path.with_name("sessions.db-shm").unlink() if "-shm" not in left else None
    else:
        await store.append("s", entries(1, 1_200))
        await store.close()
    limit(disk)
    if left == "-wal":  # the newest messages cannot be read, so nothing is
        with pytest.raises(StoreError, match=says):
            await store.read("s")
        return
    found = await whole(store)
    assert_same(found.history, entries(1, 1_200))
    assert (found.extent, found.archive, found.checkpoint) == (Extent(1_200, 1_200), [], None)
    assert [info.session_id for info in await store.sessions()] == ["s"]
    assert len(await store.search("s", "module 7", 3)) == 3
    assert await store.verify("s") == []
    for call in (store.append("s", entries(1_201, 1_201)), store.rewrite("s", entries(1, 1))):
        with pytest.raises(StoreError, match=says):
            await call
    await store.close()


@pytest.mark.parametrize("scheme", ["sqlite:{}/sessions.db", "jsonl:{}/sessions"])
async def test_closing_on_a_full_disk_keeps_what_was_acknowledged(disk: Path, scheme: str) -> None:
    store, big = open_store(scheme.format(disk)), [entry(seq, "x" * 60_000) for seq in range(10, 16)]
    await store.append("s", big)
    fill(disk)
    with pytest.raises(StoreError, match="free some space"):
        await store.append("t", entries(1, 500))
    with suppress(StoreError):
        await store.close()
    (disk / "filling").unlink()
    assert_same(await store.read("s"), big)
    await store.append("s", entries(20, 21))
    await store.close()


async def test_files_are_read_where_none_can_be_written_and_deleted_where_the_disk_is_full(disk: Path) -> None:
    store = JsonlStore(disk / "sessions")
    await begin(store)
    before = await whole(store)
    await store.close()
    make_read_only(disk)
    assert not (await whole(store)).differs(before)
    assert await store.verify("s") == []
    assert [info.length for info in await store.sessions()] == [10]
    more: list[Change] = [lambda store: store.open("s"), lambda store: store.delete("s")]
    for one in (*CHANGES.values(), *more):
        with pytest.raises(StoreError, match="read-only"):
            await one(store)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    await store.open("s")
    fill(disk)
    await store.delete("s")
    assert [info.session_id for info in await store.sessions()] == []
    await store.close()
