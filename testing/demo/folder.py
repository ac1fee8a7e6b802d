"""Read-only and bounded access to one folder: listing, reading and searching, never outside of it.

Every path is resolved, links followed, and must then lie inside the folder; only regular files are opened, so that no
pipe or device can block. Results fit a conversation.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import BinaryIO

SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", ".git", ".hg", ".svn", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"}
)
"""Not searched: large, generated, and never what was meant. They can still be listed and read."""

READ_BYTES = 32_768  # of text that a read returns
_READ, _SEARCHED = 67_108_864, 2_097_152  # bytes of a file that a read and a search look at
_LINE_CHARS = 200  # characters shown of one line in search results
_ENTRIES, _MATCHES, _FILES = 500, 100, 5_000  # entries of a listing; matches of a search, and files that it opens


class FolderError(Exception):
    """A request cannot be met; the text is for the model."""


class Folder:
    """One folder and what may be seen of it.

    Raises:
        FolderError: there is no such folder.
    """

    def __init__(self, root: str | Path, read_bytes: int = READ_BYTES) -> None:
        self.root = Path(root).expanduser().resolve()
        self._read_bytes = read_bytes
        if not self.root.is_dir():
            raise FolderError(f"{root} is not a folder")

    def locate(self, path: str) -> Path:
        """Return the file or folder meant by a path relative to the root (or absolute, inside it).

        Raises:
            FolderError: it lies outside, through `..` or a link, or does not exist.
        """
        try:
            found = (self.root / path).resolve(strict=True)
        except FileNotFoundError:
            raise FolderError(f"{path} does not exist") from None
        except (OSError, RuntimeError, ValueError) as problem:  # a link to itself, no permission, no file name
            raise FolderError(f"{path} cannot be opened: {getattr(problem, 'strerror', None) or problem}") from None
        if found != self.root and self.root not in found.parents:
            raise FolderError(f"{path} lies outside the folder")
        return found

    def listing(self, path: str = ".") -> str:
        """Return the entries of a folder, a line each: `dir  name/` or `file  SIZE  name`, folders first, by name."""
        folder = self.locate(path)
        if not folder.is_dir():
            raise FolderError(f"{path} is a file; read it instead")
        try:
            lines = sorted(_line(entry) for entry in os.scandir(folder))
        except OSError as problem:
            raise FolderError(f"{path} cannot be listed: {problem.strerror}") from None
        more = [f"... and {len(lines) - _ENTRIES} more entries"] if len(lines) > _ENTRIES else []
        return "\n".join([*(line for _, _, line in lines[:_ENTRIES]), *more]) or f"{path} is empty"

    def read(self, path: str, first: int = 1, count: int | None = None) -> str:
        """Return lines of a text file, from line `first` (from 1); after a cut the last line says where to go on."""
        if first < 1 or (count is not None and count < 1):
            raise FolderError("lines are counted from 1, and at least one is read")
        data = self._text(path)
        if data is None:
            return f"{path}: binary file; not shown"
        lines = data.split(b"\n")
        if first > len(lines):
            raise FolderError(f"{path} has no line {first}, or it lies further in than is read")
        shown: list[bytes] = []
        left = self._read_bytes
        for line in islice(lines, first - 1, None if count is None else first - 1 + count):
            if len(line) >= left:
                if not shown:
                    shown.append(line[:left] + b"... the line goes on")
                break
            shown.append(line)
            left -= len(line) + 1
        text = b"\n".join(shown).decode("utf-8-sig", "replace").rstrip("\n")
        if not text:
            return f"{path} is empty" if not data else f"{path} ends before line {first}"
        more = first - 1 + len(shown) < len(lines) - (not lines[-1])
        return text + (f"\n... more follows: read from line {first + len(shown)}" if more else "")

    def search(self, text: str, path: str = ".", names: str = "*") -> str:
        """Return lines that hold a text, as `path:line: the line`; case matters. `names`: only such files (`*.py`)."""
        if not text:
            raise FolderError("there is nothing to search for: the text is empty")
        wanted = text.encode("utf-8", "replace")
        found: list[str] = []
        where = self.locate(path)
        files = [where] if where.is_file() else self._files(where)
        named = list(islice((one for one in files if fnmatch(one.name, names)), _FILES))
        for file in named:
            shown = file.relative_to(self.root).as_posix()
            try:
                data = self._text(shown, _SEARCHED) or b""
            except FolderError:
                continue  # unreadable or no regular file: nothing to find in it
            for number, line in enumerate(data.split(b"\n") if wanted in data else (), 1):
                if wanted in line:
                    found.append(f"{shown}:{number}: {line.decode('utf-8', 'replace').strip()[:_LINE_CHARS]}")
                if len(found) > _MATCHES:
                    return "\n".join([*found[:_MATCHES], "... more matches are not shown"])
        return "\n".join(found) or f"no line holds {text!r} ({len(named)} files searched)"

    def _files(self, folder: Path) -> Iterator[Path]:
        for place, folders, names in os.walk(folder, followlinks=False):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
            for name in sorted(names):
                file = Path(place, name)
                if not file.is_symlink():  # its target is found by itself, or lies outside
                    yield file

    def _text(self, path: str, most: int = _READ) -> bytes | None:
        """Return the content of a file, None if it is not text."""
        file = self.locate(path)
        if file.is_dir():
            raise FolderError(f"{path} is a folder; list it instead")
        try:
            with _open_regular(file) as opened:
                data = opened.read(most)
        except OSError as problem:
            raise FolderError(f"{path} cannot be read: {problem.strerror}") from None
        return None if b"\0" in data[:8_192] else data


def _open_regular(file: Path) -> BinaryIO:
    """Open a resolved path, provided it is a regular file still: no link put there since, no pipe, no device."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FolderError(f"{file.name} is no regular file")
    return os.fdopen(descriptor, "rb")


def _line(entry: os.DirEntry[str]) -> tuple[bool, str, str]:
    """Return the line of an entry, after what it is sorted by."""
    name = entry.name.encode("utf-8", "replace").decode("utf-8")  # names on disk may be no UTF-8
    link = " (link)" if entry.is_symlink() else ""
    try:
        if entry.is_dir():
            return False, name, f"dir  {name}/{link}"
        return True, name, f"file  {entry.stat().st_size}  {name}{link}"
    except OSError:
        return True, name, f"file  ?  {name}{link}"
