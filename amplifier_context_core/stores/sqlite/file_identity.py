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
        OSError: The system cannot tell now.
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
            OSError: The system cannot tell now.
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
