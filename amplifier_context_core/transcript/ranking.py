"""How a search finds and orders texts: the same for every index.

An index says which texts have a term (`Index.having`); the best of them are read, and ordered.
A text's score is the sum of

- bm25 over the terms of the query, a word having several forms,
- the weight of the terms that are near each other in the text's best passage: a long output that has the words far
  apart is seldom what was asked for,
- the weight of the terms that are not in the text, but in messages next to it: an answer seldom repeats its question,
- a small amount for words in the query's own form, and one for the whole query or a quoted phrase verbatim,
- an amount each if the message is of the speaker or of the day that the query names (`question_hints.py`).

`docs/reports/evaluation.md` has the figures. Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nlargest
from typing import Protocol

from .query import PARTS, STOP_WORDS, Query, Term, fold, forms, root
from .question_hints import asked_speaker, speaker_label

_CANDIDATES = 50  # texts that are read and ordered; 200 found no more
_PREFERRED = 2 * _CANDIDATES  # texts, by their terms alone, whose neighbours are looked at
_SCANNED = 40_000  # characters of a text that are read for its score
_MAX_LOOK_UPS = 192  # terms that are looked for in all, with those that replace others
_DISTANCES = (1.0, 0.5, 0.3)  # what a term of a message counts one, two and three messages from it
_PASSAGE = 120  # characters of a passage: about a sentence
_K1, _B = 1.2, 0.75  # bm25's usual constants
_SHORT, _USUAL_LENGTH = 300, 1_000  # characters of a message, for bm25; shorter ones are not better
# Of the score, besides bm25: chosen on half of the made questions; half or double changes little.
_NEARBY, _EXACT, _WHOLE, _PHRASE = 0.4, 0.2, 1.0, 1.0
_SPEAKER, _DATE = 0.2, 0.4
_NAME = re.compile(r"[^\W_]+")  # the first of a speaker's names
_FEW, _MANY = 200, 500  # texts: bounds of `frequent`, which is a twentieth of all between them
_FREQUENT = 0.3  # weight of a frequent term
_ASKING = 0.3  # of the weight of another term: what words of `_ASKING_WORDS` count
# Words of questions about an earlier talk: mostly they name the talk, seldom its subject.
_ASKING_WORDS = frozenset(
    root(word)
    for word in """
    ago chat conversation discuss earlier kind know last like mention name previous previously really recall recent
    recently remember remind said say sort talk tell thing think time told type want
    """.split()  # noqa: SIM905 - a list literal would be 30 lines
)


@dataclass(frozen=True, slots=True)
class Text:
    """What is ranked of a message. Its length is that of its text, in characters."""

    text: str  # all its words
    role: str = ""  # of its author
    created: str = ""  # ISO 8601, UTC
    name: str = ""  # of its author, if the host gave one

    def __len__(self) -> int:
        return len(self.text)


class Index(Protocol):
    """Texts with keys, which are numbers in the order of the history."""

    def having(self, terms: Sequence[Term], limit: int) -> Sequence[int]:
        """Return the keys of the newest texts that have all of some terms, at most `limit`."""
        ...

    def texts(self, keys: Sequence[int]) -> Iterable[tuple[int, Text]]:
        """Yield the texts of some keys, with them, in their order."""
        ...


def search(query: Query, index: Index, total: int, limit: int) -> list[int]:
    """Return the keys of the texts that match a query, the best first; of equal ones the later comes first.

    An index of `total` texts reads few rows for it: of each term at most `frequent(total)`, or `limit` if that is more.
    """
    if not query or limit < 1 or not total:
        return []
    most = max(frequent(total), limit)
    found = _look_up(query, index, most + 1)
    terms = significant(found)
    weights = [_weight(term, len(found[term]), total) for term in terms]
    common = [number for number, term in enumerate(terms) if len(found[term]) > most]
    has: defaultdict[int, int] = defaultdict(int)  # the terms of each text, as bits

    def note(bits: int, keys: Iterable[int]) -> None:
        for key in keys:
            has[key] |= bits

    for number, term in enumerate(terms):
        note(1 << number, () if number in common else found[term])
    all_of_them: Sequence[int] = ()
    if common and len(has) < max(limit, _CANDIDATES):
        # Texts that have all of them are the best of what frequent words find, wherever they are; then the newest.
        all_of_them = index.having([terms[number] for number in common], most)
        note(sum(1 << number for number in common), all_of_them)
        for number in common:
            note(1 << number, found[terms[number]])

    @cache
    def worth(bits: int) -> float:
        return sum(weight for number, weight in enumerate(weights) if bits >> number & 1)

    def nearby(key: int) -> float:
        """Return the weight of the terms that texts next to a text have, and it has not."""
        known, amount = has[key], 0.0
        for distance, share in enumerate(_DISTANCES, 1):
            new = (has.get(key - distance, 0) | has.get(key + distance, 0)) & ~known
            known |= new
            amount += share * worth(new)
        return amount

    worths = {key: worth(bits) for key, bits in has.items()}
    worths.update((key, worths[key] + 1) for key in all_of_them)
    preferred = nlargest(max(limit, _PREFERRED), zip(worths.values(), worths, strict=True))
    near = {key: nearby(key) for _, key in preferred}
    best = nlargest(max(limit, _CANDIDATES), ((own + near[key], key) for own, key in preferred))
    return _rank(query, terms, weights, near, index.texts(sorted(key for _, key in best)))[:limit]


def _look_up(query: Query, index: Index, limit: int) -> dict[Term, Sequence[int]]:
    """Return the texts that have each term of a query, or what it is replaced with if no text has it.

    Stop words are looked up only if no text has another term.
    """
    found: dict[Term, Sequence[int]] = {}
    left = _MAX_LOOK_UPS
    for is_stop_word in (False, True):
        for term in query.terms:
            if (term.text in STOP_WORDS) is not is_stop_word:
                continue
            for choice in term.choices:
                tried = choice[:left]
                left -= len(tried)
                hits = {one: keys for one in tried if (keys := index.having([one], limit))}
                found.update(hits)
                if hits:
                    break
        if found:
            break
    return found


def significant(terms: Iterable[Term]) -> list[Term]:
    """Leave stop words out unless there are no others."""
    every = list(terms)
    return [term for term in every if term.text not in STOP_WORDS] or every


def frequent(total: int) -> int:
    """Return the number of texts above which a term counts as frequent, of this many."""
    return max(_FEW, min(_MANY, total // 20))


def _weight(term: Term, frequency: int, total: int) -> float:
    """The rarer a term, the more it counts."""
    if frequency > frequent(total):
        return _FREQUENT
    share = _ASKING if term.is_word and root(term.text) in _ASKING_WORDS else 1.0
    return share * math.log(1 + (max(total, frequency) - frequency + 0.5) / (frequency + 0.5))


def _rank(
    query: Query,
    terms: Sequence[Term],
    weights: Sequence[float],
    near: Mapping[int, float],
    texts: Iterable[tuple[int, Text]],
) -> list[int]:
    """Return the keys of texts, the best first. Texts are read in the order of their keys."""
    most = sum(weights) or 1.0
    find = finder(terms)
    scored: list[tuple[float, int]] = []
    labels: list[str] = []
    given_names: set[str] = set()  # that the host gave
    by_role: defaultdict[str, list[str]] = defaultdict(list)
    for key, text in texts:
        folded = fold(text.text[:_SCANNED])
        hits = find(folded)
        exact = sum(weights[number] for number in {number for _, number, is_exact in hits if is_exact})
        score = _bm25(hits, weights, len(text)) + _passage(hits, weights)
        score = (score + _NEARBY * near[key] + _EXACT * exact) / most
        score += _WHOLE * (query.whole in folded) + sum(_PHRASE for phrase in query.phrases if phrase in folded)
        score += _SPEAKER * (text.role == query.role) + _DATE * any(date.has(text.created) for date in query.dates)
        scored.append((score, key))
        given = _NAME.search(fold(text.name))
        labels.append(given.group() if given else "" if text.role == "tool" else speaker_label(folded))
        if given:
            given_names.add(labels[-1])
        else:
            by_role[text.role].append(labels[-1])
    parts = (part for word in query.words for part in PARTS.findall(word))
    speaker = asked_speaker(parts, query.unspaced, given_names, by_role)
    if speaker:
        scored = [
            (score + _SPEAKER * (label == speaker), key) for (score, key), label in zip(scored, labels, strict=True)
        ]
    return [key for _, key in sorted(scored, reverse=True)]


Hits = list[tuple[int, int, bool]]  # where, the number of the term, whether in the term's own form


def finder(terms: Sequence[Term]) -> Callable[[str], Hits]:
    numbers = {root(term.text): number for number, term in enumerate(terms) if term.is_word}
    words = re.compile(forms(numbers))
    others = [(number, re.compile(term.pattern)) for number, term in enumerate(terms) if not term.is_word]

    def find(text: str) -> Hits:
        hits: Hits = []
        for match in words.finditer(text) if numbers else ():
            number = numbers[match[1]]
            hits.append((match.start(), number, match[0] == terms[number].text))
        for number, pattern in others:
            hits.extend((match.start(), number, True) for match in pattern.finditer(text))
        hits.sort()
        return hits

    return find


def _bm25(hits: Hits, weights: Sequence[float], length: int) -> float:
    norm = _K1 * (1 - _B + _B * max(length, _SHORT) / _USUAL_LENGTH)
    counts = Counter(number for _, number, _ in hits)
    return 2 * sum(weights[number] * count / (count + norm) for number, count in counts.items())


def _passage(hits: Hits, weights: Sequence[float]) -> float:
    best = now = 0.0
    inside = [0] * len(weights)
    first = 0
    for at, number, _ in hits:
        now += 0 if inside[number] else weights[number]
        inside[number] += 1
        while at - hits[first][0] > _PASSAGE:
            gone = hits[first][1]
            inside[gone] -= 1
            now -= 0 if inside[gone] else weights[gone]
            first += 1
        best = max(best, now)
    return best
