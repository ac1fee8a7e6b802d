"""How rare the words of texts are among all of them: what is written once is a fact, what is written often a phrase.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from ..transcript.ranking import UNSPACED

_TERM = re.compile(rf"[^\W\d_{UNSPACED}]{{2,}}|\d+(?:[.,:/-]\d+)*|[{UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
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
    terms = [_terms(text) for text in texts]
    spread = Counter(term for of_text in terms for term in of_text)
    total = len(texts) + 1
    worth = {term: math.log(total / count) / math.log(total) for term, count in spread.items()}
    found: list[float] = []
    for text, of_text in zip(texts, terms, strict=True):
        length = max(_LEAST_LENGTH, len(text) + (_WIDTH - 1) * len(_IS_UNSPACED.findall(text)))
        # fsum: the order of a set of strings differs between processes, and with it a plain sum's last bit
        density = _PER_WORD * math.fsum(worth[term] for term in of_text) / length
        found.append(max(1e-6, density / (density + 1)))
    return found


def _terms(text: str) -> set[str]:
    """Return the words of a text: the beginnings of words, numbers, and pairs of characters without spaces."""
    terms: set[str] = set()
    for term in _TERM.findall(text.lower()):
        if _IS_UNSPACED.match(term):
            terms.update(term[at : at + 2] for at in range(max(1, len(term) - 1)))
        else:
            terms.add(term if term[0].isdigit() else term[:_STEM])
    return terms
