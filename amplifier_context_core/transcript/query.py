"""A query as terms, and a text as its words are compared. Pure: no I/O, no clock."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from .question_hints import asked_dates, asked_role
from .searchable import UNSPACED

READ_AT_ONCE = 20_000  # characters of a text: a millisecond or two

_LONGEST_PHRASE = 4  # characters without spaces that are taken as one word; of longer runs each pair is one
_MAX_QUERY = 4_000  # characters of a query that are read
_MAX_TERMS = 48  # terms of a query that are looked for
_MAX_WORDS = 48  # of a query's paths and identifiers, together: an index compares each at every place of a text
_MIN_PREFIX = 3  # characters; a shorter word finds only itself
_MIN_INSIDE = 5  # characters; shorter ones are in too many identifiers
LONGEST_NAME = 64  # characters of an identifier whose parts are found; longer ones are data, as base64
_RUN = re.compile(f"[{UNSPACED}]+")
_TOKEN = re.compile(r"[^\W_]+(?:[./:@#_-]+[^\W_]+)*")
_CONTRACTION = re.compile("(?:n['\u2019]t|['\u2019](?:s|m|re|ve|ll|d))(?![^\\W_])")
# The first run of one kind is not all of the word.
_MIXED = re.compile(
    rf"(?<![A-Za-z0-9])(?=[A-Za-z0-9]{{{_MIN_INSIDE + 1}}})(?>[A-Z]?[a-z]++|[A-Z]++|[0-9]++)[A-Za-z0-9]+"
)
_BETWEEN_WORDS = re.compile("[^A-Za-z0-9]")
_ALONE = re.compile(r"[\s\u4e00-\u9fff]")  # no rule of Unicode changes such a character, or another because of it
PARTS = re.compile(rf"[^\W_{UNSPACED}]+")
_BEGIN, _END = rf"(?<![^\W_{UNSPACED}])", rf"(?![^\W_{UNSPACED}])"  # of a word
_QUOTED = re.compile(r'"([^"]{3,200})"')
_MARKS = re.compile("[\u0300-\u036f]")
# Endings of English words: any, and what a root of four characters may have besides.
_ENDINGS = "ies|ied|ings|ing|ed|es|e|y|s"
_LONGER = (
    "ations|ation|ated|ates|ate|able|ements|ement|ments|ment|ness|ingly|iest|ier|ily|ions|ion|ers|er|est|ive|ful|ly"
)
_ENDING = re.compile(
    rf"(?:(?<=..)(?:ies|ied|(?<![aeiou])y)|(?<=....)(?:{_LONGER})|(?<=...)(?<!s(?=s$))(?:{_ENDINGS}))$"
)
_DOUBLED = re.compile(r"([bdfgkmnprtvz]|(?<=...)l)\1$")


# Words that say how something is asked, not what: used only if a query has no others.
STOP_WORDS = frozenset(
    """
    a about again also am an and any are as at be been but by can could did do does for from had has have he her here
    him his how i if in into is it its just me my no not of on only or our own she should so some such tell than that
    the their them then there these they this to too us very was we were what when where which who whom whose why will
    with would you your
    """.split()  # noqa: SIM905 - a list literal would be 90 lines
)


def root(word: str) -> str:
    """Return what the forms of a folded English word begin with; most words of other languages stay whole."""
    left = _ENDING.sub("", word) if word.isalpha() else word
    return _DOUBLED.sub(r"\1", left) if left != word else word


def forms(roots: Iterable[str]) -> str:
    """Return a regular expression for the forms of words in a folded text. Its first group is the root."""
    longest_first = "|".join(re.escape(one) for one in sorted(roots, key=len, reverse=True))
    endings = rf"(?<=([a-z]))\2?(?:{_ENDINGS}|d|(?<=[a-z]{{4}})(?:{_LONGER}))?"
    return rf"{_BEGIN}({longest_first})(?:{endings})?{_END}"


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a query looks for."""

    text: str  # the word as it is in the query, folded; of a path or an identifier all of it
    parts: tuple[str, ...]  # its words, or the first of them. More than one must follow each other in this order
    unspaced: bool = False  # characters of a script without spaces
    is_prefix: bool = False  # longer words that begin with its last part match too
    is_inside: bool = False  # its words together may be any part of an identifier (`names`)

    @property
    def is_word(self) -> bool:
        """True for one word of a script with spaces, which finds its other forms too."""
        return len(self.parts) == 1 and not (self.unspaced or self.is_prefix or self.is_inside)

    @property
    def choices(self) -> Iterator[list[Term]]:
        """What to look for, each if nothing has what is before it: the term, longer words, its parts, identifiers."""
        yield [self]
        if self.unspaced:
            return
        if len(self.text) >= _MIN_PREFIX:
            yield [replace(self, is_prefix=True)]
        if len(self.parts) > 1:
            yield [Term(part, (part,)) for part in dict.fromkeys(self.parts)]
        if _MIN_INSIDE <= sum(map(len, self.parts)) <= LONGEST_NAME:
            yield [replace(self, is_inside=True)]

    @property
    def pattern(self) -> str:
        if self.unspaced:
            return r"\s*".join(map(re.escape, self.parts))
        if self.is_inside:
            return re.escape("".join(self.parts))
        return _BEGIN + r"[\W_]+".join(map(re.escape, self.parts)) + ("" if self.is_prefix else _END)


