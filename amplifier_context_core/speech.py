"""Speech: what people and the agent said, sentence by sentence, and which sentences to keep when there is no room.

A sentence is kept whole or left out; ``…`` marks a gap. Sentences of people rank by whether they state a rule, those of
the agent by what they hold: a conclusion, a decision, a reason, a number or a question ranks above the announcement of
the next call.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from .fence import one_line
from .identifiers import identifiers

Speaker = Literal["", "person", "agent"]

# A sentence ends at . ! ? or : before white space, at such a mark of Chinese or Japanese, or at the end of a line.
_END = re.compile(r"(?<=[.!?:])\s+|(?<=[。！？：])|\s*[\r\n]+\s*")  # noqa: RUF001
_FENCE = re.compile(r"^[ \t]*(```|~~~)", re.MULTILINE)
_OPENING_TAG = re.compile(r"<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?>")
_WORD = re.compile(r"[^\W\d_]{2,}")
# Words that state a rule, in English and Chinese: those that the lab counts (`testing/lab/sentences.py`) and further
# words of the same kind.
_RULE = re.compile(
    r"\b(?:never|always|don['\u2019]?t|do\s+not|only|instead|make\s+sure|please|must|should|shall|ensure|avoid|without|"
    r"forbidden|required?|prefer|unless|at\s+(?:most|least)|no\s+(?:more|longer)|remember|important)"
    r"|不[要准许能得]|从不|从来不|永远|总是|始终|必须|务必|一定要|请|禁止|只[能要]|仅|而不是|确保|保证|应[该当]",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    r"(?:(?:ok(?:ay)?|great|good|perfect|excellent|now|next|first|then|alright|right|sure|and|so|also)\b[,.! ]*)*"
    r"(?:let me|let['\u2019]s|i['\u2019]?ll|i will|i['\u2019]m going to|i am going to|i need to|i should|i want to|"
    r"we need to|time to|checking|looking|reading|running|searching)\b",
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
_LONG = 4_000  # characters: a message above this length is pasted for the most part, and states no rules
_SHORT = 25  # characters: what a shorter sentence takes beside its text weighs more than its length
_GAP_WORTH = -1.0
_LONGEST = 1_000  # characters of a sentence; what is longer is no sentence, and is cut at a word's end


class Sentence(NamedTuple):
    """One sentence of what was said.

    Attributes:
        text: on one line, with the blank behind it that separates it from the next, if there is one.
        worth: how much it is worth to keep, 0 to 1; below 0 for the mark of a gap.
    """

    text: str
    worth: float


GAP = Sentence("… ", _GAP_WORTH)


def read(text: str, speaker: Speaker) -> tuple[Sentence, ...]:
    """Return the sentences of what a speaker said, in order. Joined, they are the text with its white space folded.

    Only words that a person wrote state a rule: what the person pasted, tagged or quoted does not.
    """
    if speaker != "person":
        return tuple(Sentence(part, _worth(part)) for part in _split(text))
    if len(text) > _LONG:
        return tuple(Sentence(part, PASTED) for part in _split(text))
    return tuple(
        Sentence(part, PASTED if pasted or part.startswith(">") else RULE if _RULE.search(part) else OWN)
        for block, pasted in _blocks(text)
        for part in _split(block)
    )


def _split(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line."""
    start = 0
    for end in (*(found.end() for found in _END.finditer(text)), len(text)):
        part, start = text[start:end], end
        line = one_line(part)
        if len(line) > _LONGEST:
            line = f"{line[: word_end(line, _LONGEST)]} …"
        if line:
            yield f"{line} " if part[-1].isspace() or end == len(text) else line


def _worth(sentence: str) -> float:
    """Return the worth of a sentence of the agent: of what it holds, the higher the shorter it says so."""
    if _WORD.search(sentence) is None:
        worth = 0.1  # rules of tables, lone numbers
    elif _ANNOUNCED.match(sentence):
        worth = 0.15
    else:
        worth = _worth_of_content(sentence)
    return worth * min(1.0, (_SHORT / len(sentence)) ** 0.5)


def _worth_of_content(sentence: str) -> float:
    worth = 0.45
    if _CONCLUDED.search(sentence):
        worth += 0.25
    if sentence.rstrip().endswith("?"):
        worth += 0.15
    if identifiers(sentence, 1) or any(letter.isdigit() for letter in sentence):
        worth += 0.1
    return worth


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield a person's message in parts, and whether the person pasted the part: fenced, or between tags."""
    start = place = 0
    unclosed: set[str] = set()
    while True:
        fence = _FENCE.search(text, place)
        tag = _OPENING_TAG.search(text, place)
        found = min((match for match in (fence, tag) if match), key=lambda match: match.start(), default=None)
        if found is None:
            break
        closing = found[1] if found is fence else f"</{found[1]}"
        place = found.end()
        if closing in unclosed:
            continue
        end = text.find(closing, found.end())
        if end < 0:
            unclosed.add(closing)
            continue
        line_end = text.find("\n" if found is fence else ">", end)
        place = line_end + 1 if line_end >= 0 else len(text)
        yield text[start : found.start()], False
        yield text[found.start() : place], True
        start = place
    yield text[start:], False


def word_end(text: str, end: int, reach: int = 24) -> int:
    """Return the index of the last blank within `reach` characters before `end`; `end` if there is none."""
    cut = text.rfind(" ", max(0, end - reach), max(0, end))
    return cut if cut > 0 else max(0, end)


def joined(said: Sequence[Sentence]) -> str:
    """Return sentences as one text."""
    return "".join(sentence.text for sentence in said).strip()


def length(said: Sequence[Sentence]) -> int:
    """Return the characters of sentences."""
    return sum(len(sentence.text) for sentence in said)


def select(
    said: Sequence[Sequence[Sentence]], room: int, labels: Sequence[int] | None = None
) -> list[tuple[Sentence, ...]]:
    """Return several speeches in at most about `room` characters together: the sentences worth most, in their order.

    Of equal worth, a later speech goes before an earlier one, and an earlier sentence before a later one.

    Args:
        said: the sentences of each speech, in order.
        room: characters.
        labels: characters that each speech costs beside its sentences, if any of them is kept.
    """
    labels = labels or [0] * len(said)
    if sum(map(length, said)) + sum(labels) <= room:
        return [tuple(speech) for speech in said]
    ranked = sorted(
        (-sentence.worth, -place, index)
        for place, speech in enumerate(said)
        for index, sentence in enumerate(speech)
        if sentence.worth >= 0
    )
    kept: list[set[int]] = [set() for _ in said]
    for _, behind, index in ranked:
        place = -behind
        needed = len(said[place][index].text) + len(GAP.text) + (0 if kept[place] else labels[place])
        if needed <= room:
            room -= needed
            kept[place].add(index)
    return [tuple(_with_gaps(speech, left)) for speech, left in zip(said, kept, strict=True)]


def _with_gaps(speech: Sequence[Sentence], kept: set[int]) -> Iterator[Sentence]:
    gap = False
    for index, sentence in enumerate(speech if kept else ()):
        if index in kept:
            yield sentence
            gap = False
        elif not gap:
            yield GAP
            gap = True
