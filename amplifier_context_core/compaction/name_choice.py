"""Which names of a text a chapter lists: those likeliest to be needed again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .identifiers import Names, identifiers, with_parts

_SCAN_HEAD = 24_000  # characters of an output searched for identifiers, from its start
_SCAN_TAIL = 8_000  # and from its end
_LOCATION = re.compile(r"(.*\w\.\w{1,5})?[:-]?\d+(?:[:-].*)?")
# Tokens with digits that are no names: times, durations, and the line of a diff with the hashes of both versions.
_NO_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d.*|(?:\d+m)?\d+(?:\.\d+)?m?s|[0-9a-f]{6,40}\.\.+[0-9a-f]{6,40}")
# Names of Go, Python, JavaScript and Rust that a model knows; no file, as `context.md` is one.
_LIBRARY = re.compile(
    r"(?:Array|Date|JSON|Math|Object|Promise|assert|asyncio|bufio|bytes|collections|console|context|errors|exec|filepath|"
    r"fmt|fs|functools|http|io|itertools|json|log|logging|math|mock|np|os|pathlib|pd|process|pytest|re|regexp|require|"
    r"slog|sort|std|strconv|strings|subprocess|sync|sys|t|testing|time|typing)\.(?:[A-Z]|[a-z]{5})"
)
_KEY = re.compile(r'"([\w-]{5,})"\s*:')
# A line that gives a name a number or a short text: `const retryLimit = 5 * time.Second`, `"retries": 3,`.
_CONSTANT = re.compile(
    r"""(?:[a-z#]{3,8} ){0,3}["']?([A-Za-z_][\w.-]{3,59})["']?(?:: ?[A-Za-z_\[][\w.\[\]]{0,29})?"""
    r"""\s{0,20}(?::?=|:)\s{0,20}"""
    r"""(\(?\d[\w.()+*/<% -]{0,40}|"[^"]{1,30}"|'[^']{1,30}')\s{0,4}[,;]?\s{0,4}(?:(?:#|//).*)?"""
)
_LONGEST_LINE = 160  # characters
_MOST_LINES = 1_000  # of an edit


def constants(before: Sequence[str], after: Sequence[str]) -> list[tuple[float, str]]:
    """Return, with their scores, the names that an edit gives a value, each with it: `scanLimit=500`.

    Args:
        before: lines that the edit takes away.
        after: lines that it brings; of more than a thousand the first.
    """
    old = set(before)
    lines = (line.strip() for line in after[:_MOST_LINES] if len(line) <= _LONGEST_LINE and line not in old)
    found = filter(None, map(_CONSTANT.fullmatch, lines))
    return [(1.5, text) for text in dict.fromkeys(f"{one[1]}={one[2].strip()}" for one in found)]


def ends_of(text: str) -> str:
    """Return what is searched of a text: all of it, or its beginning and its end."""
    return text if len(text) <= _SCAN_HEAD + _SCAN_TAIL else f"{text[:_SCAN_HEAD]}\n{text[-_SCAN_TAIL:]}"


def candidates(text: str, weight: float) -> list[tuple[float, str]]:
    """A score says how likely the identifier is to be needed again."""
    text = ends_of(text)
    keys = set(_KEY.findall(text))
    ranked: list[tuple[float, str]] = []
    is_diff = "diff --git a/" in text
    for token in identifiers(text, 400):
        if _NO_NAME.fullmatch(token):
            continue
        if is_diff and token.startswith(("a/", "b/")):
            token = token[2:]  # the path without the side of the diff
        score = weight - 0.015 * max(0, len(token) - 24)
        if _LIBRARY.match(token):
            score -= 1.0
        if token in keys:
            score -= 0.7  # a key of a schema: its value says more
        if token.isdigit() or (token[0].isdigit() and ":" in token):
            score -= 0.6  # line numbers, timestamps
        location = _LOCATION.fullmatch(token) if ":" in token or "-" in token else None
        if location is not None:
            if location[1]:
                ranked.append((score, location[1]))
            score -= 1.0  # a line of a file: the file is the name
        ranked.append((score, token))
    return ranked


def pick(ranked: Sequence[tuple[float, str]], known: Names, room: int) -> list[tuple[float, str]]:
    """Return the best unknown names that fit into `room` characters, in the order of their appearance."""
    order = sorted(range(len(ranked)), key=lambda index: (-ranked[index][0], index))
    chosen: list[int] = []
    for index in order:
        token = ranked[index][1]
        if token in known and "=" not in token:  # a value may be what it was before
            continue
        if len(token) + 1 > room:
            if room < 8:
                break
            continue
        known.update(with_parts((token,)))
        chosen.append(index)
        room -= len(token) + 1
    return [ranked[index] for index in sorted(chosen)]
