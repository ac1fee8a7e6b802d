"""Roots: the directory that most paths of a chapter share, written once.

A chapter names the root in a line of its own, and paths below it begin with a sign in place of the root. The sign is
nowhere else in the chapter, so that no path can be mistaken for one below the root.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .checkpoint import Fact

_PATH = re.compile(r"(?<![\w.~:/@+-])((?:/[\w.@+-]+){1,20})/[\w.@+-]")  # without its last part
_LONGEST = 200  # characters of a root
_SIGNS = ("./", "~/", "^/")
_NAMED = re.compile(rf"^\[({'|'.join(map(re.escape, _SIGNS))}) = (/\S{{0,{_LONGEST - 1}}}/)\]$", re.MULTILINE)
_LINE = len("[./ = /]\n")  # characters of the line that names a root, beside the root


@dataclass(frozen=True, slots=True)
class Root:
    """A directory, and the sign that paths below it begin with."""

    path: str  # absolute, with a slash at its end
    sign: str  # with a slash at its end

    @property
    def line(self) -> str:
        return f"[{self.sign} = {self.path}]"

    def shorten(self, fact: Fact) -> Fact:
        """Sentences stay word for word."""
        return replace(
            fact,
            subject=self._shortened(fact.subject),
            outcome=self._shortened(fact.outcome),
            names=tuple(map(self._shortened, fact.names)),
        )

    def _shortened(self, text: str) -> str:
        if self.path not in text:
            return text
        return re.sub(rf"(?<![\w.~:/@+-]){re.escape(self.path)}(?=[\w.@+-])", self.sign, text)


def root_of(facts: Iterable[Fact]) -> Root | None:
    """Return the root that makes a chapter of these facts shortest; None if none makes it shorter."""
    facts = list(facts)
    text = "\n".join(part for fact in facts for part in (fact.subject, fact.outcome, *fact.names) if "/" in part)
    count: Counter[str] = Counter()
    for path, times in Counter(_PATH.findall(text)).items():
        end = len(path)
        while end > 0:
            if end <= _LONGEST:
                count[path[:end]] += times
            end = path.rfind("/", 0, end)
    savings = [((len(path) - 1) * times - len(path) - _LINE, path) for path, times in count.items()]
    saved, path = max(savings, default=(0, ""))
    if saved <= 0:
        return None
    spoken = "\n".join(sentence.text for fact in facts for sentence in fact.sentences)
    sign = next((sign for sign in _SIGNS if sign not in text and sign not in spoken), None)
    return Root(f"{path}/", sign) if sign else None


def with_full_paths(text: str) -> str:
    first, *rest = _NAMED.split(text)
    chapters = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return first + "".join(_full(chapter, sign, path) for sign, path, chapter in chapters)


def _full(chapter: str, sign: str, path: str) -> str:
    return re.sub(rf"(?<![\w.~:/@+-]){re.escape(sign)}(?=[\w.@+-])", lambda _: path, chapter)
