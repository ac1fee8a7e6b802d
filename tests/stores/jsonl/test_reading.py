"""What a reader finds while another store changes a session, how little of a long one is read, and many at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.stores import Extent, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import Files, write


async def test_the_mirror_of_a_session_that_was_closed_is_not_read_to_resume_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, open_file, opened = await write(root, 30), os.open, set[str]()

    def noted(path: str, *arguments: Any) -> int:
        opened.add(os.fspath(path))
        return open_file(path, *arguments)

    store = JsonlStore(root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", noted)
        assert await store.open("s") == Extent(30, 30)
        assert opened
        assert str(files.main) not in opened
        await store.release("s")
        os.utime(files.main)
        assert await store.open("s") == Extent(30, 30)
        assert str(files.main) in opened
    await store.close()


async def test_an_idle_session_needs_no_reading_after_a_kill(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mirror is synced once nothing was called for a second."""
    monkeypatch.setattr("amplifier_context_core.stores.sqlite.worker.IDLE_SECONDS", 0.01)
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    until = time.monotonic() + 20
    with closing(sqlite3.connect(Files(root).database)) as db:
        while db.execute("SELECT value FROM facts WHERE name = 'mirror mark'").fetchone() != (0,):
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
    await store.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts the descriptors of Linux")
async def test_many_open_sessions_share_one_thread_and_few_descriptors(root: Path) -> None:
    before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    store = JsonlStore(root, durability="none")
    names = [f"session {number}" for number in range(500)]
    for name in names:
        await store.append(name, entries(1, 1, session_id=name))
    assert len(os.listdir("/proc/self/fd")) - before <= 1_000
    assert [one.name for one in set(threading.enumerate()) - threads] == ["jsonl store"]
    for name in names:
        await store.append(name, entries(2, 2, session_id=name))
    assert {info.length for info in await store.sessions()} == {2}
    await store.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


async def test_a_session_is_read_whole_while_another_store_changes_it(root: Path) -> None:
    """A reader without the lock sees one history or the next, never a mixture."""
    writer, reader = JsonlStore(root, durability="flush"), JsonlStore(root)
    await writer.append("s", entries(1, 300))
    states = {(300, 300)}
    done = False

    async def change() -> None:
        nonlocal done
        seq = 300
        for _ in range(40):
            states.add((101, seq + 1))
            await writer.replace("s", 100, [entry(seq + 1)])
            new = [entry(one) for one in range(seq + 2, seq + 200)]
            seq += 199
            states.update({(299, seq)})
            await writer.append("s", new)
        done = True

    async def look() -> None:
        while not done:
            found = await reader.read("s")
            assert (len(found), found[-1].seq) in states
            await asyncio.sleep(0)

    await asyncio.gather(change(), look())
    await writer.close()
    await reader.close()


async def test_a_folder_with_an_odd_name_does_not_hide_the_sessions(tmp_path: Path) -> None:
    store = open_store(f"jsonl:{tmp_path}")
    await store.append("mine", entries(1, 1))
    odd = tmp_path / "evil\x1b[31m"
    odd.mkdir()
    (odd / "context-messages.jsonl").write_text("{}\n")
    assert [info.session_id for info in await store.sessions()] == ["mine"]
    await store.close()


async def test_a_session_whose_creation_was_interrupted_is_not_listed(root: Path) -> None:
    files = Files(root)
    files.database.parent.mkdir()
    with closing(sqlite3.connect(files.database)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert files.database.stat().st_size
    store = JsonlStore(root)
    assert await store.sessions() == []
    assert await store.open("s") == Extent()
    await store.close()
