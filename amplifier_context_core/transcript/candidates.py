"""Which texts of an index may answer a query: pure, the same for every index.

`find_candidates` is a generator. It yields what it needs to know of the index, and is sent the answers. So an index may
be a function call away (`answered`), or a server that is asked by an event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .ranking import CANDIDATES, STOP_WORDS, Query, Term, frequent, significant, weight

T = TypeVar("T")

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


def find_candidates(query: Query, total: int, limit: int) -> Asking[tuple[list[int], dict[Term, int]]]:
    """Return the keys of texts that may answer a query, ascending, and the number of texts that have each of its terms.

    An index reads few rows for it, whatever the length of the history: of each term at most `frequent(total)` texts.

    Args:
        query: what is looked for.
        total: number of texts in the index.
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
            _add(scores, found[term], weight(len(found[term]), total))
    if common and len(scores) < max(limit, CANDIDATES):
        # Texts that have all of them are the best of what frequent words find, wherever they are; then the newest.
        all_of_them, *each = yield [
            Wanted(tuple(common), most, is_newest=True),
            *(Wanted((term,), most + 1, is_newest=True) for term in common),
        ]
        _add(scores, all_of_them, 1.0)
        for keys in each:
            _add(scores, keys, weight(len(keys), total))
    best = sorted(scores, key=lambda key: (scores[key], key), reverse=True)
    return sorted(best[: max(limit, CANDIDATES)]), frequency


def _add(scores: dict[int, float], keys: Iterable[int], amount: float) -> None:
    for key in keys:
        scores[key] += amount
