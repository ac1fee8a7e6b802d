"""Systems that fail and crash: the module `os`, as the store then uses it, and what a crash leaves of a folder.

After a kill that is what was written; after a power cut, what was synced and some of the rest. The databases are copied
as they are: SQLite promises what it committed. The text file is ours, so its unsynced writes are modelled.
"""

import errno
import os
import random
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core.stores.jsonl import files, former, mirror, session
from amplifier_context_core.stores.sqlite import schema
from tests.stores.jsonl.files import NAME, fast_folder, unlocked

READING = frozenset(["open", "pread", "fstat", "lstat", "stat"])
WRITING = frozenset(["write", "pwrite", "fdatasync", "fsync", "replace", "ftruncate", "unlink", "mkdir", "fchmod"])


class FaultyOs:
    """The module `os`; a call fails if `fault` returns an error number for its name. Of a failing write, a part is
    written: `share` returns how much.
    """

    def __init__(self, fault: Callable[[str], int], share: Callable[[], float] = lambda: 0.5) -> None:
        self._fault, self._share = fault, share
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in READING | WRITING:
            return real

        def call(*arguments: Any, **more: Any) -> Any:
            code = self._fault(name)
            if not code:
                return real(*arguments, **more)
            self.failed += 1
            if name in ("write", "pwrite"):
                real(arguments[0], arguments[1][: int(len(arguments[1]) * self._share())], *arguments[2:])
            raise OSError(code, os.strerror(code))

        return call


def each_fault(lasting: bool | None = None) -> Iterator[tuple[Path, FaultyOs, int]]:
    """Yield an empty folder and an `os` of which call 1 fails, then one whose call 2 does, and so on
    until there was no such call. If it is lasting, all later calls fail, too; None: for even numbers.
    """
    for number in range(1, 300):
        calls, lasts = count(1), number % 2 == 0 if lasting is None else lasting

        def fault(name: str, calls: Iterator[int] = calls, number: int = number, lasts: bool = lasts) -> int:
            call = next(calls)
            code = errno.ENOSPC if name in WRITING else errno.EIO
            return code if call == number or (lasts and call > number) else 0

        faulty = FaultyOs(fault)
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
class Disk:
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

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if not callable(real) or name in ("fspath", "stat_result"):
            return real

        def call(*arguments: Any, **more: Any) -> Any:
            if self.calls == self.at:
                self.copy()
            self.calls += 1
            if name in ("fdatasync", "fsync") and (path := Path(f"/proc/self/fd/{arguments[0]}")).is_file():
                self.synced[path.stat().st_ino] = path.read_bytes()
            return real(*arguments, **more)

        return call

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


class SameInode:
    """The module `os`, to which a copy of the text file has inode and time of change of the file it was copied from,
    until it is written to.
    """

    def __init__(self, disk: Disk) -> None:
        copy = disk.then / "s" / NAME
        self._disk, self._copy = disk, copy.stat().st_ino if copy.exists() else 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("lstat", "fstat"):
            return real

        def call(of: Any) -> Any:
            found, original = real(of), self._disk.original
            if found.st_ino != self._copy or original is None:
                return found
            is_as_copied = found.st_ctime_ns == self._disk.copied
            return SimpleNamespace(
                st_ino=original.st_ino,
                st_size=found.st_size,
                st_mode=found.st_mode,
                st_ctime_ns=original.st_ctime_ns if is_as_copied else found.st_ctime_ns,
            )

        return call
