"""How a search ranks texts: pure, the same for every index.

An index finds candidates by words; `rank` orders them. A text's score is the sum of

- bm25 over the words of the query, words being equal when their stems are,
- the weight of the words that are near each other in the text's best passage: a long output that has the words far
  apart is seldom what was asked for,
- the weight of the words that are not in the text, but in messages next to it: an answer seldom repeats its question,
- a small amount for words in the query's own form, and one for the whole query or a quoted phrase verbatim,
- an amount each if the message is of the speaker or of the day that the query names (`question_hints.py`).

`docs/reports/evaluation.md` has the figures. Tried without gain: the share of the query's words in the whole text, 200
candidates.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from .question_hints import asked_dates, asked_role, asked_speaker, speaker_label
from .word_forms import begins, stem

K = TypeVar("K", bound=Hashable)

CANDIDATES = 50  # texts that an index gives to `rank`; 200 found no more
SCANNED = 40_000  # characters of a text that are read for its score
# CJK radicals to ideographs with kana and bopomofo between, Hangul, compatibility forms, halfwidth kana and Hangul, and
# the planes of rarer ideographs: text without spaces.
UNSPACED = "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"

_PASSAGE = 120  # characters of a passage: about a sentence
_K1, _B = 1.2, 0.75  # bm25's usual constants
_SHORT, _USUAL_LENGTH = 300, 1_000  # characters of a message, for bm25; shorter ones are not better
# Of the score, besides bm25: chosen on half of the made questions; half or double changes little.
_NEARBY, _EXACT, _WHOLE, _PHRASE = 0.4, 0.2, 1.0, 1.0
_SPEAKER, _DATE = 0.2, 0.4
_LONGEST_PHRASE = 4  # characters without spaces that are taken as one word; of longer runs each pair is one
_FEW, _MANY = 200, 500  # texts: bounds of `frequent`, which is a twentieth of all between them
_FREQUENT = 0.3  # weight of a frequent term
_ASKING = 0.3  # of the weight of another term: what words of `_ASKING_WORDS` count
_MAX_QUERY = 4_000  # characters of a query that are read
_MAX_TERMS = 48  # terms of a query that are looked for
_MAX_WORDS = (
    48  # of a query's paths and identifiers, together: where a text repeats itself, each is compared everywhere
)
_MIN_INSIDE = 5  # characters; shorter ones are in too many identifiers
_LONGEST_NAME = 64  # characters of an identifier whose parts are found; longer ones are data, as base64
_READ_AT_ONCE = 20_000  # characters of a text: a millisecond or two
_RUN = re.compile(f"[{UNSPACED}]+")
_TOKEN = re.compile(r"[^\W_]+(?:[./:@#_-]+[^\W_]+)*")
_ENDINGS = re.compile("(?:n['\u2019]t|['\u2019](?:s|m|re|ve|ll|d))(?![^\\W_])")
GRAM = "\u0292"  # before each group of three characters: a letter, so that it is a part of the word
_LONG = re.compile(rf"[^\W_{UNSPACED}]{{{_MIN_INSIDE + 1},}}")
# Of ASCII, those of `_LONG` that are `_is_mixed`: their first run of one kind is not all of them. Three times as fast.
_MIXED = re.compile(
    rf"(?<![A-Za-z0-9])(?=[A-Za-z0-9]{{{_MIN_INSIDE + 1}}})(?>[A-Z]?[a-z]++|[A-Z]++|[0-9]++)[A-Za-z0-9]+"
)
_BETWEEN_WORDS = re.compile(rf"[\W_{UNSPACED}]")
_ALONE = re.compile(r"[\s\u4e00-\u9fff]")  # no rule of Unicode changes such a character, or another because of it
_PARTS = re.compile(r"[^\W_]+")
_QUOTED = re.compile(r'"([^"]{3,200})"')
_MARKS = re.compile("[\u0300-\u036f]")
_MIN_PREFIX = 3  # characters; a shorter word finds only itself
# Words that say how something is asked, not what: used only if a query has no others.
STOP_WORDS = frozenset(
    """
    a about again also am an and any are as at be been but by can could did do does for from had has have he her here
    him his how i if in into is it its just me my no not of on only or our own she should so some such tell than that
    the their them then there these they this to too us very was we were what when where which who whom whose why will
    with would you your
    """.split()  # noqa: SIM905 - a list literal would be 90 lines
)
# Words of questions about an earlier talk: mostly they name the talk, seldom its subject.
_ASKING_WORDS = frozenset(
    stem(word)
    for word in """
    ago chat conversation discuss earlier kind know last like mention name previous previously really recall recent
    recently remember remind said say sort talk tell thing think time told type want
    """.split()  # noqa: SIM905 - likewise
)


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a query looks for.

    Attributes:
        text: the word as it is in the query, folded; of a path or an identifier all of it.
        parts: its words, or the first of them. More than one must follow each other in this order.
        unspaced: True for characters of a script without spaces.
        is_prefix: True if longer words that begin with its last part match too.
        is_inside: True if its words together may be any part of an identifier (`grams`).
    """

    text: str
    parts: tuple[str, ...]
    unspaced: bool = False
    is_prefix: bool = False
    is_inside: bool = False

    @property
    def is_word(self) -> bool:
        """True for one word of a script with spaces: it is equal to words of its stem."""
        return len(self.parts) == 1 and not (self.unspaced or self.is_prefix or self.is_inside)

    @property
    def choices(self) -> Iterator[list[Term]]:
        """What to look for, each if nothing has what is before it: the term, longer words, its parts, identifiers."""
        yield [self]
        if not self.unspaced and len(self.text) >= _MIN_PREFIX:
            yield [replace(self, is_prefix=True)]
        if len(self.parts) > 1 and not self.unspaced:
            yield [Term(part, (part,)) for part in dict.fromkeys(self.parts)]
        if not self.unspaced and _MIN_INSIDE <= sum(map(len, self.parts)) <= _LONGEST_NAME:
            yield [replace(self, is_inside=True)]

    @property
    def pattern(self) -> str:
        """A regular expression that finds the term in its own form."""
        if self.unspaced:
            return r"\s*".join(map(re.escape, self.parts))
        if self.is_inside:
            return re.escape("".join(self.parts))
        end = "" if self.is_prefix else r"(?![^\W_])"
        return r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, self.parts)) + end


