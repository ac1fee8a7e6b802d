"""A tool output that is larger than the view has room for: a description, its head and tail, and where the rest is.

The description is the tool's own (`compact_summary`), or is made by rules: the shape of JSON, of a table with
separators, of a diff, a log or a listing, and the lines that report errors. The whole output is in the history, and so
in the store, from the moment it came; the view never holds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

import orjson

from ..messages.escapes import read_escapes
from .quoting import single_line
from .truncate import clip_text

_MAX_JSON = 20_000_000  # characters that are parsed; larger JSON is described as text
_PARSED_AT_ONCE = 500_000  # characters of JSON; parsing them keeps other threads waiting for 5 ms or so
_SAMPLE = 200  # lines by which a form is recognized
_MOST_NAMES = 12  # keys, columns and files that are named
_NAME = 40  # characters of a name
_MOST_ERRORS = 3  # lines that report an error and are quoted
_QUOTED = 160  # characters of such a line
_SAME = 0.8  # of the sample: lines that must have a form for the text to have it
_SEARCHED = 2_000  # characters of a line; a report of an error begins with its kind, and a line may have megabytes
_ERROR = re.compile(r"\b(?:error|exception|fatal|traceback|failed|failure|panic)\b", re.IGNORECASE)
_STAMP = re.compile(r"\W{0,2}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d)")
_MODE = re.compile(r"[-dlrwxs]{10}\s")  # begins a line of `ls -l`
_BLANK = re.compile(r"\s")
_NAME_IN_PATH = re.compile(r"[\w.@ -]+")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")


def offloaded(text: str, max_chars: int, mark: str, description: str) -> str:
    """Return what a view shows of an output that it has no room for. The line with the mark is whole in any room.

    Args:
        max_chars: characters of it all, at least 1.
        mark: names the message that holds the output, e.g. ``m12``.
        description: what it is, from the tool or by rules (`describe`).
    """
    about = single_line(description)
    kept = f"[{len(text):,} characters in {text.count(chr(10)) + 1:,} lines are kept outside this view: {mark}]"
    head = f"{kept}\n[{clip_text(about, max(80, max_chars // 3))}]"
    room = max_chars - len(head) - 1
    if room >= 80:
        return f"{head}\n{clip_text(text, room, mark)}"
    room = max_chars - len(kept) - len("\n[]")
    return f"{kept}\n[{clip_text(about, room)}]" if room > 0 else kept


def describe(text: str) -> str:
    """Return the shape of a text in one line, with the lines in it that report errors."""
    lines = text.split("\n")
    sample = [line for line in islice(lines, _SAMPLE) if line.strip()]
    form = _json(text) or _diff(lines, sample) or _table(lines, sample) or _log(sample) or _listing(lines, sample)
    if len(text) <= _PARSED_AT_ONCE and (read := read_escapes(text)) is not text:
        lines = read.split("\n")
    return "; ".join(part for part in (form or "text", _errors(lines)) if part)


def _json(text: str) -> str:
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _MAX_JSON:
        return ""
    try:
        value: object = (
            orjson.loads(text) if len(text) <= _PARSED_AT_ONCE else json.loads(text, object_pairs_hook=_record)
        )
    except (ValueError, RecursionError):
        return _json_lines(text)
    return f"JSON: {_shape(value)}"


def _record(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """It is a Python function, so that other threads run while a large text is parsed."""
    return dict(members)


def _json_lines(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        first = [orjson.loads(line) for line in lines[:5]]
    except ValueError:
        return ""
    rows: Sequence[object] = first
    if len(lines) < 2 or not all(isinstance(row, dict) for row in rows):
        return ""
    return f"JSON lines: {len(lines):,} objects with {_names(cast('Mapping[str, Any]', first[0]))}"


def _shape(value: object) -> str:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        lists = [f"{single_line(key)[:_NAME]}: {len(one):,} items" for key, one in members.items() if _is_list(one)]
        more = f" ({', '.join(lists[:_MOST_NAMES])})" if lists else ""
        return f"an object with {_names(members)}{more}"
    if isinstance(value, list):
        items = cast("list[object]", value)
        if items and isinstance(items[0], dict):
            return f"a list of {len(items):,} objects with {_names(cast('dict[str, Any]', items[0]))}"
        return f"a list of {len(items):,} items"
    return "a single value"


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _names(members: Mapping[str, Any]) -> str:
    names = [single_line(str(name))[:_NAME] for name in islice(members, _MOST_NAMES)]
    more = f" and {len(members) - len(names):,} more" if len(members) > len(names) else ""
    return f"keys {', '.join(names)}{more}"


def _diff(lines: Sequence[str], sample: Sequence[str]) -> str:
    if not any(_HUNK.match(line) for line in sample):
        return ""
    files = [line[4:].split("\t")[0].removeprefix("b/") for line in lines if line.startswith("+++ ")]
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    named = ", ".join(single_line(name)[:_NAME] for name in files[:_MOST_NAMES])
    return f"a diff of {len(files):,} files ({named}), {added:,} lines added, {removed:,} removed"


def _table(lines: Sequence[str], sample: Sequence[str]) -> str:
    for separator, name in (("\t", "TSV"), (",", "CSV"), (";", "CSV")):
        counts = [line.count(separator) for line in sample]
        if len(sample) > 2 and counts[0] and sum(count == counts[0] for count in counts) >= _SAME * len(counts):
            columns = [single_line(cell)[:_NAME].strip('"') for cell in sample[0].split(separator)]
            more = f" and {len(columns) - _MOST_NAMES:,} more" if len(columns) > _MOST_NAMES else ""
            rows = sum(1 for line in lines if line.strip()) - 1
            return f"{name}: {rows:,} rows, columns {', '.join(columns[:_MOST_NAMES])}{more}"
    return ""


def _log(sample: Sequence[str]) -> str:
    stamped = sum(bool(_STAMP.match(line)) for line in sample)
    return "a log" if sample and stamped >= len(sample) / 2 else ""


def _listing(lines: Sequence[str], sample: Sequence[str]) -> str:
    named = sum(len(line) <= _SEARCHED and _is_entry(line.strip()) for line in sample)
    if len(sample) < 3 or named < _SAME * len(sample):
        return ""
    return f"a listing of {sum(1 for line in lines if line.strip()):,} entries"


def _is_entry(line: str) -> bool:
    """True if a line is a path, or an entry of `ls -l`.

    Of a path, the last name before the first blank is checked, and all after it: what precedes may hold any characters.
    A regular expression would try each slash as that place, which takes the square of the length.
    """
    path = line.removesuffix("/")
    blank = _BLANK.search(path)
    start = path.count("/", 0, blank.start()) - 1 if blank else path.count("/")
    return bool(_MODE.match(line)) or (start >= 0 and all(map(_NAME_IN_PATH.fullmatch, path.split("/")[start:])))


def _errors(lines: Sequence[str]) -> str:
    found = [number for number, line in enumerate(lines) if _ERROR.search(line, 0, _SEARCHED)]
    if not found:
        return ""
    quoted = (f'line {number + 1:,} "{single_line(lines[number][:_QUOTED])}"' for number in found[:_MOST_ERRORS])
    return f"{len(found):,} lines report errors: {', '.join(quoted)}"
