"""The lines of a message that match a query best. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from .query import Query, fold, root
from .ranking import significant

_BEFORE = 0.4  # of an excerpt of a long line: what is shown before the first match; chosen by hand
_MAX_WORDS = 48  # of a query
MAX_EXCERPT = 300  # characters of one line


def words_of(query: str) -> list[str]:
    """Return what lines are looked for: the quoted phrases of a query and the beginnings of its words, folded.

    Words that only ask are left out, unless there are no others. A query without words is looked for as it is.
    """
    parsed = Query(query)
    terms = significant(parsed.terms)
    words = [*parsed.phrases, *(word for term in terms for word in _beginnings(term.text))] or [parsed.whole]
    return list(dict.fromkeys(filter(None, words)))[:_MAX_WORDS]


def _beginnings(word: str) -> tuple[str, ...]:
    """For `try` not `tr`, which is in most lines."""
    beginning = root(word)
    return (beginning,) if len(beginning) > 2 or beginning == word else (f"{beginning}y", f"{beginning}ie")


def excerpts(
    lines: Sequence[str], words: Sequence[str], most: int, longest: int = MAX_EXCERPT
) -> list[tuple[int, str]]:
    """Return the best lines with their numbers, from 1, in the order of the text; at most `most`.

    A line with more of the words is better, then one with longer words, then an earlier one. Of a line of more
    than `longest` characters, the part around its first match is returned.
    """
    scored: list[tuple[int, int, int, int]] = []
    for number, line in enumerate(lines, 1):
        folded = fold(line)
        found = [word for word in words if word in folded]
        if found:
            place = min(folded.find(word) for word in found)
            scored.append((-len(found), -sum(map(len, found)), number, place))
    best = sorted(sorted(scored)[:most], key=lambda one: one[2])
    return [(number, _around(lines[number - 1], place, longest)) for _, _, number, place in best]


def _around(line: str, place: int, longest: int) -> str:
    start = max(0, place - int(_BEFORE * longest)) if len(line) > longest else 0
    cut = line[start : start + longest]
    return ("…" if start else "") + cut + ("…" if start + len(cut) < len(line) else "")
