"""What is opened and read of sessions in files: little of a long one, and many at once."""

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

from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
from tests.stores.jsonl.files import Files, write


async def test_the_mirror_of_a_session_that_was_closed_is_not_read_to_resume_it(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, open_file, opened = await write(root, 30), os.open, set[str]()

    def noted(path: str, *arguments: Any) -> int:
        opened.add(os.fspath(path))
        return open_file(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", noted)
        assert await store.open("s") == Extent(30, 30)
        assert opened
        assert str(files.main) not in opened
        await store.release("s")
        os.utime(files.main)
        assert await store.open("s") == Extent(30, 30)
        assert str(files.main) in opened


async def test_an_idle_session_needs_no_reading_after_a_kill(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mirror is synced once nothing was called for a second."""
    monkeypatch.setattr("amplifier_context_core.stores.sqlite.worker.IDLE_SECONDS", 0.01)
    await store.append("s", entries(1, 3))
    until = time.monotonic() + 20
    with closing(sqlite3.connect(Files(root).database)) as db:
        while db.execute("SELECT value FROM facts WHERE name = 'mirror mark'").fetchone() != (0,):
            assert time.monotonic() < until
            await asyncio.sleep(0.02)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts the descriptors of Linux")
async def test_many_open_sessions_share_one_thread_and_few_descriptors(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_context_core.stores.jsonl.sessions._MAX_CONNECTED", 10)
    before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    store = JsonlStore(root, durability="none")
    names = [f"session {number}" for number in range(60)]
    for name in names:
        await store.append(name, entries(1, 1, session_id=name))
    assert len(os.listdir("/proc/self/fd")) - before <= 60 + 3 * 10 + 5
    assert [one.name for one in set(threading.enumerate()) - threads] == ["jsonl store"]
    for name in names:
        await store.append(name, entries(2, 2, session_id=name))
    assert {info.length for info in await store.sessions()} == {2}
    await store.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


async def test_odd_folders_and_sessions_whose_creation_was_interrupted_are_not_listed(
    root: Path, store: JsonlStore
) -> None:
    await store.append("mine", entries(1, 1))
    odd = root / "evil\x1b[31m"
    odd.mkdir()
    (odd / "context-messages.jsonl").write_text("{}\n")
    files = Files(root)
    files.database.parent.mkdir()
    with closing(sqlite3.connect(files.database)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert files.database.stat().st_size
    assert [info.session_id for info in await store.sessions()] == ["mine"]
    assert await store.open("s") == Extent()
