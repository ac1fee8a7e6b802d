"""Speech: the sentences of people and of the agent, and the choice of sentences when there is no room for all.

A sentence is kept whole or left out; ``…`` marks a gap. Sentences of people rank by whether they state a rule.
Sentences of the agent rank by content: a conclusion, a decision, a reason, a number or a question ranks above the
announcement of the next call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from heapq import merge
from typing import Literal, NamedTuple

from ..messages.reminders import is_skill
from ..rendering.quoting import single_line
from .identifiers import identifiers
from .rarity import rarities

Speaker = Literal["", "person", "agent"]

# A sentence ends at . ! ? or : before white space, at such a mark of Chinese or Japanese, or at the end of a line.
_END = re.compile(r"(?<=[.!?:])\s+|(?<=[。！？：])|[\r\n]+\s*")  # noqa: RUF001
_FENCE = re.compile(r"[ \t]*(`{3,}+|~{3,}+)([^`\r\n]*+)\s*")  # one reading: a person may paste megabytes of ~
_TAG = re.compile(r"<([A-Za-z_][\w.:-]*)(?:\s[^<>]*)?>")
_QUOTE = re.compile(r"\s*(?:[-*]\s+)?[>＞]")  # noqa: RUF001
_ITEM = re.compile(r"(?:[-*\u2022]|\d{1,2}[.)])(?:\s|$)")
_NUMBER = re.compile(r"\s{0,99}\d{1,2}[.)]\s{1,99}")  # of a list: it is part of the sentence that it numbers
_WORD = re.compile(r"[^\W\d_]{2,}")
_STRING = re.compile(r""""(?:[^"\\]|\\.){40,}+"|'[^']{40,}+'""", re.DOTALL)  # in a command: it may hold a sentence
_CODE = frozenset("{}[]<>=;|$\\")
_LEAST_LETTERS = 0.8  # of the characters of a sentence of prose, with the blanks
# Words that state a rule, in English and Chinese: the words that the lab counts (`lab/sentences.py`) and more
# of the same kind. Other languages: what people wrote is kept before all else, only not as a rule.
_RULE = re.compile(
    r"\b(?:never|always|don['\u2019]?t|do\s+not|only|instead|make\s+sure|please|(?:must|should|shall)(?:n['\u2019]t)?|"
    r"can(?:not|['\u2019]t)|won['\u2019]t|stop|refrain|ensure|avoid|without|forbidden|required?|prefer|unless|"
    r"at\s+(?:most|least)|no\s+(?:more|longer|new)|remember|important)\b"
    r"|从不|从来不|永远|总是|始终|必须|务必|一定要|(?<!要)不要|不准|不许|不能|请勿|禁止|只能|只要|仅|而不是|确保|保证|应该|应当|"
    r"(?<![分区特个])别[^的人]|勿|(?<![邀申聘])请(?![教客假问求])",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    r"(?:(?:ok(?:ay)?|great|good|perfect|excellent|now|next|first|then|alright|right|sure|and|so|also)\b[,.! ]*)*"
    r"(?:let me|let['\u2019]s|i['\u2019]?ll|i will|i['\u2019]m going to|i am going to|i need to|i should|i want to|"
    r"we need to|time to|checking|looking|reading|running|searching|"
    r"i(?: now)? have (?:enough|everything|a (?:good|clear|full|complete|better) (?:understanding|picture|idea))"
    r"(?=.{0,30}$))\b",
    re.IGNORECASE,
)
_CONCLUDED = re.compile(
    r"\b(?:because|since|therefore|thus|hence|caused?|root|found|turns? out|means|decided?|decision|chose|chosen|"
    r"instead|rather|so that|due to|problem|issue|bug|reason|error|fix(?:ed|es)?|works?|working|pass(?:es|ed|ing)?|"
    r"fail(?:s|ed|ing|ure)?|broken|missing|wrong|correct|confirm(?:s|ed)?|conclusion|result|summary|done|"
    r"completed?|implemented|added|removed|changed|renamed|moved|updated|created|must|should|can(?:not|['\u2019]t)|"
    r"do(?:es)?n['\u2019]t|isn['\u2019]t|not|no longer|todo|remaining|still|open|next step|needs?|risk|warning|"
    r"important|note|never|always|only|already|(?:un)?expected)\b",
    re.IGNORECASE,
)