class Query:
    """A query as terms. Nothing in it is syntax except double quotes around a phrase."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_QUERY:
            text = text[: _MAX_QUERY + 1].rsplit(maxsplit=1)[0][:_MAX_QUERY]
        folded = fold(text)
        self.whole = " ".join(folded.split())
        self.phrases = tuple(" ".join(phrase.split()) for phrase in _QUOTED.findall(folded))
        terms: dict[str, Term] = {}
        runs = _RUN.findall(folded)
        self.unspaced = " ".join(runs)
        for run in runs:
            pairs = [run] if len(run) <= _LONGEST_PHRASE else [run[at : at + 2] for at in range(len(run) - 1)]
            terms.update((pair, Term(pair, tuple(pair), unspaced=True)) for pair in pairs)
        self.words = tuple(_TOKEN.findall(_CONTRACTION.sub("", _RUN.sub(" ", folded))))
        left = _MAX_WORDS
        for token in dict.fromkeys(self.words):
            parts = tuple(PARTS.findall(token))
            if len(parts) > 1:
                parts = parts[:left]
                left -= len(parts)
                if len(parts) < 2:
                    continue
            terms.setdefault(root(token), Term(token, parts))  # of two forms of a word the first counts
        self.terms = tuple(terms.values())[:_MAX_TERMS]
        self.role, self.dates = asked_role(text), asked_dates(text)

    def __bool__(self) -> bool:
        return bool(self.terms)


def fold(text: str) -> str:
    """Lower case without accents, as words are compared."""
    if text.isascii():
        return text.lower()
    folded = (unicodedata.normalize("NFD", part.lower()) for part in pieces(text, _ALONE))
    return "".join(unicodedata.normalize("NFC", _MARKS.sub("", part)) for part in folded)


def names(text: str) -> str:
    """Return the identifiers of a text in which parts are looked for, folded, a line each.

    They are words of ASCII with an inner capital, or of letters and digits; others are found by their parts and
    beginnings.
    """
    words = (word for piece in pieces(text, _BETWEEN_WORDS) for word in _MIXED.findall(piece))
    return "\n".join(dict.fromkeys(word[:LONGEST_NAME].lower() for word in words))


def pieces(text: str, breaks: re.Pattern[str]) -> Iterator[str]:
    """Yield a long text in parts, each from a character that may be between words on.

    One call of a regular expression, or of a function of `unicodedata`, keeps other threads waiting until it ends.
    """
    start = 0
    while len(text) - start > READ_AT_ONCE and (found := breaks.search(text, start + READ_AT_ONCE)) is not None:
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]