@dataclass(frozen=True, slots=True)
class Text:
    """What is ranked of a message. Its length is that of its text, in characters.

    Attributes:
        text: all its words.
        role: of its author.
        created: ISO 8601, UTC.
        name: of its author, if the host gave one.
    """

    text: str
    role: str = ""
    created: str = ""
    name: str = ""

    def __len__(self) -> int:
        return len(self.text)


class Query:
    """A query as terms. Nothing in it is syntax except double quotes around a phrase.

    Args:
        text: what is looked for.
    """

    def __init__(self, text: str) -> None:
        asked = _beginning(text)
        folded = fold(asked)
        self.whole = " ".join(folded.split())
        self.phrases = tuple(" ".join(phrase.split()) for phrase in _QUOTED.findall(folded))
        terms: dict[str, Term] = {}
        runs = _RUN.findall(folded)
        self.unspaced = " ".join(runs)
        for run in runs:
            pairs = [run] if len(run) <= _LONGEST_PHRASE else [run[at : at + 2] for at in range(len(run) - 1)]
            terms.update((pair, Term(pair, tuple(pair), unspaced=True)) for pair in pairs)
        self.words = tuple(_TOKEN.findall(_ENDINGS.sub("", _RUN.sub(" ", folded))))
        known: set[str] = set()
        left = _MAX_WORDS
        for token in dict.fromkeys(self.words):
            parts = tuple(_PARTS.findall(token))
            if len(parts) > 1:
                parts = parts[:left]
                left -= len(parts)
                if len(parts) < 2:
                    continue
            stemmed = stem(token)
            if stemmed not in known:  # of two forms of a word the first counts
                terms[token] = Term(token, parts)
            known.add(stemmed)
        self.terms = tuple(terms.values())[:_MAX_TERMS]
        self.role, self.dates = asked_role(asked), asked_dates(asked)

    def __bool__(self) -> bool:
        return bool(self.terms)


def _beginning(query: str) -> str:
    """Return what is read of a query: all of a usual one, of a long one the first words."""
    if len(query) <= _MAX_QUERY:
        return query
    words = query[: _MAX_QUERY + 1].rsplit(maxsplit=1)
    return words[0][:_MAX_QUERY]


def grams(text: str) -> str:
    """Return the groups of three characters of the identifiers in a text, in their order, as words.

    So an index of words finds any part of an identifier, as a phrase. Identifiers are words with an inner capital, or
    of letters and digits; others are found by their parts and beginnings.
    """
    names = [fold(word)[:_LONGEST_NAME] for word in dict.fromkeys(_mixed_words(text))]
    return " ".join(map(spelled, dict.fromkeys(names)))


def _mixed_words(text: str) -> Iterator[str]:
    """Yield the identifiers of a text."""
    find = _MIXED if text.isascii() else _LONG
    start = 0
    for stop in _stops(text, _BETWEEN_WORDS):
        found = find.findall(text, start, stop)
        yield from found if find is _MIXED else filter(_is_mixed, found)
        start = stop


def _stops(text: str, breaks: re.Pattern[str]) -> Iterator[int]:
    """Yield where a long text is parted to be read: before a character that may be between words, and at its end.

    One call of a regular expression, or of a function of `unicodedata`, keeps other threads waiting until it ends.
    """
    stop = 0
    while len(text) - stop > _READ_AT_ONCE and (found := breaks.search(text, stop + _READ_AT_ONCE)) is not None:
        stop = found.start()
        yield stop
    yield len(text)


def _is_mixed(word: str) -> bool:
    if word.isalpha():
        return not (word.islower() or word.istitle() or word.isupper())
    return not word.isdigit()