RULE = 1.0  # worth of a person's sentence that states a rule
OWN = 0.8  # of another sentence that a person wrote
PASTED = 0.2  # of a sentence in what a person pasted
_LONG = 4_000  # characters: what a person writes above this length is a paste for the most part, and states no rules
_SHORT = 25  # characters: a longer sentence costs more for what it says, a shorter one says little (`Got it.`)
_GAP_WORTH = -1.0
# Of its worth, what a sentence of frequent words keeps: no paste ranks above what a person wrote.
_FREQUENT = PASTED / OWN
_LONGEST = 1_000  # characters of a sentence; what is longer is several, parted at the ends of words
_READ_AT_ONCE = 20_000  # characters; a regular expression keeps other threads waiting until it has read its text
_SORTED_AT_ONCE = 4_000  # sentences; sorting them keeps other threads waiting for a millisecond
_MOST_UNCLOSED = 64  # tags and fences without an end that are looked for; the text after so many is taken as pasted


class Sentence(NamedTuple):
    text: str  # on one line, with the blank after it that separates it from the next, if there is one
    worth: float  # how much it is worth to keep, 0 to 1; below 0 for the mark of a gap


GAP = Sentence("… ", _GAP_WORTH)


def read(text: str, speaker: Speaker) -> tuple[Sentence, ...]:
    """Return the sentences of a speech, in order. Joined, they are the text with its white space folded.

    Only words that a person wrote state a rule: what the person pasted, tagged or quoted does not. What follows a rule
    that ends in a colon, and the list after it, belong to the rule.
    """
    if speaker != "person":
        return tuple(Sentence(part, worth) for run in _runs(text) for worth in (_worth(run),) for part in _parts(run))
    blocks = list(_blocks(text))
    written = sum(len(block) for block, pasted in blocks if not pasted)
    sentences: list[Sentence] = []
    demanded = listed = False  # the sentence before is a rule that ends in a colon; this one is in the list after it
    for block, pasted in blocks:
        for run in _runs(block):
            listed = _ITEM.match(run) is not None and (demanded or listed)
            is_rule = not pasted and written <= _LONG and (demanded or listed or states_rule(run))
            demanded = is_rule and run.rstrip().endswith((":", "："))  # noqa: RUF001
            worth = RULE if is_rule else PASTED if pasted or written > _LONG else OWN
            sentences += (Sentence(part, worth) for part in _parts(run))
    return tuple(sentences)


def take_prose(command: str) -> tuple[str, list[Sentence]]:
    """Return a command without the strings in it that are mostly prose, and their sentences.

    They are what the agent publishes: the body of a commit, a reply to a review.
    """
    taken: list[Sentence] = []

    def replaced(found: re.Match[str]) -> str:
        sentences = [one for one in read(found[0][1:-1], "agent") if _is_prose(one.text)]
        if 2 * length(sentences) < len(found[0]):
            return found[0]
        taken.extend(sentences)
        return f"{found[0][0]}…{found[0][0]}"

    return _STRING.sub(replaced, command[:_READ_AT_ONCE]) + command[_READ_AT_ONCE:], taken


def _is_prose(sentence: str) -> bool:
    """True if nearly all of it is letters and blanks, and nothing a sign of code; a path is none."""
    if not _CODE.isdisjoint(sentence) or (sentence.isascii() and " " not in sentence.strip()):
        return False
    return sum(letter.isalpha() or letter == " " for letter in sentence) >= _LEAST_LETTERS * len(sentence)


def states_rule(text: str) -> bool:
    return _RULE.search(text) is not None


def _runs(text: str) -> Iterator[str]:
    """Yield sentences, each on one line, with a blank after it where the next is parted by one."""
    start = 0
    for stop in _stops(text):
        for end in (*(found.end() for found in _END.finditer(text, start, stop)), stop):
            if end < stop and _NUMBER.fullmatch(text, start, end):
                continue
            run, start = text[start:end], end
            line = single_line(run)
            if line:
                yield f"{line} " if run[-1].isspace() or end == len(text) else line


