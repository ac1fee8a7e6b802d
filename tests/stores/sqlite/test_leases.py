"""The writer of a session in a SQLite database: leases, stale ones, lost ones."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import SessionInUse, SessionLost
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.sqlite import leases
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries
from tests.stores.other_process import running


def change(path: Path, **columns: Any) -> None:
    """Change the row of a lease, as if another store object held it."""
    db = sqlite3.connect(path, isolation_level=None)
    for name, value in columns.items():
        db.execute(f"UPDATE leases SET {name} = ?", (value,))
    db.close()


def row(path: Path) -> dict[str, Any]:
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    found = dict(db.execute("SELECT * FROM leases").fetchone())
    db.close()
    return found


CHILD = """
import asyncio, sys, time
from amplifier_context_core.stores import open_store
from amplifier_context_testing.contract.samples import entries
from tests.stores.other_process import running
async def main():
    store = open_store(sys.argv[1])
    await store.append("s", entries(1, 2))
    print("ready", flush=True)
    sys.stdin.read()
    await store.close()
asyncio.run(main())
"""


async def test_a_lease_of_another_process_is_valid_until_it_closes(path: Path) -> None:
    store = SqliteStore(path)
    with running(CHILD, f"sqlite:{path}") as process:
        with pytest.raises(SessionInUse, match=f"pid {process.pid} on ") as caught:
            await store.open("s")
        assert "this process" not in caught.value.holder
        (info,) = await store.sessions()
        assert info.holder == caught.value.holder
    assert await store.open("s") == Extent(2, 2)
    await store.close()


async def test_a_killed_holder_is_noticed_at_once_and_its_work_is_there(path: Path) -> None:
    with running(CHILD, f"sqlite:{path}") as process:
        process.kill()
    assert path.with_name(path.name + "-wal").stat().st_size  # a hot log: the database was not closed
    store = SqliteStore(path)
    (info,) = await store.sessions()
    assert info.holder == ""
    assert await store.open("s") == Extent(2, 2)
    await store.append("s", entries(3, 3))
    assert [one.seq for one in await store.read("s")] == [1, 2, 3]
    await store.close()


async def test_another_store_object_of_the_process_is_named_as_such(path: Path) -> None:
    store, other = SqliteStore(path), SqliteStore(path)
    await store.open("s")
    with pytest.raises(SessionInUse, match="another store object of this process"):
        await other.open("s")
    await store.close()
    await other.open("s")
    await other.close()


async def test_a_process_id_that_was_given_again_is_no_holder(path: Path) -> None:
    store, other = SqliteStore(path), SqliteStore(path)
    await store.append("s", entries(1, 1))
    change(path, pid=os.getppid(), started="1")  # a running process with another start time
    await other.append("s", entries(2, 2))
    with pytest.raises(SessionLost):
        await store.append("s", entries(3, 3))
    await other.close()
    await store.close()


@pytest.mark.parametrize(("left", "free"), [(30.0, False), (-1.0, True)])
async def test_a_lease_from_another_machine_is_valid_until_it_expires(path: Path, left: float, free: bool) -> None:
    store, other = SqliteStore(path), SqliteStore(path)
    await store.append("s", entries(1, 1))
    change(path, machine="elsewhere", host="host-b", pid=7, expires=time.time() + left)
    if free:
        await other.append("s", entries(2, 2))
    else:
        with pytest.raises(SessionInUse, match="pid 7 on host-b"):
            await other.append("s", entries(2, 2))
    await other.close()
    await store.close()


async def test_a_lost_lease_names_the_new_holder_and_nothing_is_written(path: Path) -> None:
    store, other = SqliteStore(path), SqliteStore(path)
    await store.append("s", entries(1, 2))
    change(path, machine="elsewhere", expires=0.0)  # as if it had been suspended for long on another machine
    await other.append("s", entries(3, 3))
    for attempt in (
        store.append("s", entries(9, 9)),
        store.replace("s", 0, []),
        store.save_checkpoint("s", 0, b""),
        store.rewrite("s", entries(1, 1)),
        store.append("s", entries(9, 9)),
    ):
        with pytest.raises(SessionLost, match=f"taken over by pid {os.getpid()}"):
            await attempt
    await other.release("s")
    with pytest.raises(SessionLost):  # still lost: it does not know what the other wrote
        await store.append("s", entries(9, 9))
    assert await store.open("s") == Extent(3, 3)
    await store.append("s", entries(4, 4))
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 4]
    await store.close()
    await other.close()


async def test_a_lease_taken_over_and_released_is_lost_all_the_same(path: Path) -> None:
    """The fence decides, not the name of the holder."""
    store = SqliteStore(path)
    await store.append("s", entries(1, 2))
    change(path, fence=99)
    with pytest.raises(SessionLost):
        await store.append("s", entries(3, 3))
    await store.release("s")
    await store.append("s", entries(3, 3))
    await store.close()


async def test_fences_ascend_with_every_lease(path: Path) -> None:
    fences: list[int] = []
    for _ in range(4):
        store = SqliteStore(path)
        await store.open("s")
        fences.append(row(path)["fence"])
        await store.release("s")
        await store.open("s")
        fences.append(row(path)["fence"])
        await store.close()
    assert fences == sorted(set(fences))


async def test_writing_renews_a_lease(path: Path) -> None:
    store = SqliteStore(path)
    await store.append("s", entries(1, 1))
    change(path, expires=1.0)
    await store.append("s", entries(2, 2))
    assert row(path)["expires"] > time.time() + leases.TTL / 2
    await store.close()


async def test_a_lease_is_renewed_while_nothing_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_context_core.stores.sqlite.engine.TTL", 0.15)
    store = SqliteStore(path)
    await store.open("s")
    before = time.time()
    change(path, expires=1.0)
    for _ in range(6_000):
        if row(path)["expires"] > 1.0:
            break
        await asyncio.sleep(0.01)
    assert row(path)["expires"] > before
    await store.close()
    assert row(path)["released"] is not None


async def test_a_refused_lease_leaves_no_trace(path: Path) -> None:
    store, other = SqliteStore(path), SqliteStore(path)
    await store.open("s")
    before = row(path)
    with pytest.raises(SessionInUse):
        await other.append("s", entries(1, 1))
    assert row(path) == before
    await store.close()
    await other.close()


def test_a_process_is_identified_by_its_start_time() -> None:
    assert leases.process_start(os.getpid()) == leases.process_start(os.getpid()) != ""
    process = subprocess.Popen(["sleep", "60"])
    began = leases.process_start(process.pid)
    process.kill()
    assert began
    for _ in range(1_000):
        if not leases.process_start(process.pid):
            break
        time.sleep(0.002)
    assert leases.process_start(process.pid) == ""  # a zombie holds nothing
    process.wait()
    assert leases.process_start(process.pid) == ""
