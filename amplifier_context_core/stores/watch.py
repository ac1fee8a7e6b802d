"""Is a file still the one that stood at its path? Asked before anything is acknowledged: it must cost next to nothing.

Where the system allows it, not by `stat`: a file whose times were asked for takes longer to sync (Linux 6.13:
multigrain timestamps). A descriptor that opens nothing (O_PATH) is asked for its name instead: it changes when the file
is moved or removed; so does that of any other descriptor. (To close one that opens nothing does not give up the locks
SQLite has on the file.)
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

Place = tuple[int, int]
"""Of a file: its device and its number there."""


def place_of(path: str | Path) -> Place | None:
    """Where a file, or link, is; None if there is none.

    Raises:
        OSError: nobody can tell now.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


class Watch:
    """Of one file, from now on until it is closed.

    Attributes:
        place: where it is; None if there is no file.
    """

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        """
        Args:
            path: of the file.
            descriptor: of a file that is open, and was opened there; it stays its owner's. Otherwise, of what is there.
        """
        self._path = path
        self._descriptor: int | None = None
        self._link = self._name = ""
        with suppress(OSError):
            if descriptor is None and hasattr(os, "O_PATH"):
                descriptor = self._descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
            if descriptor is not None and sys.platform == "linux":
                self._link = f"/proc/self/fd/{descriptor}"
                self._name = os.readlink(self._link)
        if descriptor is None:
            self.place = place_of(path)
        else:
            status = os.fstat(descriptor)
            self.place = status.st_dev, status.st_ino
            if self._name and place_of(path) != self.place:
                self._name = ""  # it was moved before: its name says nothing of this path

    def happened(self) -> str:
        """What became of it: ``removed``, ``replaced``; empty when it is where it was, or never was.

        Raises:
            OSError: nobody can tell now.
        """
        if self.place is None or (self._name and os.readlink(self._link) == self._name):
            return ""
        now = place_of(self._path)
        if now == self.place:
            return ""
        return "removed" if now is None else "replaced"

    def close(self) -> None:
        """Watch it no more."""
        descriptor, self._descriptor, self._name = self._descriptor, None, ""
        if descriptor is not None:
            os.close(descriptor)