def _stops(text: str) -> Iterator[int]:
    """Yield where a text is parted to be read: after ends of lines if it has them, else after words."""
    stop = 0
    while len(text) - stop > _READ_AT_ONCE:
        start, stop = stop, stop + _READ_AT_ONCE
        stop = text.rfind("\n", start, stop) + 1 or word_end(text, stop)
        stop += text[stop] == " "
        yield stop
    yield len(text)


def _parts(run: str) -> Iterator[str]:
    """Yield a sentence, or, of one that is too long to be one, parts of it."""
    while len(run) > _LONGEST:
        end = word_end(run, _LONGEST)
        end += run[end] == " "
        yield run[:end]
        run = run[end:]
    if run:
        yield run


def _worth(sentence: str) -> float:
    """The agent's: of what the sentence holds, the higher the nearer it is to `_SHORT`."""
    number = _NUMBER.match(sentence)
    if number and number.end() < len(sentence):
        sentence = sentence[number.end() :]
    if _WORD.search(sentence) is None:
        worth = 0.1  # rules of tables, lone numbers
    elif _ANNOUNCED.match(sentence):
        worth = 0.15
    else:
        worth = _worth_of_content(sentence)
    return round(worth * min(1.0, (_SHORT / len(sentence)) ** 0.5, len(sentence) / _SHORT), 3)


def _worth_of_content(sentence: str) -> float:
    worth = 0.45
    if _CONCLUDED.search(sentence):
        worth += 0.25
    if sentence.rstrip().endswith("?"):
        worth += 0.15
    if sentence.rstrip().endswith((":", "：")):  # noqa: RUF001
        worth -= 0.3  # it introduces what follows, and says little without that
    if identifiers(sentence, 1) or any(letter.isdigit() for letter in sentence):
        worth += 0.1
    return worth


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield a person's message in parts, and whether the person pasted the part.

    Text counts as pasted inside a code fence, in a quotation, between tags on one line, or between tags of which the
    first begins its line. A fence or tag without an end is ignored. The text of a skill that a host put in is pasted.
    """
    if is_skill(text):
        yield text, True
        return
    lines = text.splitlines(keepends=True)
    unclosed: set[str] = set()
    place = 0
    while place < len(lines):
        if len(unclosed) > _MOST_UNCLOSED:
            yield "".join(lines[place:]), True
            return
        end = _end_of_fence(lines, place, unclosed) or _end_of_element(lines, place, unclosed)
        if end:
            yield "".join(lines[place:end]), True
            place = end
        else:
            yield from _spans(lines[place], unclosed)
            place += 1


def _end_of_fence(lines: Sequence[str], start: int, unclosed: set[str]) -> int:
    """Return the index after the fenced block that begins at a line; 0 if none does."""
    opening = _FENCE.fullmatch(lines[start])
    if opening is None or opening[1] in unclosed:
        return 0
    for place in range(start + 1, len(lines)):
        closing = _FENCE.fullmatch(lines[place])
        if closing and not closing[2].strip() and closing[1].startswith(opening[1]):
            return place + 1
    unclosed.add(opening[1])
    return 0


def _end_of_element(lines: Sequence[str], start: int, unclosed: set[str]) -> int:
    """Return the index after the tagged block whose first tag begins a line; 0 if none does."""
    opening = _TAG.match(lines[start].lstrip())
    if opening is None or opening[1].lower() in unclosed:
        return 0
    tags = re.compile(rf"<(/?){re.escape(opening[1])}(?:\s[^<>]*)?>", re.IGNORECASE)
    depth = 0
    for place in range(start, len(lines)):
        for tag in tags.finditer(lines[place]):
            depth += -1 if tag[1] else 1
            if depth <= 0:
                return place + 1
    unclosed.add(opening[1].lower())
    return 0


def _spans(line: str, unclosed: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield a line in parts, and whether each is between tags; a quotation is one part."""
    if _QUOTE.match(line):
        yield line, True
        return
    missing = set(unclosed)
    start = place = 0
    while (tag := _TAG.search(line, place)) is not None:
        if len(missing) > _MOST_UNCLOSED:
            yield line[start:], True
            return
        place = tag.end()
        end = -1 if tag[1] in missing else line.find(f"</{tag[1]}>", place)
        if end < 0:
            missing.add(tag[1])
            continue
        place = end + len(tag[1]) + 3
        yield line[start : tag.start()], False
        yield line[tag.start() : place], True
        start = place
    yield line[start:], False


