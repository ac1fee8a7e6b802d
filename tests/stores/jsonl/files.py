"""Shared by the tests of stores in files: a session, its files and changes of it; the module `os` of a system
that fails or crashes.

After a kill that is what was written; after a power cut, what was synced and some of the rest. The databases are copied
as they are: SQLite promises what it committed. The text file is ours, so its unsynced writes are modelled.
"""

import errno
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core.stores import Repair, Store
from amplifier_context_core.stores.jsonl import files, former, mirror, session
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite import schema
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


READING = frozenset(["open", "pread", "fstat", "lstat", "stat"])
WRITING = frozenset(
    ["write", "pwrite", "fdatasync", "fsync", "replace", "ftruncate", "unlink", "mkdir", "rmdir", "fchmod"]
)


class WatchedOs:
    """The module `os`, of which `call` is called in place of the functions that read or write files."""

    def __getattr__(self, name: str) -> Any:
        return partial(self.call, name) if name in READING | WRITING else getattr(os, name)

    def call(self, name: str, *arguments: Any, **more: Any) -> Any:
        return getattr(os, name)(*arguments, **more)


class FaultyOs(WatchedOs):
    """The call with this number fails, and if the fault lasts all later ones. Of a failing write, half is written."""

    def __init__(self, number: int, lasts: bool) -> None:
        self.failed, self._calls, self._number, self._lasts = 0, 0, number, lasts

    def call(self, name: str, *arguments: Any, **more: Any) -> Any:
        self._calls += 1
        if self._calls < self._number or (self._calls > self._number and not self._lasts):
            return super().call(name, *arguments, **more)
        self.failed += 1
        if name in ("write", "pwrite"):
            super().call(name, arguments[0], arguments[1][: len(arguments[1]) // 2], *arguments[2:])
        code = errno.ENOSPC if name in WRITING else errno.EIO
        raise OSError(code, os.strerror(code))


def each_fault(lasting: bool | None = None) -> Iterator[tuple[Path, FaultyOs, int]]:
    """Yield an empty folder and an `os` of which call 1 fails, then one whose call 2 does, and so on
    until there was no such call. If it is lasting, all later calls fail, too; None: for even numbers.
    """
    for number in range(1, 300):
        faulty = FaultyOs(number, number % 2 == 0 if lasting is None else lasting)
        with fast_folder() as root:
            yield root, faulty, number
        if not faulty.failed:
            return
    pytest.fail("there is no end of calls")


@contextmanager
def using(monkeypatch: pytest.MonkeyPatch, module: object) -> Generator[None]:
    """Let the store use this in place of the module `os`."""
    with monkeypatch.context() as patch:
        for user in (files, former, mirror, session, schema):
            patch.setattr(user, "os", module)
        yield


@dataclass
class Disk(WatchedOs):
    """Watches the text file of session ``s``, and copies its folder before a call of the operating system."""

    root: Path
    then: Path
    at: int = -1  # number of the call
    calls: int = 0
    is_copied: bool = False
    original: os.stat_result | None = None  # of the text file that was copied
    copied: int = 0  # time of change of the copy
    content: bytes = b""  # that was copied
    synced: dict[int, bytes] = field(default_factory=dict[int, bytes])  # by inode

    def call(self, name: str, *arguments: Any, **more: Any) -> Any:
        if self.calls == self.at:
            self.copy()
        self.calls += 1
        if name in ("fdatasync", "fsync") and (path := Path(f"/proc/self/fd/{arguments[0]}")).is_file():
            self.synced[path.stat().st_ino] = path.read_bytes()
        return super().call(name, *arguments, **more)

    def copy(self) -> None:
        """Copy the folder; what shared memory held is gone."""
        self.is_copied = True
        self.root.mkdir(exist_ok=True)
        main = self.root / "s" / NAME
        if main.exists():
            self.original, self.content = main.stat(), main.read_bytes()
        shutil.copytree(self.root, self.then, ignore=unlocked)
        self._stamp()

    def _stamp(self) -> None:
        main = self.then / "s" / NAME
        self.copied = main.stat().st_ctime_ns if main.exists() else 0

    def cut_power(self, chance: random.Random) -> None:
        """Make of the copied text file what a power cut may leave of it: of the bytes after its last sync some, or
        zeros, which is how a block reads that was never written.
        """
        synced = self.synced.get(self.original.st_ino, b"") if self.original else b""
        pairs = enumerate(zip(self.content, synced, strict=False))
        shared = next((n for n, (new, old) in pairs if new != old), min(len(self.content), len(synced)))
        end = chance.choice((shared, len(self.content), chance.randint(shared, len(self.content))))
        left = (synced, self.content[:end], self.content[:end].ljust(len(self.content), b"\0"))
        if self.original:
            (self.then / "s" / NAME).write_bytes(chance.choice(left))
        self._stamp()  # times may reach the disk before the bytes


class SameInode(WatchedOs):
    """To it, a copy of the text file has inode and time of change of its original until it is written to."""

    def __init__(self, disk: Disk) -> None:
        copy = disk.then / "s" / NAME
        self._disk, self._copy = disk, copy.stat().st_ino if copy.exists() else 0

    def call(self, name: str, *arguments: Any, **more: Any) -> Any:
        found, original = super().call(name, *arguments, **more), self._disk.original
        if name not in ("lstat", "fstat") or found.st_ino != self._copy or original is None:
            return found
        changed = original.st_ctime_ns if found.st_ctime_ns == self._disk.copied else found.st_ctime_ns
        size, mode = found.st_size, found.st_mode
        return SimpleNamespace(st_ino=original.st_ino, st_size=size, st_mode=mode, st_ctime_ns=changed)
