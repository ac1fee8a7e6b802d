"""Amplifier module `tool-folder`: three read-only tools over one folder: listing, reading and searching.

    tools:
      - module: tool-folder
        config: {path: ., max_bytes: 32768}

Config: `path` (the folder; default the current one) and `max_bytes` (of one reading; default 32768). Every path is
resolved, links followed, and must then lie inside the folder; only regular files are opened, so that no pipe or device
can block. Results fit a conversation.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from ..checks.message_shapes import as_mapping

__amplifier_module_type__ = "tool"

SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", ".git", ".hg", ".svn", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"}
)
"""Not searched: large, generated, and never what was meant. They can still be listed and read."""

READ_BYTES = 32_768  # of text that a read returns
_READ, _SEARCHED = 67_108_864, 2_097_152  # bytes of a file that a read and a search look at
_LINE_CHARS = 200  # characters shown of one line in search results
_ENTRIES, _MATCHES, _FILES = 500, 100, 5_000  # entries of a listing; matches of a search, and files that it opens
_PATH = {"type": "string", "description": "Path relative to the folder; '.' is the folder itself."}
_WHOLE = {"type": "integer", "minimum": 1}


class FolderError(Exception):
    """A request cannot be met; the text is for the model."""


class Folder:
    """One folder and what may be seen of it."""

    def __init__(self, root: str | Path, read_bytes: int = READ_BYTES) -> None:
        self.root = Path(root).expanduser().resolve()
        self._read_bytes = read_bytes

    def locate(self, path: str) -> Path:
        """Return the file or folder of a path relative to the root (or absolute, inside it)."""
        found = (self.root / path).resolve(strict=True)
        if found != self.root and self.root not in found.parents:
            raise FolderError(f"{path} lies outside the folder")
        return found

    def listing(self, path: str = ".") -> str:
        """Return the entries of a folder, a line each: `dir  name/` or `file  SIZE  name`, folders first, by name."""
        with os.scandir(self.locate(path)) as entries:
            lines = [line for _, line in sorted(map(_line, entries))]
        more = [f"... and {len(lines) - _ENTRIES} more entries"] if len(lines) > _ENTRIES else []
        return "\n".join([*lines[:_ENTRIES], *more]) or f"{path} is empty"

    def read(self, path: str, first: int = 1, count: int | None = None) -> str:
        """Return lines of a text file, from line `first` (from 1); after a cut the last line says where to go on."""
        data = self._content(path, _READ)
        if b"\0" in data[:8_192]:
            return f"{path}: binary file; not shown"
        lines = data.rstrip(b"\n").split(b"\n")[first - 1 :]
        shown: list[bytes] = []
        left = self._read_bytes
        for line in lines[:count]:
            if shown and len(line) >= left:
                break
            shown.append(line if len(line) < left else line[:left] + b"... the line goes on")
            left -= len(line) + 1
        text = b"\n".join(shown).decode("utf-8-sig", "replace")
        more = f"\n... more follows: read from line {first + len(shown)}" if len(shown) < len(lines) else ""
        return f"{text}{more}" or f"{path} has no text from line {first} on"

    def search(self, text: str, path: str = ".", names: str = "*") -> str:
        """Return lines that hold a text, as `path:line: the line`; case matters. `names`: only such files (`*.py`)."""
        wanted = text.encode("utf-8", "replace")
        where = self.locate(path)
        files = islice(
            (one for one in ([where] if where.is_file() else _files(where)) if fnmatch(one.name, names)), _FILES
        )
        found: list[str] = []
        for file in files:
            shown = file.relative_to(self.root).as_posix()
            try:
                data = self._content(shown, _SEARCHED)
            except (FolderError, OSError):
                continue  # unreadable or no regular file: nothing to find in it
            for number, line in enumerate(data.split(b"\n") if b"\0" not in data[:8_192] else (), 1):
                if wanted in line:
                    found.append(f"{shown}:{number}: {line.decode('utf-8', 'replace').strip()[:_LINE_CHARS]}")
                if len(found) > _MATCHES:
                    return "\n".join([*found[:_MATCHES], "... more matches are not shown"])
        return "\n".join(found) or f"no line holds {text!r}"

    def _content(self, path: str, most: int) -> bytes:
        """Return the content of a regular file: of no link put there since, no pipe, no device."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self.locate(path), flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FolderError(f"{path} is no regular file")
        with os.fdopen(descriptor, "rb") as opened:
            return opened.read(most)


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        # The target of a link is found by itself, or lies outside.
        yield from (file for name in sorted(names) if not (file := Path(place, name)).is_symlink())


