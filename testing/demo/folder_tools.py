"""Amplifier module `tool-folder`: three read-only tools over one folder.

    tools:
      - module: tool-folder
        config: {path: ., max_bytes: 32768}

Config: `path` (the folder; default the current one) and `max_bytes` (of one reading; default 32768). What the tools may
see, and how much of it, is decided in `folder`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ..checks.message_shapes import as_mapping
from .folder import READ_BYTES, Folder, FolderError

__amplifier_module_type__ = "tool"

_PATH = {"type": "string", "description": "Path relative to the folder; '.' is the folder itself."}


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
    try:
        folder = Folder(path, max_bytes)
    except FolderError as problem:
        raise ValueError(f"tool-folder: {problem}") from None
    return [
        FolderTool(
            "list_folder",
            "Lists the entries of a folder: folders first, files with their size in bytes.",
            {"path": _PATH},
            [],
            lambda given: folder.listing(_text(given, "path", ".")),
        ),
        FolderTool(
            "read_file",
            "Reads a text file, or some of its lines.",
            {
                "path": _PATH,
                "first_line": {"type": "integer", "minimum": 1, "description": "Where to begin; 1 is the first line."},
                "lines": {"type": "integer", "minimum": 1, "description": "How many lines; all that fit when absent."},
            },
            ["path"],
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
            ["text"],
            lambda given: folder.search(_text(given, "text"), _text(given, "path", "."), _text(given, "names", "*")),
        ),
    ]


class FolderTool:
    """One of the three. Whatever goes wrong is a `ToolResult` that says so; nothing is raised."""

    def __init__(
        self,
        name: str,
        description: str,
        properties: Mapping[str, Any],
        required: list[str],
        run: Callable[[Mapping[str, Any]], str],
    ) -> None:
        self.name = name
        self.description = description
        self.input_schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "required": required}
        self._run = run

    async def execute(self, input: dict[str, Any]) -> Any:
        from amplifier_core.models import ToolResult

        given = as_mapping(input)
        try:
            if given is None:
                raise FolderError("the input is no object")
            return ToolResult(output=await asyncio.to_thread(self._run, given))
        except (FolderError, OSError) as problem:
            return ToolResult(success=False, output=f"Error: {problem}", error={"message": str(problem)})


def _text(given: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = given.get(key, default)
    if not isinstance(value, str) or not value:
        raise FolderError(f"`{key}` is {'missing' if value is None else 'no text'}")
    return value


def _number(given: Mapping[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise FolderError(f"`{key}` is no whole number")
    return value
