"""One writer per session: an OS lock on a file, released when its holder dies. The file names the holder.

What the file says counts only while the lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import stat
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from ...errors import SessionInUse, StoreError
from .schema import make_folder

_MAX_ATTEMPTS = 20
_TRIES = 20  # 2 ms apart, before a lock counts as held: `_is_locked` has it until its thread runs again
_SAFE_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_MAX_CHARS = 500  # of the text in the file


class SessionLocks:
    """The session locks of one store object: with a `name` by that file of the folder, else by a file for each."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._folder, self._name = folder, name
        self._held: dict[str, FileLock] = {}

    @property
    def held(self) -> bool:
        return bool(self._held)

    def acquire(self, session_id: str, *, to_delete: bool = False) -> bool:
        """Lock a session. Return False if it was locked already. Raise `SessionInUse`, or `StoreError` if the file
        system has no locks.
        """
        if session_id in self._held:
            return False
        for _ in range(_MAX_ATTEMPTS):
            with suppress(FileNotFoundError):  # another store that closed has removed the folder
                make_folder(self._folder)
                self._held[session_id] = _acquired(self._path_of(session_id), session_id, to_delete=to_delete)
                return True
        raise StoreError(f"{self._folder} is removed repeatedly; find the program that does it")

    def release(self, session_id: str) -> None:
        lock = self._held.pop(session_id, None)
        if lock is not None:
            try:
                with suppress(OSError):  # without the lock, what the file says is ignored
                    os.unlink(lock.lock_file)  # while the lock is held: the next holder sees that it has no name
            finally:
                lock.release()

    def release_all(self) -> None:
        """Release all sessions. An error keeps none of them locked."""
        while self._held:
            with suppress(OSError):
                self.release(next(iter(self._held)))
        if self._name is None:
            with suppress(OSError):  # others have sessions open, or there is no folder
                self._folder.rmdir()

    def holder(self, session_id: str) -> str:
        return lock_holder(self._path_of(session_id))

    def _path_of(self, session_id: str) -> str:
        # Not the id: a file system may ignore case, or reserve names.
        if self._name is not None:
            return str(self._folder / self._name)
        return str(self._folder / f"{hashlib.sha256(session_id.encode()).hexdigest()[:32]}.lock")


def lock_holder(path: str) -> str:
    """Return the holder of a lock, by the path of its file; empty if it is free, or there is no file."""
    holder = _read_holder(path)
    return holder if holder and _is_locked(path) else ""


def _acquired(path: str, session_id: str, *, to_delete: bool) -> FileLock:
    """Return a lock, acquired; the folder of its file exists. `to_delete`: a full disk is no reason against it."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise StoreError(f"{path} is no file, so it cannot be locked; move it away")
    # Not bound to a thread: one worker may open a session and the next release it. Not shared between instances:
    # two stores of one process are two writers.
    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
    for _ in range(_TRIES):
        try:
            lock.acquire()
            break
        except Timeout:
            time.sleep(0.002)
        except OSError as problem:
            if problem.errno not in _NO_LOCKS:
                raise
            raise StoreError(
                f"session {session_id!r} cannot be locked: the file system of {path} has no locks; keep sessions on "
                "another one"
            ) from problem
    else:
        raise SessionInUse(session_id, _read_holder(path) or "another process")
    try:
        with suppress(OSError) if to_delete else nullcontext():  # it only names the holder
            _write_holder(path)
    except BaseException:
        lock.release()
        raise
    return lock


def _write_holder(path: str) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    with open(os.open(path, os.O_WRONLY | os.O_TRUNC | _SAFE_FLAGS), "w") as file:
        file.write(f"pid {os.getpid()} on {socket.gethostname()}, since {since}")


def _read_holder(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | _SAFE_FLAGS), errors="replace") as file:
            text = file.read(_MAX_CHARS)
    except OSError:
        return ""
    return text if text.isprintable() else ""


def _is_locked(path: str) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | _SAFE_FLAGS), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