def _line(entry: os.DirEntry[str]) -> tuple[bool, str]:
    """Return the line of an entry, after what folders are sorted by."""
    name = entry.name.encode("utf-8", "replace").decode("utf-8")  # names on disk may be no UTF-8
    if entry.is_dir():
        return False, f"dir  {name}/"
    return True, f"file  {entry.stat(follow_symlinks=False).st_size}  {name}"


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
    """Mount `list_folder`, `read_file` and `search_files`.

    Raises:
        ValueError: `path` is no folder, or another config value cannot be.
    """
    for tool in folder_tools(config):
        await coordinator.mount("tools", tool, name=tool.name)


def folder_tools(config: Mapping[str, Any] | None = None) -> list[FolderTool]:
    settings = dict(config or {})
    path, max_bytes = settings.pop("path", "."), settings.pop("max_bytes", READ_BYTES)
    if settings:
        raise ValueError(f"tool-folder has no config {', '.join(sorted(settings))}; known are path and max_bytes")
    if not isinstance(max_bytes, int) or max_bytes < 1:
        raise ValueError(f"tool-folder: max_bytes is {max_bytes!r}; it must be a whole number of bytes above 0")
    folder = Folder(path, max_bytes)
    if not folder.root.is_dir():
        raise ValueError(f"tool-folder: {path} is not a folder")
    return [
        FolderTool(
            "list_folder",
            "Lists the entries of a folder: folders first, files with their size in bytes.",
            {"path": _PATH},
            (),
            lambda given: folder.listing(_text(given, "path", ".")),
        ),
        FolderTool(
            "read_file",
            "Reads a text file, or some of its lines.",
            {
                "path": _PATH,
                "first_line": {**_WHOLE, "description": "Where to begin; 1 is the first line."},
                "lines": {**_WHOLE, "description": "How many lines; all that fit when absent."},
            },
            ("path",),
            lambda given: folder.read(_text(given, "path"), _number(given, "first_line") or 1, _number(given, "lines")),
        ),
        FolderTool(
            "search_files",
            "Finds the lines that hold a text, in all files below a folder or in one file. Case matters.",
            {
                "text": {"type": "string", "description": "The exact text to find; not a pattern."},
                "path": _PATH,
                "names": {"type": "string", "description": "Only files with such a name, like '*.py'."},
            },
            ("text",),
            lambda given: folder.search(_text(given, "text"), _text(given, "path", "."), _text(given, "names", "*")),
        ),
    ]


@dataclass(frozen=True, slots=True)
class FolderTool:
    """One of the three. Whatever goes wrong is a `ToolResult` that says so; nothing is raised."""

    name: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    run: Callable[[Mapping[str, Any]], str]

    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": dict(self.properties), "required": list(self.required)}

    async def execute(self, input: dict[str, Any]) -> Any:
        from amplifier_core.models import ToolResult

        given = as_mapping(input) or {}
        try:
            return ToolResult(output=await asyncio.to_thread(self.run, given))
        except (FolderError, OSError, RuntimeError, ValueError) as problem:  # a link to itself, no file name
            text = f"{given.get('path')}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)
            return ToolResult(success=False, output=f"Error: {text}", error={"message": text})


def _text(given: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = given.get(key, default)
    if not isinstance(value, str) or not value:
        raise FolderError(f"`{key}` is {'missing' if value is None else 'no text'}")
    return value


def _number(given: Mapping[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise FolderError(f"`{key}` is no whole number above 0")
    return value
