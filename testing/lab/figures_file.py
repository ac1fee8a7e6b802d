"""A file that is complete JSON at every moment, although what it holds takes minutes to measure."""

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

_SHARE = 0.05  # of the time, at most, goes into writing what was measured meanwhile
_STREAMS = tuple(map(Path, ("/dev/stdout", "/dev/stderr", "/dev/fd", "/proc")))  # even where a file is behind them


class FiguresFile:
    """Keeps the newest state of some figures in a file: each is written beside it, then takes its place.

    Args:
        path: of the file. What is there stays until there is something to put in its place.

    Raises:
        click.ClickException: nothing can be written there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = Path(os.path.realpath(path))  # a link stays a link
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
        """Write figures, unless writing would take too much of the time; `finish` writes them then."""
        self._pending = figures
        if not self._streams and time.monotonic() >= self._not_before:
            started = time.monotonic()
            self.finish()
            self._not_before = time.monotonic() + (time.monotonic() - started) / _SHARE

    def finish(self) -> None:
        """Write what has not been written yet."""
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
        """A new file beside the one to be replaced: its descriptor and its name."""
        return tempfile.mkstemp(prefix=f".{self._file.name}.", suffix=".new", dir=self._file.parent)
