"""Check that a file is still the one that was opened at its path. It precedes every acknowledgement.

The check must be cheap. Where the system allows it, it avoids `stat`: a file whose times were read takes longer to sync
(Linux 6.13: multigrain timestamps). Instead it reads the name of a descriptor that opens nothing (O_PATH); the name
changes when the file is moved or removed. Closing such a descriptor does not release SQLite's locks on the file, as
closing any other would.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

DeviceInode = tuple[int, int]
"""Device and inode of a file."""


def identity_of(path: str | Path) -> DeviceInode | None:
    """Return the identity of a file; None if it does not exist.

    Raises:
        OSError: The file cannot be examined now.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


class FileIdentity:
    """The identity of one file, from now on until it is closed.

    Attributes:
        identity: Device and inode; None if the file does not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.identity = identity_of(path)
        self._descriptor: int | None = None
        self._link = ""
        if hasattr(os, "O_PATH"):
            with suppress(OSError):
                self._descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
                self._link = f"/proc/self/fd/{self._descriptor}"

    def _has_its_name(self) -> bool:
        """True if the descriptor's name is the path. False with a link on the way, which may change its target."""
        try:
            return self._link != "" and os.readlink(self._link) == self._path
        except OSError:  # /proc is missing, or the descriptor is gone
            return False

    def change(self) -> str:
        """Return ``removed`` or ``replaced``; empty if the file is still at its path, or never existed.

        Raises:
            OSError: The file cannot be examined now.
        """
        if self.identity is None or self._has_its_name():
            return ""
        now = identity_of(self._path)
        if now == self.identity:
            return ""
        return "removed" if now is None else "replaced"

    def close(self) -> None:
        """Close the descriptor."""
        descriptor, self._descriptor, self._link = self._descriptor, None, ""
        if descriptor is not None:
            os.close(descriptor)


class DatabaseFiles:
    """The identities of an open database and of its log.

    Args:
        path: The database file.
        log_path: Its write-ahead log.
    """

    def __init__(self, path: Path, log_path: Path) -> None:
        self._paths = (str(path), str(log_path))  # strings: they are checked often, and faster than a `Path`
        self._database: FileIdentity | None = None
        self._log: FileIdentity | None = None

    @property
    def identity(self) -> DeviceInode | None:
        """Identity of the database when it was opened; None if it was not, or did not exist."""
        return self._database.identity if self._database is not None else None

    def note_database(self) -> None:
        """Note the database that is about to be opened."""
        self._database = FileIdentity(self._paths[0])

    def note_log(self) -> None:
        """Note the log of the database that was opened."""
        self._log = FileIdentity(self._paths[1])

    def change(self) -> str:
        """Describe what happened to a file since it was noted; empty if both are still at their paths.

        Raises:
            OSError: The file cannot be examined now.
        """
        for watched, path in zip((self._database, self._log), self._paths, strict=True):
            if watched is not None and (change := watched.change()):
                return f"{change} {path}"
        return ""

    def is_database_there(self) -> bool:
        """True if a file is at the path of the database, be it another one."""
        return identity_of(self._paths[0]) is not None

    def is_log_there(self) -> bool:
        """True if the log that was noted is still at its path."""
        return (
            self._log is not None
            and self._log.identity is not None
            and identity_of(self._paths[1]) == self._log.identity
        )

    def close(self) -> None:
        """Close the descriptors. The identities stay, so that a repair knows which file was open."""
        for watched in (self._database, self._log):
            if watched is not None:
                watched.close()
