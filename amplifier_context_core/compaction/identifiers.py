"""Identifiers: the paths, ids, names and numbers that an agent comes back to.

What an agent needs from far back is rarely a sentence; it is the exact spelling of something. These are what a digest
must not lose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# A run of word characters with the separators that paths, modules, ids, mail addresses and tickets use.
# A path keeps its beginning: /etc/hosts, ./run.sh, ~/.ssh, .gitignore.
_TOKEN = re.compile(r"(?:(?<![\w.~/<])(?:~?\.{0,2}/)?\.?)?[A-Za-z0-9_][A-Za-z0-9_./:@#-]{4,}")
_CAMEL = re.compile(r"[a-z][A-Z]")
_EDGES = "./:@#-"
_SHORTEST = 5  # characters
LONGEST = 120  # characters; longer runs are data, not names
_MARKING = frozenset("0123456789/_.")
_JOINT = re.compile(r"[./:#=]+")


def identifiers(text: str, limit: int = 10_000) -> list[str]:
    """Return the identifiers in `text` in order of first appearance, each once, at most `limit`.

    A token counts when it is 5 to 120 characters long without the punctuation at its edges and holds a digit, ``/``,
    ``_``, ``.`` or a change from lower to upper case: what plain prose does not.
    """
    found: dict[str, None] = {}
    for run in dict.fromkeys(_TOKEN.findall(text)):  # most names come many times: each is looked at once
        if len(found) >= limit:
            break
        token = run.rstrip(_EDGES)
        if _SHORTEST <= len(token) <= LONGEST and token not in found and is_identifier(token):
            found[token] = None
    return list(found)


def with_parts(names: Iterable[str]) -> Iterator[str]:
    """Yield each name, and what of it before and after a separator is a name itself: who reads the name has read that.

    ``./strategy/common.go`` is followed by ``strategy/common.go``, ``./strategy`` and ``common.go``.
    """
    for name in names:
        yield name
        for joint in _JOINT.finditer(name):
            for part in (name[: joint.start()], name[joint.end() :]):
                if len(part) >= _SHORTEST and is_identifier(part):
                    yield part


def names_in(text: str, limit: int = 10_000) -> Iterator[str]:
    """Yield what a reader of the text has read."""
    return with_parts(identifiers(text, limit))


class MoreNames:
    """Names on top of a set that stays as it is: to copy the set takes longer than a chapter."""

    def __init__(self, names: set[str]) -> None:
        self.added: set[str] = set()
        self._names = names

    def __contains__(self, name: str) -> bool:
        return name in self._names or name in self.added

    def update(self, names: Iterable[str]) -> None:
        self.added.update(names)


Names = set[str] | MoreNames  # that a chapter has already


def is_identifier(token: str) -> bool:
    """True if a token looks like a given name rather than a word of prose."""
    return not _MARKING.isdisjoint(token) or _CAMEL.search(token) is not None
