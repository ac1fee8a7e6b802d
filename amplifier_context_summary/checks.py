"""Reading an answer, and the checks that its lines pass before they count.

What the history does not show is dropped: quotations of what was not written, names that exist neither in the range nor
in the former text, marks of no message, wishes without a person's words, finished tasks without a result.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

from amplifier_context_core.compaction.identifiers import identifiers
from amplifier_context_core.compaction.speech import PASTED, Sentence, read
from amplifier_context_core.messages.escapes import read_escapes
from amplifier_context_core.messages.parsing import (
    arguments_of,
    arguments_text,
    calls_of,
    json_text,
    result_text,
    results_of,
    text_of,
)
from amplifier_context_core.messages.usage import text_of_answer
from amplifier_context_core.rendering.quoting import escape_tags, single_line, without_controls
from amplifier_context_core.transcript.entry import Entry

from .material import people_in
from .text import MARK, MAX_CHARS, MAX_LINES, SECTIONS, Line, Section, Text

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length"})
_REFUSED = frozenset({"refusal", "refused", "content_filter", "safety", "prohibited_content", "blocked"})
_REFUSAL = re.compile(
    r"(?:i['\u2019]?m sorry|sorry|i can(?:not|['\u2019]t)|i am unable|i['\u2019]m unable|as an ai)\b", re.I
)
_MOST_CHARS = 400_000  # of an answer; a longer one is not read
_HEADING = re.compile(r"#{1,6}\s(?P<marked>.{1,80})|\*\*(?P<bold>[^*]{1,80})\*\*:?|\d{1,2}\.\s(?P<listed>[^:]{1,80}):")
# Words of headings, in the order in which they are looked for: models word them in their own way.
_WORDS: tuple[tuple[Section, tuple[str, ...]], ...] = (
    ("work", ("work", "task", "state", "status", "next", "todo", "progress")),
    ("files", ("file", "code")),
    ("values", ("value", "exact", "command")),
    ("findings", ("finding", "found", "deci", "learn", "error", "problem", "concept", "fact", "fail")),
    ("person", ("person", "user", "goal", "rule", "request", "want")),
)
_NOTHING = frozenset({"none", "nothing", "n/a", "-"})


class RejectedAnswer(Exception):
    """An answer that cannot be used; the text says why, in words that quote nothing of it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a provider answered: all text blocks, and the finish reason in lower case."""

    text: str
    finish_reason: str = ""


def answer_of(response: Any) -> Reply:
    """Return the answer in a kernel's `ChatResponse`; nothing of it is trusted."""
    reason = getattr(response, "finish_reason", None)
    return Reply(text_of_answer(response) or "", reason.casefold() if isinstance(reason, str) else "")


def lines_in(answer: Reply) -> list[tuple[Section, str]]:
    """Return the lines of an answer with their headings, without bullets and control characters.

    Raises:
        RejectedAnswer: it is empty, cut off, a refusal, too long, or has no line under one of the headings.
    """
    if answer.finish_reason in _CUT:
        raise RejectedAnswer("it was cut off by the output limit; be shorter")
    if answer.finish_reason in _REFUSED or _REFUSAL.match(answer.text.strip()):
        raise RejectedAnswer("the model refused")
    if not answer.text.strip():
        raise RejectedAnswer("it was empty")
    if len(answer.text) > _MOST_CHARS:
        raise RejectedAnswer("it was far too long")
    section: Section | None = None
    lines: list[tuple[Section, str]] = []
    for raw in answer.text.splitlines():
        line = " ".join(without_controls(raw).split())
        if heading := _HEADING.fullmatch(line):
            words = next(part for part in heading.groups() if part).casefold()
            section = next((section for section, known in _WORDS if any(word in words for word in known)), None)
            continue
        text = line.lstrip("-*\u2022 ") if line.startswith(("- ", "* ", "\u2022 ")) else line
        if section is not None and text and text.rstrip(".").casefold() not in _NOTHING:
            lines.append((section, _cut(text)))
    if not lines:
        raise RejectedAnswer("it had no line under one of the five headings")
    return lines[:MAX_LINES]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS].rsplit(" ", 1)[0] + " …"


_QUOTED = re.compile(r"[\"\u201c]([^\"\u201c\u201d]{12,1000})[\"\u201d]")
_GROUP = re.compile(r" ?\((m\d{1,19}(?:\.\d{1,4})?(?:(?:, ?|; ?| ?[-\u2013] ?| to | and )m\d{1,19}(?:\.\d{1,4})?)*)\)")
_ELLIPSIS = re.compile(r" ?(?:\u2026|\.{3}) ?")  # of a text with single blanks
_TOKEN = re.compile(r"[\w.@-]{3,}")
_PART = re.compile(r"[^\W_]{3,}")
_SEGMENT = re.compile(r"[/:#\\]+")
_NUMBERS = re.compile(r"[\d\W_]+")
_HASH = re.compile(r"[0-9a-f]{7,}")
_ESCAPED = re.compile(r"\\(.)")  # in a text of JSON
_MOST_NAMES = 60  # of one line that are looked for


