"""System calls that fail: the module `os`, as the store then uses it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.stores.jsonl import files, former, mirror, session
from amplifier_context_core.stores.sqlite import schema
from tests.stores.jsonl.files import fast_folder

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
    """Yield an empty folder and an `os` of which call 1 that changes files fails, then one whose call 2 does, and so on
    until there was no such call. If it is lasting, all later calls fail, too; None: for even numbers.
    """
    for number in range(1, 100):
        left, lasts = number, number % 2 == 0 if lasting is None else lasting

        def fault(name: str, lasts: bool = lasts) -> int:
            nonlocal left
            left -= name in WRITING
            return errno.ENOSPC if name in WRITING and (left == 0 or (left < 0 and lasts)) else 0

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
