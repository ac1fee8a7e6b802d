"""One writer per session: an OS lock, released when its holder dies, and an owner file that names the holder.

`filelock` empties the file that it locks, so the owner has a file of its own. The owner file is valid only while the
lock is held.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, cast

from filelock import FileLock, Timeout

from ...errors import SessionInUse
from .file_ops import FileOps, check_regular_file, open_file, open_for_reading, read_at, remove
from .paths import SessionFiles

_UNKNOWN_HOLDER = "another process"


class SessionLock:
    """The exclusive right to write to a session, until it is released or this process ends."""

    def __init__(self, files: SessionFiles, *, to_delete: bool = False) -> None:
        """Acquire the lock.

        Args:
            files: Of the session.
            to_delete: True if the session is opened only to be deleted. Then a full disk is no reason against it.

        Raises:
            SessionInUse: Another writer holds it; named as far as is known.
            OSError: The lock file cannot be created.
        """
        self._files = files
        # Not bound to a thread: one worker may open a session and the next release it. Not shared between instances:
        # two stores of one process are two writers.
        self._lock = FileLock(files.path("lock"), timeout=0, mode=0o600, thread_local=False)
        check_regular_file(files.path("lock"))
        try:
            self._lock.acquire()
        except Timeout:
            raise SessionInUse(files.session_id, _wait_for_holder_name(files)) from None
        try:
            with suppress(OSError) if to_delete else nullcontext():  # it only names the holder
                self._write_owner()
        except BaseException:
            self._lock.release()
            raise

    def release(self, *, remove_file: bool = False) -> None:
        """Release the lock; with `remove_file`, delete its files as well."""
        try:
            with suppress(OSError):  # without the lock, the owner file is ignored
                remove(self._files.path("owner"))
                if remove_file:
                    remove(self._files.path("lock"))  # while the lock is held: the next holder sees that it has no name
        finally:
            self._lock.release()

    def _write_owner(self) -> None:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat()}
        FileOps(durable=False).replace_file(self._files.path("owner"), [json.dumps(owner).encode()])


def lock_holder(files: SessionFiles) -> str:
    """Return the current writer of a session; empty if there is none. A stale owner file does not count."""
    owner = _read_owner(files)
    if not owner:
        return ""
    here = owner.get("host") == socket.gethostname()
    if here and not (_is_running(owner.get("pid")) and _is_locked(files)):
        return ""
    return _describe(owner)


def _wait_for_holder_name(files: SessionFiles) -> str:
    """Return the holder of a taken lock. A holder that just acquired it may not have written the owner file yet."""
    for _ in range(20):
        owner = _read_owner(files)
        if owner and (owner.get("host") != socket.gethostname() or _is_running(owner.get("pid"))):
            return _describe(owner)
        time.sleep(0.002)
    return _UNKNOWN_HOLDER


def _read_owner(files: SessionFiles) -> dict[str, Any]:
    try:
        with open_for_reading(files.path("owner")) as descriptor:
            owner: object = json.loads(read_at(descriptor, 0, 4096)) if descriptor is not None else {}
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", owner) if isinstance(owner, dict) else {}


def _describe(owner: dict[str, Any]) -> str:
    return f"pid {owner.get('pid')} on {owner.get('host')}"


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


def _is_locked(files: SessionFiles) -> bool:
    """True if the lock is held. Call only if the owner's process runs: a brief shared lock does not disturb it."""
    try:
        descriptor = open_file(files.path("lock"), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
