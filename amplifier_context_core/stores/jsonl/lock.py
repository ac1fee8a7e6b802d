"""One writer a session: a lock that the operating system takes back when its holder dies, and a note of who that is.

`filelock` empties the file it locks, so the note is a file of its own. It is believed only while the lock is held.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from filelock import FileLock, Timeout

from ...errors import SessionInUse
from .file_ops import FileOps, check_ordinary, open_file, read_at, reading, remove
from .paths import SessionFiles

_SOMEBODY = "another process"


class SessionLock:
    """The right to write to a session, until it is given back or this process is gone."""

    def __init__(self, files: SessionFiles) -> None:
        """Take it.

        Raises:
            SessionInUse: somebody has it; named as far as is known.
            OSError: the lock cannot be made.
        """
        self._files = files
        # Not of a thread: a session may be opened by one worker and released by the next. For all, not for this
        # instance: two stores of one process are two writers.
        self._lock = FileLock(files.path("lock"), timeout=0, mode=0o600, thread_local=False)
        check_ordinary(files.path("lock"))
        try:
            self._lock.acquire()
        except Timeout:
            raise SessionInUse(files.session_id, _named(files)) from None
        try:
            self._write_owner()
        except BaseException:
            self._lock.release()
            raise

    def release(self, *, forget: bool = False) -> None:
        """Give it back; with `forget` nothing is left of it."""
        try:
            with suppress(OSError):  # without the lock nobody believes the note
                remove(self._files.path("owner"))
                if forget:
                    remove(self._files.path("lock"))  # while it is held: who gets this one sees that it has no name
        finally:
            self._lock.release()

    def _write_owner(self) -> None:
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat()}
        FileOps(durable=False).replace_file(self._files.path("owner"), [json.dumps(note).encode()])


def holder_of(files: SessionFiles) -> str:
    """Who writes to a session now; empty when nobody does, whatever a note left behind says."""
    note = _note(files)
    if not note:
        return ""
    here = note.get("host") == socket.gethostname()
    if here and not (_lives(note.get("pid")) and _is_locked(files)):
        return ""
    return _words(note)


def _named(files: SessionFiles) -> str:
    """The holder of a lock that is taken; who took it this moment has perhaps not written the note yet."""
    for _ in range(20):
        note = _note(files)
        if note and (note.get("host") != socket.gethostname() or _lives(note.get("pid"))):
            return _words(note)
        time.sleep(0.002)
    return _SOMEBODY


def _note(files: SessionFiles) -> dict[str, Any]:
    try:
        with reading(files.path("owner")) as descriptor:
            note: object = json.loads(read_at(descriptor, 0, 4096)) if descriptor is not None else {}
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", note) if isinstance(note, dict) else {}


def _words(note: dict[str, Any]) -> str:
    return f"pid {note.get('pid')} on {note.get('host')}"


def _lives(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _is_locked(files: SessionFiles) -> bool:
    """Asked only when the note's process lives: an instant's shared lock is no trouble to a holder that has it."""
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
