"""One writer per session: an OS lock on a file, released when its holder dies. The file names the holder.

What the file says counts only while the lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, cast

from filelock import FileLock, Timeout

from ..errors import SessionInUse, StoreError

_UNKNOWN_HOLDER = "another process"
_SAFE_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_MAX_BYTES = 4_096  # of the text in the file


class SessionLock:
    """The exclusive right to write to a session, until it is released or this process ends."""

    def __init__(self, path: str, session_id: str, *, to_delete: bool = False) -> None:
        """Acquire the lock; the folder of its file exists. `to_delete`: a full disk is no reason against it. Raise
        `SessionInUse`, or `StoreError` if the file system has no locks.
        """
        self._path = path
        # Not bound to a thread: one worker may open a session and the next release it. Not shared between instances:
        # two stores of one process are two writers.
        self._lock = FileLock(path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
        self._acquire(session_id)
        try:
            with suppress(OSError) if to_delete else nullcontext():  # it only names the holder
                self._write_holder()
        except BaseException:
            self._lock.release()
            raise

    def _acquire(self, session_id: str) -> None:
        holder = ""
        for _ in range(2):  # again if no holder is named: the former one may have removed the file meanwhile
            try:
                self._lock.acquire()
            except Timeout:
                holder = _wait_for_holder(self._path)
                if holder != _UNKNOWN_HOLDER:
                    break
            except OSError as problem:
                if problem.errno not in _NO_LOCKS:
                    raise
                raise StoreError(
                    f"session {session_id!r} cannot be locked: the file system of {self._path} has no locks; keep "
                    "sessions on another one"
                ) from problem
            else:
                return
        raise SessionInUse(session_id, holder)

    def release(self) -> None:
        """Release the lock, and delete its file."""
        try:
            with suppress(OSError):  # without the lock, what the file says is ignored
                os.unlink(self._path)  # while the lock is held: the next holder sees that it has no name
        finally:
            self._lock.release()

    def _write_holder(self) -> None:
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        descriptor = os.open(self._path, os.O_WRONLY | os.O_TRUNC | _SAFE_FLAGS)
        try:
            os.write(descriptor, json.dumps(holder).encode())
        finally:
            os.close(descriptor)


def lock_holder(path: str) -> str:
    """Return the holder of a lock, by the path of its file; empty if it is free, or there is no file."""
    holder = _read_holder(path)
    if not holder:
        return ""
    here = holder.get("host") == socket.gethostname()
    if here and not (_is_running(holder.get("pid")) and _is_locked(path)):
        return ""
    return _describe(holder)


def _wait_for_holder(path: str) -> str:
    """Return the holder of a taken lock. A holder that just acquired it may not have written its name yet."""
    for _ in range(20):
        holder = _read_holder(path)
        if holder and (holder.get("host") != socket.gethostname() or _is_running(holder.get("pid"))):
            return _describe(holder)
        time.sleep(0.002)
    return _UNKNOWN_HOLDER


def _read_holder(path: str) -> dict[str, Any]:
    try:
        descriptor = os.open(path, os.O_RDONLY | _SAFE_FLAGS)
        try:
            holder: object = json.loads(os.read(descriptor, _MAX_BYTES))
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}


def _describe(holder: dict[str, Any]) -> str:
    since = f", since {holder['since']}" if isinstance(holder.get("since"), str) else ""
    return f"pid {holder.get('pid')} on {holder.get('host')}{since}"


def _is_running(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True


def _is_locked(path: str) -> bool:
    """True if the lock is held. Call only if the holder's process runs: a brief shared lock does not disturb it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _SAFE_FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
