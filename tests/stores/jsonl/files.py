"""Shared by the tests of stores in files: a session on a fast disk, its files, changes of it, how it opens again."""

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from amplifier_context_core.stores import Repair, Store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import Whole, assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry

NAME = "context-messages.jsonl"
unlocked = shutil.ignore_patterns("*-shm", "*.lock")  # what a crash leaves of an open session
Change = Callable[[Store], Awaitable[object]]
CHANGES: dict[str, Change] = {
    "append": lambda store: store.append("s", entries(14, 14)),
    "batch": lambda store: store.append("s", entries(20, 24)),
    "replace": lambda store: store.replace("s", 6, [*entries(20, 21), entries(8, 8)[0]]),
    "replace into the checkpoint": lambda store: store.replace("s", 2, entries(20, 20)),
    "clear": lambda store: store.replace("s", 0, []),
    "rewrite": lambda store: store.rewrite("s", [entry(5, "rewritten"), entry(11, "rewritten")]),
    "recount": lambda store: store.rewrite("s", [one._replace(tokens=10**9) for one in entries(3, 5)]),
    "recount in place": lambda store: store.rewrite("s", [one._replace(tokens=1) for one in entries(3, 8)]),
    "checkpoint": lambda store: store.save_checkpoint("s", 7, b"seven"),
}


async def begin(store: Store, session_id: str = "s") -> None:
    """Begin a session with a bit of everything."""
    await store.append(session_id, entries(1, 10, session_id=session_id))
    await store.replace(session_id, 9, entries(11, 12, session_id=session_id))
    await store.append(session_id, entries(13, 13, session_id=session_id))
    await store.replace(session_id, 10, [])
    await store.save_checkpoint(session_id, 4, b"four")


@contextmanager
def running(code: str, argument: str) -> Generator[subprocess.Popen[bytes]]:
    """Run code in another process. It prints `ready`, then reads standard input, which ends with the block."""
    command = [sys.executable, "-c", code, argument]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


@contextmanager
def fast_folder() -> Generator[Path]:
    """Yield a folder in memory if possible: these tests do not test the disk, and an fsync costs nothing there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


def garble(database: Path, *seqs: int) -> None:
    """Change messages in a database, or all of them, so that their checksums tell."""
    with closing(sqlite3.connect(database)) as db, db:
        for seq in seqs:
            assert db.execute("UPDATE entries SET message = '{' WHERE seq = ?", (seq,)).rowcount == 1
        if not seqs:
            db.execute("UPDATE entries SET message = '{'")


class Files:
    """The files of a session."""

    def __init__(self, root: Path, session_id: str = "s") -> None:
        self.folder = root / session_id
        self.main, self.database = self.path(NAME), self.path("context.db")
        self.damaged = self.path("context-messages.damaged")

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the main file, parsed like the replaced module does: one a line."""
        return [json.loads(line) for line in self.main.read_text("utf-8").splitlines()]


async def write(root: Path, count: int = 10, *, checkpoint: int | None = None, session_id: str = "s") -> Files:
    """Write a session of `count` entries, appended one after another, and release it."""
    store = JsonlStore(root, durability="flush")
    for one in entries(1, count, session_id=session_id):
        await store.append(session_id, [one])
    if checkpoint is not None:
        await store.save_checkpoint(session_id, checkpoint, b"covers some")
    await store.close()
    return Files(root, session_id)


async def reopen(root: Path) -> tuple[Whole, list[Repair]]:
    """Open a session, and return all of it, with what was reported. Afterwards it has nothing wrong with it, takes a
    message, and opens without another report.
    """
    store, repairs = JsonlStore(root, durability="flush"), list[Repair]()
    await store.open("s", repairs.append)
    found, reported = await whole(store), len(repairs)
    assert await store.verify("s") == []
    last = found.extent.last_seq + 1
    await store.append("s", entries(last, last))
    await store.close()
    await store.open("s", repairs.append)
    assert_same(await store.read("s"), [*found.history, *entries(last, last)])
    await store.close()
    assert len(repairs) == reported, "what was repaired once is whole"
    return found, repairs
