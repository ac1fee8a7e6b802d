"""Which texts of an index may answer a query: pure, the same for every index.

`find_candidates` is a generator. It yields what it needs to know of the index, and is sent the answers. So an index may
be a function call away (`answered`), or a server that is asked by an event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TypeVar

from .ranking import CANDIDATES, STOP_WORDS, Query, Term, frequent, significant, weight

T = TypeVar("T")

# What a term of a message counts one, two and three messages from it.
_DISTANCES = (1.0, 0.5, 0.3)
_MAX_LOOK_UPS = 192  # terms that are looked for in all, with those that replace others


@dataclass(frozen=True, slots=True)
class Wanted:
    """Texts that have all of some terms.

    Attributes:
        terms: one or more.
        limit: texts that are enough.
        is_newest: True if the newest of them are wanted; otherwise any are.
    """

    terms: tuple[Term, ...]
    limit: int
    is_newest: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """Texts of an index that may answer a query.

    Attributes:
        keys: of the texts, ascending.
        frequency: number of texts in the index that have each term of the query.
        nearby: weight of the terms that texts next to a text have and it has not.
    """

    keys: list[int]
    frequency: dict[Term, int]
    nearby: dict[int, float]


Asking = Generator[list[Wanted], Sequence[Sequence[int]], T]


def answered(asking: Asking[T], answer: Callable[[Wanted], Sequence[int]]) -> T:
    """Return the result of a generator whose questions a function answers."""
    try:
        questions = next(asking)
        while True:
            questions = asking.send([answer(one) for one in questions])
    except StopIteration as end:
        return end.value


def look_up(query: Query, limit: int) -> Asking[dict[Term, Sequence[int]]]:
    """Return the texts that have each term of a query, or what it is replaced with if no text has it.

    Stop words are looked up only if no text has another term.
    """
    found: dict[Term, Sequence[int]] = {}
    left = _MAX_LOOK_UPS
    for is_stop_word in (False, True):
        pending = [term.choices for term in query.terms if (term.text in STOP_WORDS) is is_stop_word]
        while pending and left > 0:
            tried = [(choices, terms) for choices in pending if (terms := next(choices, None))]
            flat = [term for _, terms in tried for term in terms][:left]
            left -= len(flat)
            answers = yield [Wanted((term,), limit) for term in flat]
            hits = {term: keys for term, keys in zip(flat, answers, strict=True) if keys}
            found.update(hits)
            pending = [choices for choices, terms in tried if hits.keys().isdisjoint(terms)]
        if found:
            break
    return found


def find_candidates(query: Query, total: int, limit: int) -> Asking[Candidates]:
    """Return the texts that may answer a query.

    An index reads few rows for it, whatever the length of the history: of each term at most `frequent(total)` texts.

    Args:
        query: what is looked for.
        total: number of texts in the index. Their keys are numbers in the order of the history.
        limit: candidates, at least; usually there are `CANDIDATES`.
    """
    most = max(frequent(total), limit)
    found: dict[Term, Sequence[int]] = yield from look_up(query, most + 1)
    frequency = {term: len(keys) for term, keys in found.items()}
    scores: defaultdict[int, float] = defaultdict(float)
    common: list[Term] = []
    for term in significant(frequency):
        if len(found[term]) > most:
            common.append(term)
        else:
            _add(scores, found[term], weight(term, len(found[term]), total))
    if common and len(scores) < max(limit, CANDIDATES):
        # Texts that have all of them are the best of what frequent words find, wherever they are; then the newest.
        all_of_them, *each = yield [
            Wanted(tuple(common), most, is_newest=True),
            *(Wanted((term,), most + 1, is_newest=True) for term in common),
        ]
        _add(scores, all_of_them, 1.0)
        for term, keys in zip(common, each, strict=True):
            _add(scores, keys, weight(term, len(keys), total))
    best = _best(scores, limit)
    nearby = weight_nearby(best, {term: found[term] for term in significant(frequency)}, total)
    near = {key: scores[key] + nearby.get(key, 0.0) for key in {*best, *nearby} if key in scores}
    return Candidates(sorted(_best(near, limit)), frequency, nearby)


def weight_nearby(keys: Iterable[int], found: Mapping[Term, Sequence[int]], total: int) -> dict[int, float]:
    """Return, of texts and those next to them, the weight of the terms that others next to them have and they lack.

    Args:
        keys: of the texts.
        found: keys of the texts that have each term.
        total: number of texts in the index.
    """
    reach = len(_DISTANCES)
    around = {near for key in keys for near in range(key - reach, key + reach + 1)}
    weights: list[float] = []
    terms: defaultdict[int, int] = defaultdict(int)  # of a text, as bits
    for number, (term, having) in enumerate(found.items()):
        weights.append(weight(term, len(having), total))
        for key in around.intersection(having):
            terms[key] |= 1 << number
    nearby: dict[int, float] = {}
    for key in list(terms):
        known, amount = terms[key], 0.0
        for distance, share in enumerate(_DISTANCES, 1):
            new = (terms.get(key - distance, 0) | terms.get(key + distance, 0)) & ~known
            known |= new
            while new:
                number = new.bit_length() - 1
                amount += share * weights[number]
                new ^= 1 << number
        nearby[key] = amount
    return nearby


def _best(scores: Mapping[int, float], limit: int) -> list[int]:
    return [key for _, key in nlargest(max(limit, CANDIDATES), zip(scores.values(), scores, strict=True))]


def _add(scores: dict[int, float], keys: Iterable[int], amount: float) -> None:
    for key in keys:
        scores[key] += amount