def word_end(text: str, end: int, reach: int = 24) -> int:
    """Return the index of the last blank within `reach` characters before `end`; `end` if there is none."""
    cut = text.rfind(" ", max(0, end - reach), max(0, end))
    return cut if cut > 0 else max(0, end)


def joined(sentences: Sequence[Sentence]) -> str:
    return "".join(sentence.text for sentence in sentences).strip()


def length(sentences: Sequence[Sentence]) -> int:
    return sum(len(sentence.text) for sentence in sentences)


def select(
    speeches: Sequence[Sequence[Sentence]], room: int, labels: Sequence[int] | None = None
) -> list[tuple[Sentence, ...]]:
    """Return several speeches in at most about `room` characters together: the sentences worth most, in their order.

    Of those that a person wrote and that state no rule, and of the agent's, the ones with rare words go first: what is
    written once is a fact. Of one that is written again, the last of the highest worth goes by it, the others last of
    all: no paste of a rule takes its place. Else a later speech goes before an earlier one, and an earlier sentence
    before a later one. `labels` are characters that each speech costs beside its sentences, if any of them is kept.
    """
    labels = labels or [0] * len(speeches)
    if sum(map(length, speeches)) + sum(labels) <= room:
        return [tuple(speech) for speech in speeches]
    places = [  # of equal rank, an earlier one here goes before a later one
        (place, index)
        for place in range(len(speeches) - 1, -1, -1)
        for index, sentence in enumerate(speeches[place])
        if sentence.worth >= 0
    ]
    sentences = [speeches[place][index] for place, index in places]
    rare = rarities([sentence.text for sentence in sentences])
    ranks = [-_rank(sentence.worth, rarity) for sentence, rarity in zip(sentences, rare, strict=True)]
    best: dict[str, int] = {}  # by text: the number of its last sentence of the highest worth
    for number, sentence in enumerate(sentences):
        text = sentence.text.strip()
        other = best.setdefault(text, number)
        if other != number:
            is_later = places[number][0] == places[other][0]
            is_best = (sentence.worth, is_later) > (sentences[other].worth, False)
            best[text] = number if is_best else other
            ranks[other if is_best else number] = 0.0
    least = min((len(sentence.text) for sentence in sentences), default=0) + len(GAP.text)
    kept: list[set[int]] = [set() for _ in speeches]
    for number in _in_order(ranks):
        if room < least:
            break
        place, index = places[number]
        needed = len(speeches[place][index].text) + len(GAP.text) + (0 if kept[place] else labels[place])
        if needed <= room:
            room -= needed
            kept[place].add(index)
    return [tuple(with_gaps(speech, left)) for speech, left in zip(speeches, kept, strict=True)]


def _in_order(ranks: Sequence[float]) -> Iterator[int]:
    """Yield the indices of ranks, the lowest rank first; of equal ones the first. No step takes long."""
    parts = (range(start, min(start + _SORTED_AT_ONCE, len(ranks))) for start in range(0, len(ranks), _SORTED_AT_ONCE))
    return merge(*[sorted(part, key=ranks.__getitem__) for part in parts], key=ranks.__getitem__)


def _rank(worth: float, rarity: float) -> float:
    """Rules and pastes rank among themselves by age alone."""
    return worth if worth in (RULE, PASTED) else worth * (_FREQUENT + (1 - _FREQUENT) * rarity)


def with_gaps(speech: Sequence[Sentence], kept: Collection[int]) -> Iterator[Sentence]:
    """Yield the sentences at some indices, with the mark of a gap where others are left out; nothing for no index."""
    gap = False
    for index, sentence in enumerate(speech if kept else ()):
        if index in kept:
            yield sentence
            gap = False
        elif not gap:
            yield GAP
            gap = True
