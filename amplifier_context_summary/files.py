"""Files: what the calls of a range read and wrote, read from the calls themselves. A model may invent some.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from amplifier_context_core.messages.parsing import Call, arguments_of, calls_of
from amplifier_context_core.rendering.quoting import single_line
from amplifier_context_core.transcript.entry import Entry

from .text import FileUse

_PATHS = ("path", "file_path", "filepath", "filename", "file", "notebook_path", "target_file", "target")
# Names of tools in words: `edit_file`, `writeFile`, `str_replace_editor`.
_WRITES = re.compile(r"write|edit|create|replace|patch|insert|update|save|append|delete|remove|move|rename", re.I)
_IS_FILE = re.compile(r"[^/\\]*\.\w{1,8}")  # what a search was made in is a folder as a rule
_LONGEST = 200  # characters of a path


def files_of(entries: Iterable[Entry]) -> list[FileUse]:
    """Return what calls did to files, in the order of their last use."""
    found: dict[str, FileUse] = {}
    for entry in entries:
        for call in calls_of(entry.message):
            if (path := _path(call)) is None:
                continue
            before = found.pop(path, None)
            is_written = _writes(call) or (before is not None and before.use == "written")
            found[path] = FileUse(path, "written" if is_written else "read", entry.mark)
    return list(found.values())


def _path(call: Call) -> str | None:
    arguments = {key.casefold(): value for key, value in arguments_of(call).items()}
    path = next((arguments[key] for key in _PATHS if key in arguments), None)
    if (
        not isinstance(path, str)
        or len(path) > _LONGEST
        or not _IS_FILE.fullmatch(path.replace("\\", "/").rpartition("/")[2])
    ):
        return None
    return single_line(path)


def _writes(call: Call) -> bool:
    action = arguments_of(call).get("command")
    is_view = isinstance(action, str) and action in ("view", "read", "cat")
    return _WRITES.search(call.name) is not None and not is_view
