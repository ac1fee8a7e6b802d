"""Files that only their owner reads: no links followed, no blocking opens."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

# O_NONBLOCK: opening a pipe must not block
_SAFE_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def open_file(path: str, flags: int) -> int:
    """Return a descriptor of a regular file; anything else raises `OSError`. With ``O_CREAT`` it is accessible to its
    owner only, whatever the umask.
    """
    descriptor = os.open(path, flags | _SAFE_FLAGS, 0o600)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO, "is no ordinary file", path)
        if flags & os.O_CREAT:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def opened(path: str, flags: int) -> Generator[int]:
    """Yield a descriptor of `open_file`, and close it."""
    descriptor = open_file(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def add_lines(path: str, lines: Sequence[bytes]) -> str:
    """Append lines to a file, synced, and return its path; of no lines, do nothing and return an empty text."""
    if not lines:
        return ""
    with opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
        write_all(descriptor, b"".join(line + b"\n" for line in lines))
        os.fsync(descriptor)
    return path


def exists(path: str) -> bool:
    """True if there is anything at a path, a dangling link too."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
