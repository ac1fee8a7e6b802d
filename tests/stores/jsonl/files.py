"""Shared by the tests of the JSONL store: a session on a fast disk, its files, and how it opens again."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_context_core.stores import Extent, Repair
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing.contract.samples import entries

NAME = "context-messages.jsonl"


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


@dataclass
class Files:
    """The files of session ``s``, as bytes."""

    root: Path
    session_id: str = "s"

    def path(self, name: str = NAME) -> Path:
        return self.root / self.session_id / name

    @property
    def main(self) -> Path:
        return self.path()

    @property
    def database(self) -> Path:
        return self.path("context.db")

    @property
    def damaged(self) -> Path:
        return self.path("context-messages.damaged")

    @property
    def lines(self) -> list[bytes]:
        return self.main.read_bytes().splitlines(keepends=True)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the main file, parsed like the replaced module does: one a line."""
        return [json.loads(line) for line in self.main.read_text("utf-8").splitlines()]


@dataclass
class Opened:
    """The result of opening and reading a session."""

    extent: Extent
    history: list[Entry]
    checkpoint: bytes | None
    repairs: list[Repair] = field(default_factory=list[Repair])

    @property
    def seqs(self) -> list[int]:
        return [entry.seq for entry in self.history]

    @property
    def lost(self) -> int:
        return sum(repair.lost for repair in self.repairs)


async def write(root: Path, count: int = 10, *, checkpoint: int | None = None, session_id: str = "s") -> Files:
    """Write a session of `count` entries, appended one after another, and release it."""
    store = JsonlStore(root, durability="flush")
    for entry in entries(1, count, session_id=session_id):
        await store.append(session_id, [entry])
    if checkpoint is not None:
        await store.save_checkpoint(session_id, checkpoint, b"covers some")
    await store.close()
    return Files(root, session_id)


async def reopen(root: Path, session_id: str = "s") -> Opened:
    """Open a session that may be damaged and read all of it. It must be intact afterwards, and accept appends."""
    store, repairs = JsonlStore(root, durability="flush"), list[Repair]()
    await store.open(session_id, repairs.append)
    history = await store.read(session_id)
    checkpoint = await store.load_checkpoint(session_id)
    found = Opened(await store.extent(session_id), history, checkpoint, repairs)
    assert found.extent.length == len(history)
    assert await store.verify(session_id) == []
    last = found.extent.last_seq + 1
    await store.append(session_id, entries(last, last, session_id=session_id))
    assert [entry.seq for entry in await store.read(session_id)] == [*found.seqs, last]
    await store.replace(session_id, len(history), [])
    await store.close()
    store = JsonlStore(root)
    reported = list(found.repairs)
    assert await store.open(session_id, repairs.append) == Extent(len(history), last)
    assert [entry.seq for entry in await store.read(session_id)] == found.seqs
    assert repairs == reported, "what was repaired once is whole"
    await store.close()
    return found
