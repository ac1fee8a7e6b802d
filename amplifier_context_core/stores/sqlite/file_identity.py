"""Is a file still the one that stood at its path? Asked before anything is acknowledged: it must cost next to nothing.

Where the system allows it, not by `stat`: a file whose times were asked for takes longer to sync (Linux 6.13:
multigrain timestamps). A descriptor that opens nothing (O_PATH) is asked for its name instead: it changes when the file
is moved or removed. (To close such a one does not give up the locks SQLite has on the file, as any other would.)
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

DeviceInode = tuple[int, int]
"""Of a file: its device and its number there."""


def identity_of(path: str | Path) -> DeviceInode | None:
    """Where a file is; None if there is none.

    Raises:
        OSError: nobody can tell now.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


class FileIdentity:
    """Of one file, from now on until it is closed.

    Attributes:
        place: where it is; None if there is no file.
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
        """Is its name the path? Not where there is a link on the way, which may come to lead elsewhere."""
        try:
            return self._link != "" and os.readlink(self._link) == self._path
        except OSError:  # no /proc, or none any more
            return False

    def change(self) -> str:
        """What became of it: ``removed``, ``replaced``; empty when it is where it was, or never was.

        Raises:
            OSError: nobody can tell now.
        """
        if self.identity is None or self._has_its_name():
            return ""
        now = identity_of(self._path)
        if now == self.identity:
            return ""
        return "removed" if now is None else "replaced"

    def close(self) -> None:
        """Watch it no more."""
        descriptor, self._descriptor, self._link = self._descriptor, None, ""
        if descriptor is not None:
            os.close(descriptor)
