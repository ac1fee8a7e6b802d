"""Tables: JSON a tool returned in one line, shown with the keys of like records said once.

Nothing is lost but repetition and what only a parser needs: every key and every value stays, spelled as it was, and a
text in quotes stays in quotes where it would read as a number or would not end where it does. A list of records becomes
a head of keys and one line a record. Only JSON in a single line is touched: that is how programs talk to programs. JSON
over several lines may be a file, and who edits a file needs it as it is.

The cost is bounded: what is longer than a caller's limit is not parsed.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

MAX_CHARS = 524_288  # characters; four times what the default settings show of an output, which a table may save
_MIN_CHARS = 200  # characters; shorter outputs have nothing to gain
_MAX_RATIO = 0.9  # of the characters: a table must be at most so long to be worth a reader's while
_MAX_DEPTH = 40  # levels; deeper data is left as it is
_BARE = re.compile(r"[\w@./+-](?:[\w@./:+ -]*[\w@./:+-])?")
_NUMBER = re.compile(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?")
_WORDS = frozenset({"true", "false", "null", "NaN", "Infinity", "-Infinity"})


@dataclass(frozen=True, slots=True)
class _Shape:
    """What values of a list have in common.

    Attributes:
        keys: of a record, in order; None for a list.
        parts: shapes of its values, or the one of its items.
    """

    keys: tuple[str, ...] | None
    parts: tuple[_Shape | None, ...]


class _NumberText(str):
    """A number as it was spelled: 1.10 is not to become 1.1."""


def _number_text(number: str) -> _NumberText:
    """Return a number as it was spelled. Written in Python, so that other threads get a turn while a list is parsed."""
    return _NumberText(number)


def json_as_table(text: str, longest: int = MAX_CHARS) -> str | None:
    """Return the text as a table; None if it is no JSON in one line, or little would be gained.

    Args:
        text: any text.
        longest: characters; a longer text is not looked at.
    """
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
        table.encode()  # halves of characters can be escaped in JSON, and nowhere else
    except (ValueError, RecursionError):
        return None
    return table if len(table) <= _MAX_RATIO * len(text) else None


def to_compact_text(value: object) -> str:
    """Data as text: with few quotes, and lists of records as tables."""
    try:
        return _compact_text(value, 0)
    except (ValueError, RecursionError):
        return json.dumps(value)


def _record(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key comes twice: one of its values would be lost")
    return record


def _compact_text(value: object, depth: int) -> str:
    """A value that says its keys itself."""
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{_word(key)}: {_compact_text(item, depth + 1)}" for key, item in items) + "}"
    if isinstance(value, list):
        items = cast("list[object]", value)
        shape = _shape_of(items, depth)
        record = shape.parts[0] if shape else None
        levels = 0
        while record is not None and record.keys is None:
            record, levels = record.parts[0], levels + 1
        if record is not None and record.keys and _count(items, levels) > 1:
            return f"{_head(record)}:\n{_rows(items, record, levels)}"
        return "[" + ", ".join(_compact_text(item, depth + 1) for item in items) + "]"
    if isinstance(value, _NumberText):
        return value
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _rows(value: object, shape: _Shape, levels: int) -> str:
    items = cast("list[object]", value)
    return "[" + "\n".join(_rows(item, shape, levels - 1) if levels else _row(item, shape) for item in items) + "]"


def _row(value: object, shape: _Shape | None) -> str:
    """A value whose keys were said in a head."""
    if shape is None:
        return _compact_text(value, 0)
    if isinstance(value, dict):
        values = cast("dict[str, Any]", value).values()
        return f"({','.join(_row(item, part) for item, part in zip(values, shape.parts, strict=True))})"
    return f"[{','.join(_row(item, shape.parts[0]) for item in cast('list[object]', value))}]"


def _head(shape: _Shape) -> str:
    """The keys of a record, those of the records in it after theirs."""
    if shape.keys is None:
        return f"[{_head(shape.parts[0])}]" if shape.parts[0] else ""
    columns = [(_word(key), _head(part) if part else "") for key, part in zip(shape.keys, shape.parts, strict=True)]
    return f"({','.join(f'{key}: {inner}' if inner else key for key, inner in columns)})"


def _shape_of(value: object, depth: int) -> _Shape | None:
    """The shape of a record, or of a list of like records; None for anything else."""
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        return _Shape(tuple(record), tuple(_shape_of(item, depth + 1) for item in record.values()))
    if isinstance(value, list) and value:
        shapes = [_shape_of(item, depth + 1) for item in cast("list[object]", value)]
        common = shapes[0]
        for shape in shapes[1:]:
            common = _common(common, shape)
        return _Shape(None, (common,)) if common else None
    return None


def _common(a: _Shape | None, b: _Shape | None) -> _Shape | None:
    if a is None or b is None or a.keys != b.keys:
        return None
    if a == b:
        return a
    parts = tuple(_common(one, other) for one, other in zip(a.parts, b.parts, strict=True))
    return _Shape(a.keys, parts) if a.keys is not None or parts[0] else None


def _count(items: list[object], levels: int) -> int:
    return sum(_count(cast("list[object]", item), levels - 1) for item in items) if levels else len(items)


def _word(text: str) -> str:
    bare = _BARE.fullmatch(text) and text not in _WORDS and not _NUMBER.fullmatch(text)
    return text if bare else json.dumps(text, ensure_ascii=False)
