"""Read-only and bounded access to one folder: listing, reading and searching, never outside of it.

Every path is resolved, links followed, and must then lie inside the folder; only regular files are opened, so that no
pipe or device can block. Results fit a conversation: the limits are in `Limits`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO

SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", ".git", ".hg", ".svn", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"}
)
"""Not searched: large, generated, and never what was meant. They can still be listed and read."""

_SNIFFED = 8_192  # bytes read to distinguish text from binary
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"\x7fELF", "ELF executable"),
    (b"SQLite format 3\x00", "SQLite database"),
)


class FolderError(Exception):
    """A request cannot be met; the text is for the model."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one result.

    Attributes:
        read_bytes: bytes of text a read returns.
        scan_bytes: bytes a read may pass over to reach its first line.
        line_chars: characters shown of one line in search results.
        entries: entries of a listing.
        matches: matches of a search.
        files: files a search opens.
        file_bytes: size of a file, in bytes, above which a search passes it over.
    """

    read_bytes: int = 32_768
    scan_bytes: int = 67_108_864
    line_chars: int = 200
    entries: int = 500
    matches: int = 100
    files: int = 5_000
    file_bytes: int = 2_097_152


class Folder:
    """One folder and what may be seen of it.

    Args:
        root: the folder; must exist.

    Raises:
        FolderError: there is no such folder.
    """

    def __init__(self, root: str | Path, limits: Limits | None = None) -> None:
        self.root = Path(root).expanduser().resolve()
        self.limits = limits or Limits()
        if not self.root.is_dir():
            raise FolderError(f"{root} is not a folder")

    def locate(self, path: str) -> Path:
        """Return the file or folder meant by a path relative to the root (or absolute, inside it).

        Raises:
            FolderError: it lies outside, through `..` or a link, or does not exist.
        """
        if "\x00" in path:
            raise FolderError("a path holds no NUL characters")
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
            entries = sorted(os.scandir(folder), key=lambda entry: (not _is_folder(entry), entry.name))
        except OSError as problem:
            raise FolderError(f"{path} cannot be listed: {problem.strerror}") from None
        if not entries:
            return f"{self._shown(folder)} is empty"
        lines = [_line(entry) for entry in entries[: self.limits.entries]]
        if len(entries) > len(lines):
            lines.append(f"... and {len(entries) - len(lines)} more entries")
        return "\n".join(lines)

    def read(self, path: str, first: int = 1, count: int | None = None) -> str:
        """Lines of a text file, from line `first` (1 is the first); a binary file is described instead.

        Cut at `read_bytes`; a last line says where to go on.
        """
        if first < 1 or (count is not None and count < 1):
            raise FolderError("lines are counted from 1, and at least one is read")
        with self._open(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_SNIFFED)
            if kind := _binary_kind(head):
                return f"{path}: {kind}, {size:,} bytes; not shown"
            file.seek(0)
            if not self._skip(file, first - 1):
                raise FolderError(f"{path} has no line {first}, or it lies further in than is read")
            text, lines, more = self._take(file, count)
        if not text:
            return f"{path} is empty" if size == 0 else f"{path} ends before line {first}"
        if more:
            text += f"\n... more follows: read from line {first + lines}"
        return text

    def search(self, text: str, path: str = ".", names: str = "*") -> str:
        """Lines that hold a text, as `path:line: the line`; case matters. `SKIPPED_FOLDERS` are passed over.

        Args:
            names: only files whose name matches this pattern (`*.py`).
        """
        if not text:
            raise FolderError("there is nothing to search for: the text is empty")
        wanted = text.encode("utf-8", "replace")
        found: list[str] = []
        opened = 0
        where = self.locate(path)
        for file in [where] if where.is_file() else self._files(where):
            if not fnmatch(file.name, names):
                continue
            opened += 1
            if opened > self.limits.files:
                found.append(f"... stopped after {self.limits.files} files")
                break
            for number, line in self._matches(file, wanted):
                if len(found) >= self.limits.matches:
                    return "\n".join([*found, "... more matches are not shown"])
                shown = line.decode("utf-8", "replace").strip()[: self.limits.line_chars]
                found.append(f"{self._shown(file)}:{number}: {shown}")
        return "\n".join(found) or f"no line holds {text!r} ({opened} files searched)"

    def _files(self, folder: Path) -> Iterator[Path]:
        for place, folders, names in os.walk(folder, followlinks=False):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
            for name in sorted(names):
                file = Path(place, name)
                if not file.is_symlink():  # its target is found by itself, or lies outside
                    yield file

    def _matches(self, file: Path, wanted: bytes) -> Iterator[tuple[int, bytes]]:
        try:
            with _open_regular(file) as opened:
                if os.fstat(opened.fileno()).st_size > self.limits.file_bytes:
                    return
                data = opened.read(self.limits.file_bytes)
        except (OSError, FolderError):
            return  # unreadable or no regular file: nothing to find in it
        if wanted not in data or _binary_kind(data[:_SNIFFED]):
            return
        for number, line in enumerate(data.split(b"\n"), 1):
            if wanted in line:
                yield number, line

    def _open(self, path: str) -> BinaryIO:
        file = self.locate(path)
        if file.is_dir():
            raise FolderError(f"{path} is a folder; list it instead")
        try:
            return _open_regular(file)
        except OSError as problem:
            raise FolderError(f"{path} cannot be read: {problem.strerror}") from None

    def _skip(self, file: BinaryIO, lines: int) -> bool:
        """Pass over lines; `False` when there are not so many, or they are more than may be scanned."""
        scanned = 0
        while lines:
            piece = file.readline(1_048_576)
            if not piece:
                return False
            scanned += len(piece)
            if scanned > self.limits.scan_bytes:
                return False
            lines -= piece.endswith(b"\n")
        return True

    def _take(self, file: BinaryIO, count: int | None) -> tuple[str, int, bool]:
        """Text, the whole lines in it, and whether more follows. A line longer than the limit is shown in part."""
        pieces: list[bytes] = []
        left = self.limits.read_bytes
        while count is None or len(pieces) < count:
            piece = file.readline(left + 1)
            if not piece:
                return _decoded(pieces), len(pieces), False
            if len(piece) > left:
                if not pieces:
                    cut = piece[:left] + b"... the line goes on"
                    return _decoded([cut]), 1, True
                return _decoded(pieces), len(pieces), True
            pieces.append(piece)
            left -= len(piece)
        return _decoded(pieces), len(pieces), bool(file.read(1))

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _open_regular(file: Path) -> BinaryIO:
    """Open a resolved path, provided it is a regular file still: no link put there since, no pipe, no device."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FolderError(f"{file.name} is no regular file")
    return os.fdopen(descriptor, "rb")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _line(entry: os.DirEntry[str]) -> str:
    name = entry.name.encode("utf-8", "replace").decode("utf-8")  # names on disk may be no UTF-8
    link = " (link)" if entry.is_symlink() else ""
    if _is_folder(entry):
        return f"dir  {name}/{link}"
    try:
        size = entry.stat().st_size
    except OSError:
        return f"file  ?  {name}{link}"
    return f"file  {size}  {name}{link}"


def _binary_kind(head: bytes) -> str | None:
    """Return the kind of a file that is not text, from its first bytes; `None` for text."""
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return kind
    return "binary file" if b"\x00" in head else None


def _decoded(pieces: list[bytes]) -> str:
    return b"".join(pieces).decode("utf-8-sig", "replace").rstrip("\n")
