"""A file that is complete JSON at every moment, although its figures take minutes to measure."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

_SHARE = 0.05  # maximal share of the time that is spent on writing intermediate figures
_STREAMS = tuple(map(Path, ("/dev/stdout", "/dev/stderr", "/dev/fd", "/proc")))  # also if they lead to a file


class FiguresFile:
    """Writes figures to a file: each version goes to a new file, which then replaces the old one.

    Args:
        path: path of the file. An existing file stays until the first version is complete.

    Raises:
        click.ClickException: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = Path(os.path.realpath(path))  # replaces the target of a link, not the link
        here = path.absolute()
        self._streams = (path.exists() and not path.is_file()) or any(
            place in (here, *here.parents) for place in _STREAMS
        )
        self._pending: Callable[[], dict[str, Any]] | None = None
        self._not_before = 0.0
        try:
            if path.exists() and not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if not self._streams:
                descriptor, name = self._beside()
                os.close(descriptor)
                os.unlink(name)
        except OSError as problem:
            reason = problem.strerror or type(problem).__name__
            raise click.ClickException(f"--json: {path} cannot be written: {reason}") from None

    def keep(self, figures: Callable[[], dict[str, Any]]) -> None:
        """Write figures, unless writing would take too much of the time; then `finish` writes them."""
        self._pending = figures
        if not self._streams and time.monotonic() >= self._not_before:
            started = time.monotonic()
            self.finish()
            self._not_before = time.monotonic() + (time.monotonic() - started) / _SHARE

    def finish(self) -> None:
        """Write the figures that are not written yet."""
        if self._pending is None:
            return
        text = json.dumps(self._pending(), indent=1) + "\n"
        self._pending = None
        if self._streams:
            self._path.write_text(text, encoding="utf-8")
            return
        descriptor, name = self._beside()
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as new:
                new.write(text)
            with suppress(FileNotFoundError):
                shutil.copymode(self._file, name)
            os.replace(name, self._file)
        except BaseException:
            os.unlink(name)
            raise

    def _beside(self) -> tuple[int, str]:
        """Create a new file in the folder of the file; return its descriptor and its name."""
        return tempfile.mkstemp(prefix=f".{self._file.name}.", suffix=".new", dir=self._file.parent)
