"""Tables: JSON output of a tool in one line, shown with the keys of equal records written once, and texts by lines.

Only repetition and syntax are dropped. Every key and value stays, in its original spelling. A quoted text keeps its
quotes if it would otherwise read as a number or its end would be unclear. A list of records becomes a head of keys and
one line per record. A text of several lines in a record, such as `stdout` of Amplifier's tools, is put between lines of
three quotation marks: a tenth fewer tokens than with escapes. Only JSON in a single line is changed, as programs
write it. JSON over several lines may be a file, which an editor of the file needs unchanged.

The cost is bounded: a text longer than the caller's limit is not parsed.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any, cast

from ..messages.escapes import CONTROLS

MAX_CHARS = 524_288  # characters; four times the default limit of an output, as much as a table may save
_MIN_CHARS = 200  # characters; a table of a shorter output saves nothing
_MAX_RATIO = 0.9  # of the characters; a longer table is not used
_MAX_DEPTH = 40  # levels; deeper data stays as it is
_FENCE = '"""'
_LEAST_FEEDS = 3  # line feeds of a text that is shown by its lines
_MOSTLY_LINES = 0.8  # of the characters: lines of texts in what a tool of Amplifier returns, at least
# What is no line: control and hidden characters, which are seen as escapes alone, and the marks around the lines.
_NO_LINES = re.compile(f"{CONTROLS.pattern}|{_FENCE}")
_BARE = re.compile(r"[\w@./+-](?:[\w@./:+ -]*[\w@./:+-])?")
_NUMBER = re.compile(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?")
_WORDS = frozenset({"true", "false", "null", "NaN", "Infinity", "-Infinity"})


_Shape = dict[str, Any]  # keys of a record, in order, each with the shape of its value; None if that is no record


class _Lines(str):
    """A text that is shown by its lines."""


class _NumberText(str):
    """A number in its original spelling: 1.10 must not become 1.1."""


def _number_text(number: str) -> _NumberText:
    """It is a Python function, so that other threads run while a list is parsed."""
    return _NumberText(number)


def json_as_table(text: str, longest: int = MAX_CHARS, *, is_large: bool = True) -> str | None:
    """Return None if the text is no JSON in one line, is longer than `longest` characters, or a table saves little.

    What is mostly lines of a text saves tokens also where it has hardly fewer characters, and however small it is.
    Other JSON is shown as a table only if it `is_large`.
    """
    if not is_large and text.count(r"\n") < _LEAST_FEEDS:
        return None
    if not _MIN_CHARS <= len(text) <= longest or text[0] not in "[{" or text[-1] not in "]}" or "\n" in text:
        return None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_record,
            parse_float=_number_text,
            parse_int=_number_text,
            parse_constant=_number_text,
        )
        table = _compact_text(value, 0)
    except (ValueError, RecursionError):
        return None
    lines = sum(map(len, table.split(_FENCE)[1::2]))
    most = 1 if lines >= _MOSTLY_LINES * len(table) else _MAX_RATIO if is_large else 0
    return table if len(table) <= most * len(text) else None


def to_compact_text(value: object) -> str:
    """Return data as text with few quotes, and lists of records as tables."""
    try:
        return _compact_text(value, 0)
    except (ValueError, RecursionError):
        return json.dumps(value)


def _record(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key comes twice: one of its values would be lost")
    return {key: _Lines(value) if _has_lines(value) else value for key, value in record.items()}


def _has_lines(value: object) -> bool:
    return isinstance(value, str) and value.count("\n") >= _LEAST_FEEDS and _NO_LINES.search(value) is None


def _compact_text(value: object, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{_key(key)}: {_compact_text(item, depth + 1)}" for key, item in items) + "}"
    if isinstance(value, list):
        items = cast("list[object]", value)
        levels, records = _records_in(items)
        shape = _common_shape(records, depth + levels)
        if shape and len(records) > 1:
            return f"{_head(shape)}:\n{_rows(items, shape, levels, depth + 1)}"
        return "[" + ", ".join(_compact_text(item, depth + 1) for item in items) + "]"
    if isinstance(value, _NumberText):
        return value
    if isinstance(value, _Lines):
        return f"{_FENCE}\n{value}\n{_FENCE}"
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _records_in(items: list[Any]) -> tuple[int, list[Any]]:
    """Return how many levels of lists are around the items of the innermost, and these items."""
    levels = 0
    while items and levels < _MAX_DEPTH and all(item and isinstance(item, list) for item in items):
        levels, items = levels + 1, list(chain.from_iterable(items))
    return levels, items


def _rows(items: list[Any], shape: _Shape, levels: int, depth: int) -> str:
    rows = (_rows(item, shape, levels - 1, depth + 1) if levels else _row(item, shape, depth) for item in items)
    return "[" + "\n".join(rows) + "]"


def _row(value: Any, shape: _Shape | None, depth: int) -> str:
    """Leave out the keys, which a head contains."""
    if shape is None:
        return _compact_text(value, depth)
    parts = zip(value.values(), shape.values(), strict=True)
    return f"({','.join(_row(item, part, depth + 1) for item, part in parts)})"


def _head(shape: _Shape) -> str:
    """Return the keys of a record; the keys of a nested record follow its own key."""
    columns = (f"{_key(key)}: {_head(part)}" if part is not None else _key(key) for key, part in shape.items())
    return f"({','.join(columns)})"


def _common_shape(items: list[Any], depth: int) -> _Shape | None:
    """Return the shape of a list of equal records; None for any other list."""
    shapes = (_shape_of(item, depth + 1) for item in items)
    common = next(shapes, None)
    for shape in shapes:
        common = _common(common, shape)
    return common


def _shape_of(value: object, depth: int) -> _Shape | None:
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    if not isinstance(value, dict):
        return None
    return {key: _shape_of(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()}


def _common(a: _Shape | None, b: _Shape | None) -> _Shape | None:
    if a is None or b is None or list(a) != list(b):
        return None
    return {key: _common(a[key], b[key]) for key in a}


def _word(text: str) -> str:
    bare = _BARE.fullmatch(text) and text not in _WORDS and not _NUMBER.fullmatch(text)
    return text if bare else _quoted(text)


def _key(text: str) -> str:
    """Without quotes `a: b` would read as the key `a` with the value `b`."""
    return _quoted(text) if ": " in text else _word(text)


def _quoted(text: str) -> str:
    """Escape control and hidden characters and lone surrogates, no others: escapes cost more tokens."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], quoted)