def spelled(name: str) -> str:
    """Return the groups of three characters of a name as words, each marked as one."""
    return " ".join([GRAM + name[at : at + 3] for at in range(len(name) - 2)])


def significant(frequency: Mapping[Term, int]) -> list[Term]:
    """Return the terms that count: those that some text has, without stop words unless there are no others."""
    return [term for term in frequency if term.text not in STOP_WORDS] or list(frequency)


def fold(text: str) -> str:
    """Return a text in lower case without accents, as words are compared."""
    if text.isascii():
        return text.lower()
    folded: list[str] = []
    start = 0
    for stop in _stops(text, _ALONE):
        part = unicodedata.normalize("NFD", text[start:stop].lower())
        folded.append(unicodedata.normalize("NFC", _MARKS.sub("", part)))
        start = stop
    return "".join(folded)


def rank(
    query: Query,
    texts: Iterable[tuple[K, Text]],
    frequency: Mapping[Term, int],
    nearby: Mapping[K, float],
    total: int,
) -> list[K]:
    """Return the keys of texts, the best first. Of equal ones the later comes first.

    Args:
        query: what is looked for.
        texts: candidates with their keys, oldest first.
        frequency: number of texts in the whole history that have a term; of a term that more than `frequent` texts
            have, any number above that.
        nearby: weight of the terms that texts next to a text have and it has not (`candidates.weight_nearby`).
        total: number of texts in the whole history.
    """
    terms = significant(frequency)
    weights = [weight(term, frequency[term], total) for term in terms]
    most = sum(weights) or 1.0
    find = finder(terms)
    scored: list[tuple[float, int, K]] = []
    labels: list[str] = []
    names: set[str] = set()  # that the host gave
    by_role: defaultdict[str, list[str]] = defaultdict(list)
    for position, (key, text) in enumerate(texts):
        folded = fold(text.text[:SCANNED])
        hits = find(folded)
        exact = sum(weights[number] for number in {number for _, number, is_exact in hits if is_exact})
        score = _bm25(hits, weights, len(text)) + _passage(hits, weights)
        score = (score + _NEARBY * nearby.get(key, 0.0) + _EXACT * exact) / most
        score += _WHOLE * (query.whole in folded) + sum(_PHRASE for phrase in query.phrases if phrase in folded)
        score += _SPEAKER * (text.role == query.role) + _DATE * any(date.has(text.created) for date in query.dates)
        scored.append((score, position, key))
        given = _PARTS.search(fold(text.name))
        labels.append(given.group() if given else "" if text.role == "tool" else speaker_label(folded))
        if given:
            names.add(labels[-1])
        else:
            by_role[text.role].append(labels[-1])
    parts = (part for word in query.words for part in _PARTS.findall(word))
    speaker = asked_speaker(parts, query.unspaced, names, by_role)
    if speaker:
        scored = [(one[0] + _SPEAKER * (label == speaker), *one[1:]) for one, label in zip(scored, labels, strict=True)]
    return [key for _, _, key in sorted(scored, key=lambda one: one[:2], reverse=True)]


def weight(term: Term, frequency: int, total: int) -> float:
    """Return what a term counts that so many of the texts have: the rarer, the more."""
    if frequency > frequent(total):
        return _FREQUENT
    share = _ASKING if term.is_word and stem(term.text) in _ASKING_WORDS else 1.0
    return share * math.log(1 + (max(total, frequency) - frequency + 0.5) / (frequency + 0.5))


def frequent(total: int) -> int:
    """Return the number of texts above which a term counts as frequent, of this many."""
    return max(_FEW, min(_MANY, total // 20))


def has_phrase(text: str, term: Term) -> bool:
    """True if a folded text has the words of a term in their order; linear, as `finder` is not where a text repeats."""
    if not all(part in text for part in term.parts):
        return False
    words = " ".join(found.group() for found in _PARTS.finditer(text))
    return f" {' '.join(term.parts)}{'' if term.is_prefix else ' '}" in f" {words} "


Hits = list[tuple[int, int, bool]]  # where, the number of the term, whether in the term's own form


def finder(terms: Sequence[Term]) -> Callable[[str], Hits]:
    """Return a function that finds terms in a folded text, in the order of the text."""
    single = {stem(term.text): number for number, term in enumerate(terms) if term.is_word}
    beginnings = "|".join(sorted(map(re.escape, set(map(begins, single))), key=len, reverse=True))
    words = re.compile(rf"(?<![^\W_])(?:{beginnings})[^\W_]*")
    others = [(number, re.compile(term.pattern)) for number, term in enumerate(terms) if not term.is_word]

    def find(text: str) -> Hits:
        hits: Hits = []
        for match in words.finditer(text) if single else ():
            word = match.group()
            number = single.get(stem(word))
            if number is not None:
                hits.append((match.start(), number, word == terms[number].text))
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
    """Return the weight of the terms in the best passage."""
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
