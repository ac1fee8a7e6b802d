"""How rare the words of texts are among all of them: what is written once is a fact, what is written often a phrase."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from functools import cache

from ..transcript.searchable import UNSPACED

_TERM = rf"[^\W\d_{UNSPACED}]{{2,}}|\d+(?:[.,:/-]\d+)*|[{UNSPACED}]+"
_UNSPACED = f"[{UNSPACED}]"
_STEM = 7  # letters that the forms of a word share
_WIDTH = 8  # characters of spaced text that say as much as one without: a chat ranks as its translation does
_PER_WORD = 12  # characters: a text with one word of the rarest kind in each so many has half of the highest rarity
_LEAST_LENGTH = 25  # characters: a shorter text is no denser than one of this length
_FEWEST = 4  # texts: fewer say nothing about which words are frequent


def rarities(texts: Sequence[str]) -> list[float]:
    """Return for each text how rare its words are among all texts, and how dense, above 0 and at most 1.

    A word counts once in a text, and by the logarithm of the share of texts that hold it. Numbers are words. Of writing
    without spaces each pair of characters is one. Of fewer than four texts all are equal.
    """
    if len(texts) < _FEWEST:
        return [1.0] * len(texts)
    # Numbers in arrays: 100,000 sets of words would be freed in one step, which keeps other threads waiting.
    number_of: dict[str, int] = {}
    spread: list[int] = []  # by number of a word: texts that hold it
    words, ends = array("L"), array("L")  # numbers of the words of all texts, one after the other
    for text in texts:
        for term in _terms(text):
            number = number_of.setdefault(term, len(spread))
            if number == len(spread):
                spread.append(0)
            spread[number] += 1
            words.append(number)
        ends.append(len(words))
    total = len(texts) + 1
    worth = [math.log(total / count) / math.log(total) for count in spread]
    found: list[float] = []
    start, unspaced = 0, _compiled(_UNSPACED)
    for text, end in zip(texts, ends, strict=True):
        length = max(_LEAST_LENGTH, len(text) + (_WIDTH - 1) * len(unspaced.findall(text)))
        # fsum: the order of a set of strings differs between processes, and with it a plain sum's last bit
        density = _PER_WORD * math.fsum(worth[number] for number in words[start:end]) / length
        found.append(max(1e-6, density / (density + 1)))
        start = end
    return found


def _terms(text: str) -> set[str]:
    terms: set[str] = set()
    unspaced = _compiled(_UNSPACED)
    for term in _compiled(_TERM).findall(text.lower()):
        if unspaced.match(term):
            terms.update(term[at : at + 2] for at in range(max(1, len(term) - 1)))
        else:
            terms.add(term if term[0].isdigit() else term[:_STEM])
    return terms


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """With the first compaction, not before: it takes milliseconds."""
    return re.compile(pattern)
