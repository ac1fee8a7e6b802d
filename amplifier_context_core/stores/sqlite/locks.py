"""The session locks of one store object: a file for each session, all in one folder."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import StoreError
from ..session_lock import SessionLock, lock_holder
from .schema import make_folder

_MAX_ATTEMPTS = 20


class SessionLocks:
    """Locks sessions of a database: with a `name` by that file of the folder, else by a file for each session."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._folder, self._name = folder, name
        self._held: dict[str, SessionLock] = {}
        self._lost: dict[str, StoreError] = {}  # sessions whose database is gone, until they are opened or released

    @property
    def held(self) -> bool:
        return bool(self._held)

    def acquire(self, session_id: str, *, again: bool = False, to_delete: bool = False) -> bool:
        """Lock a session, with `again` even if its database is gone. Return False if it was locked already. Raise
        `SessionInUse`, or `StoreError` if its database is gone or the file system has no locks.
        """
        if again:
            self._lost.pop(session_id, None)
        self.check_not_lost(session_id)
        if session_id in self._held:
            return False
        for _ in range(_MAX_ATTEMPTS):
            with suppress(FileNotFoundError):  # another store that closed has removed the folder
                make_folder(self._folder)
                self._check_file_type(self._path_of(session_id))
                self._held[session_id] = SessionLock(self._path_of(session_id), session_id, to_delete=to_delete)
                return True
        raise StoreError(f"{self._folder} is removed repeatedly; find the program that does it")

    def release(self, session_id: str) -> None:
        self._lost.pop(session_id, None)
        lock = self._held.pop(session_id, None)
        if lock is not None:
            lock.release()

    def release_all(self) -> None:
        """Release all sessions. An error keeps none of them locked."""
        self._lost.clear()
        while self._held:
            with suppress(OSError):
                self.release(next(iter(self._held)))
        if self._name is None:
            with suppress(OSError):  # others have sessions open, or there is no folder
                self._folder.rmdir()

    def lose_all(self, what: str) -> None:
        """Release all sessions, because the database is gone. They are refused until they are opened or released."""
        names = [*self._held]
        self.release_all()
        for session_id in names:
            self._lost[session_id] = StoreError(
                f"session {session_id!r}: another program {what}; restore it if it is needed, then release the session "
                "and open it again to continue with its present content"
            )

    def check_not_lost(self, session_id: str) -> None:
        if session_id in self._lost:
            raise self._lost[session_id].with_traceback(None)

    def holders(self, session_ids: Iterable[str]) -> dict[str, str]:
        try:
            locked = {entry.name for entry in os.scandir(self._folder)}
        except OSError:
            return {}
        names = [name for name in session_ids if os.path.basename(self._path_of(name)) in locked]
        return {name: holder for name in names if (holder := lock_holder(self._path_of(name)))}

    @staticmethod
    def _check_file_type(path: str) -> None:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise StoreError(f"{path} is no file, so it cannot be locked; move it away")

    def _path_of(self, session_id: str) -> str:
        # Not the id: a file system may ignore case, or reserve names.
        if self._name is not None:
            return str(self._folder / self._name)
        return str(self._folder / f"{hashlib.sha256(session_id.encode()).hexdigest()[:32]}.lock")
