"""Files and other artefacts: what the calls of a range read, wrote and ran, read from the calls themselves.

A model would have to remember them, and may invent some. The calls are there.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amplifier_context_core.compaction.identifiers import identifiers
from amplifier_context_core.messages.parsing import Call, arguments_of, calls_of
from amplifier_context_core.rendering.quoting import single_line
from amplifier_context_core.transcript.entry import Entry

from .text import FileUse

_PATHS = ("path", "file_path", "filepath", "filename", "file", "notebook_path", "target_file", "target")
_COMMANDS = ("command", "cmd", "script")
# Names of tools in words: `edit_file`, `writeFile`, `str_replace_editor`.
_WRITES = re.compile(r"write|edit|create|replace|patch|insert|update|save|append|delete|remove|move|rename", re.I)
_RUNS = re.compile(r"bash|shell|run|exec|terminal|command|python", re.I)
_NO_FILES = ("/dev/", "refs/", "origin/")
_FILE = re.compile(r"[\w~./-]*/[\w./-]+|[\w-]+\.[A-Za-z]\w{0,5}")
_ORDER = ("read", "written", "run")
_MOST = 60  # files of one range; the newest
_LONGEST = 200  # characters of a path
_OF_COMMAND = 3  # files named by one command


def files_of(entries: Iterable[Entry]) -> list[FileUse]:
    """Return what calls did to files, in the order of their last use."""
    found: dict[str, tuple[set[str], str]] = {}
    for entry in entries:
        for call in calls_of(entry.message):
            for path, use in _uses(call):
                uses, _ = found.pop(path, (set[str](), ""))
                found[path] = (uses | {use}, entry.mark)
    listed = [FileUse(path, tuple(use for use in _ORDER if use in uses), mark) for path, (uses, mark) in found.items()]
    return listed[-_MOST:]


def _uses(call: Call) -> Iterator[tuple[str, str]]:
    """Yield the files that one call names, and what it does to them."""
    arguments = {key.casefold(): value for key, value in arguments_of(call).items()}
    for key in _PATHS:
        path = arguments.get(key)
        if isinstance(path, str) and path.strip() and len(path) <= _LONGEST:
            action = arguments.get("command") if _WRITES.search(call.name) else None
            is_view = isinstance(action, str) and action in ("view", "read", "cat")
            yield single_line(path), "written" if _WRITES.search(call.name) and not is_view else "read"
            return
    for key in _COMMANDS:
        command = arguments.get(key)
        if isinstance(command, str) and _RUNS.search(call.name):
            named = (word for word in identifiers(command[:2_000], 40) if _FILE.fullmatch(word) and _is_file(word))
            for path, _ in zip(named, range(_OF_COMMAND), strict=False):
                yield path, "run"
            return


def _is_file(word: str) -> bool:
    """True unless a word is what shells and git name in commands beside files."""
    return not word.startswith(_NO_FILES) and "://" not in word