class Shown:
    """What an answer may rest on: the entries of a range, and the text before it, which was checked before."""

    def __init__(self, entries: Sequence[Entry], former: Text) -> None:
        self.former = former
        people = people_in(entries)
        results = {entry.seq for entry in entries if entry.answered_ids}
        self.marks = {entry.seq for entry in entries} | {seq for line in former.lines for seq in line.marks}
        self.people = people | {seq for line in former.lines if line.section == "person" for seq in line.marks}
        self.evident = people | results | {seq for line in former.lines if line.is_done for seq in line.marks}
        self._entries, self._people = entries, people

    @cached_property
    def text(self) -> str:
        """All that it says, with white space folded."""
        said = [part for entry in self._entries for part in _texts(entry)]
        return " ".join("\n".join([str(self.former), *said]).split())

    @cached_property
    def names(self) -> frozenset[str]:
        """The names and words of the text, in lower case."""
        text = self.text.casefold()
        return frozenset(token.strip(".-@") for token in _TOKEN.findall(text)) | frozenset(_PART.findall(text))

    @cached_property
    def spoken(self) -> list[list[Sentence]]:
        """What people wrote themselves, parted where something is pasted."""
        said = (one for one in self._entries if one.seq in self._people)
        read_of_people = (read(text_of(one.message.get("content")), "person") for one in said)
        passages = (part for sentences in read_of_people for part in groupby(sentences, lambda one: one.worth > PASTED))
        return [list(passage) for is_own, passage in passages if is_own]

    def holds(self, name: str) -> bool:
        """True if a name, or each part of it, is in the text."""
        segments = (segment.strip(".-@") for segment in _SEGMENT.split(name.casefold()))
        return all(
            segment in self.names
            or _NUMBERS.fullmatch(segment)  # of lines
            or all(map(self._is_known, _PART.findall(segment) or (segment,)))
            for segment in segments
            if len(segment) >= 3
        )

    def _is_known(self, part: str) -> bool:
        """True for a word of the text, and the first digits of a hash in the text."""
        if part in self.names:
            return True
        at = bisect_left(self._hashes, part)
        return bool(_HASH.fullmatch(part)) and at < len(self._hashes) and self._hashes[at].startswith(part)

    @cached_property
    def _hashes(self) -> list[str]:
        return sorted(name for name in self.names if _HASH.fullmatch(name))

    def quotes(self, words: str) -> bool:
        """True if words are in the text; words that an ellipsis leaves out may be missing."""
        return all(part in self.text for part in _ELLIPSIS.split(" ".join(words.split())) if part)

    def sentences(self, words: str) -> str:
        """Return the whole sentences of a person that words are from; empty if there are none.

        A part of a sentence may demand what the sentence forbids.
        """
        wanted = single_line(words).strip()
        found = next(filter(None, (_sentences_with(wanted, passage) for passage in reversed(self.spoken))), "")
        of_person = (line.text for line in self.former.lines if line.section == "person")
        return found or (words if any(wanted in text for text in of_person) else "")


def checked(given: Iterable[tuple[Section, str]], shown: Shown) -> tuple[Text, Counter[str]]:
    """Return the text of an answer, and how many of its lines do not count, since the history does not show them.

    The reasons are ``tag`` (of ours), ``quotation`` and ``name`` (not shown), ``length``, ``person`` (a wish without
    the words of one), ``evidence`` (a finished task without a result) and ``empty``.

    Raises:
        RejectedAnswer: no line is left.
    """
    known = set(shown.former.lines)
    lines = [line if line in known else _checked(line, shown) for line in (Line(*one) for one in given)]
    kept = dict.fromkeys(line for line in lines if isinstance(line, Line))
    if not kept:
        raise RejectedAnswer("nothing of it is shown by the history")
    text = Text(tuple(sorted(kept, key=lambda line: SECTIONS.index(line.section))))
    return text, Counter(line for line in lines if not isinstance(line, Line))


def _checked(line: Line, shown: Shown) -> Line | str:
    if escape_tags(line.text) != line.text:  # it could pose as the end or the beginning of a record
        return "tag"
    text = _GROUP.sub(lambda group: _known_marks(group[1], shown), line.text)
    of_person = False
    for quoted in list(_QUOTED.finditer(text)):
        if line.section != "person":
            if not shown.quotes(quoted[1]):
                return "quotation"
            continue
        whole = shown.sentences(quoted[1])
        if not whole:
            return "quotation"
        of_person = True
        text = text.replace(quoted[0], f'"{whole}"')
    if len(text) > 3 * MAX_CHARS:
        return "length"
    if not line.is_next and not all(map(shown.holds, identifiers(_GROUP.sub("", text), _MOST_NAMES))):
        return "name"
    line = Line(line.section, text.strip())
    if line.section == "person" and not (of_person or shown.people.intersection(line.marks)):
        return "person"
    if line.is_done and not shown.evident.intersection(line.marks):
        return "evidence"
    return line if line.text else "empty"


def _known_marks(group: str, shown: Shown) -> str:
    marks = [found[0] for found in MARK.finditer(group) if int(found[1]) in shown.marks]
    return f" ({', '.join(marks)})" if marks else ""


def _texts(entry: Entry) -> Iterator[str]:
    yield text_of(entry.message.get("content"))
    for call in calls_of(entry.message):
        yield from (call.name, arguments_text(call))
        yield _ESCAPED.sub(lambda found: " " if found[1] in "nrt" else found[1], json_text(arguments_of(call)))
    if entry.answered_ids:
        for result in results_of(entry.message):
            yield read_escapes(result_text(result.content))


def _sentences_with(words: str, spoken: Sequence[Sentence]) -> str:
    """Return the sentences that words are from, on one line; empty if the words are not among them."""
    start = "".join(sentence.text for sentence in spoken).find(words) if words else -1
    if start < 0:
        return ""
    ends = accumulate(len(sentence.text) for sentence in spoken)
    placed = [(sentence.text, end) for sentence, end in zip(spoken, ends, strict=True)]
    return "".join(text for text, end in placed if start < end and end - len(text) < start + len(words)).strip()
