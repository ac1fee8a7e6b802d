"""Putting the summary state into chapters: the last of the strategies that fold.

The digest has written its chapters when this strategy runs. It gives a chapter the part of the state that its own
range brought, and makes room for it by condensing the digest's entries. The chapter never becomes larger, and people's
rules stay in it word for word. A chapter that has its text already stays byte for byte as it is. Without a record that
holds, the draft is returned as it came: the view is the digest's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from amplifier_context_core.compaction.checkpoint import ChapterText, DigestEntry, Draft, Segment
from amplifier_context_core.compaction.condensing import condense
from amplifier_context_core.compaction.digest import with_texts
from amplifier_context_core.compaction.speech import RULE
from amplifier_context_core.compaction.strategies import Goal, Strategy
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.parsing import text_of
from amplifier_context_core.messages.tokens import TokenCounter
from amplifier_context_core.rendering.quoting import single_line
from amplifier_context_core.view.chapter_carriers import carrier_of

from .records import Record, Records
from .state import StateLine

_TEXT_SHARE = 0.5  # of a chapter's tokens: what the state may take of it at most; the digest keeps the rest
_TRIES = (1.0, 0.85, 0.7)  # of the room beside the text: condensing aims in characters and is measured in tokens
_SMALLER = (1.0, 0.5, 0.25)  # of the room of the text, tried in this order
_PERSON = "person"  # `Fact.speaker` of people's words


class StateInChapters(Strategy):
    """Give chapters the part of the summary state that their range brought.

    Args:
        records: of the session.
        history: of the session.
        max_tokens: of the text of one chapter.
    """

    name: ClassVar[str] = "summary"

    def __init__(self, records: Records, history: History | None = None, max_tokens: int = 4_000) -> None:
        self.history = history
        self._records = records
        self._max_tokens = max_tokens
        self._held: Sequence[Record] = ()

    def __repr__(self) -> str:
        """Name the class alone: what it puts into a view depends on the session."""
        return f"{type(self).__name__}()"

    async def prepare(self) -> None:
        """Find the records that hold, for the next calls of `apply`.

        Raises:
            StoreError: the store cannot be read.
        """
        if self.history is not None:
            self._held = tuple(await self._records.verified(self.history))

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        last = max((segment.last for segment in draft.segments if segment.chapter), default=0)
        record = next((one for one in reversed(self._held) if one.upto <= last), None)
        if record is None:
            return draft
        segments: list[Segment] = []
        rules: str | None = None
        for segment in draft.segments:
            new = segment
            if _wants_text(segment):
                rules = _rules_in(draft) if rules is None else rules
                lines = [line for line in record.state.lines(segment.first, segment.last) if not _is_in(line, rules)]
                if lines:
                    new = written(segment, lines, record, goal.counter, self._max_tokens)
            segments.append(new)
        return draft.with_segments(segments)


def _wants_text(segment: Segment) -> bool:
    """True if it is a chapter without a text of its whole range."""
    if segment.chapter is None or carrier_of(segment) is not None:
        return False
    return [(one.first, one.last) for one in segment.chapter.texts] != [(segment.first, segment.last)]


def written(
    segment: Segment, lines: Sequence[StateLine], record: Record, counter: TokenCounter, max_tokens: int
) -> Segment:
    """Return a chapter with these lines of the state before its entries; the same chapter if they find no room.

    What the digest says of people's words comes first: the text and the other entries share the room beside it.

    Args:
        segment: the chapter; it does not become larger.
        lines: of the state.
        record: that they are of.
        counter: text to tokens.
        max_tokens: of the text.
    """
    chapter = segment.chapter
    if chapter is None:
        return segment
    head = f"As of m{min(record.upto, segment.last)}, in a model's words:"
    people, others = _parted(chapter.entries, counter)
    free = segment.tokens - sum(entry.tokens for entry in people.values())
    for part in _SMALLER:
        room = int(min(max_tokens, segment.tokens * _TEXT_SHARE, free) * part) - counter(head) - 1
        chosen = _chosen(lines, counter, room)
        if not chosen:
            return segment
        text = ChapterText(segment.first, segment.last, "\n".join((head, *chosen)))
        for rest in _in_less_room(others, free - counter(text.text), counter):
            beside = _joined(chapter.entries, people, {entry.first: entry for entry in rest}, counter)
            new = with_texts(segment, (text,), beside, counter, StateInChapters.name)
            if new.tokens <= segment.tokens:
                return new
    return segment


def _parted(entries: Sequence[DigestEntry], counter: TokenCounter) -> tuple[dict[int, DigestEntry], list[DigestEntry]]:
    """Return what entries say of people's words, by their lowest seq, and all else that they say."""
    people: dict[int, DigestEntry] = {}
    others: list[DigestEntry] = []
    for entry in entries:
        spoken = [fact for fact in entry.facts if fact.speaker == _PERSON]
        rest = [fact for fact in entry.facts if fact.speaker != _PERSON]
        if spoken:
            people[entry.first] = entry.with_facts(spoken, counter)
        if rest:
            others.append(entry.with_facts(rest, counter) if spoken else entry)
    return people, others


def _joined(
    entries: Sequence[DigestEntry],
    people: Mapping[int, DigestEntry],
    others: Mapping[int, DigestEntry],
    counter: TokenCounter,
) -> list[DigestEntry]:
    """Return the entries of a chapter from both parts, people's words first; those of which nothing is left are out."""
    joined: list[DigestEntry] = []
    for entry in entries:
        spoken, rest = people.get(entry.first), others.get(entry.first)
        if spoken and rest:
            joined.append(entry.with_facts((*spoken.facts, *rest.facts), counter))
        elif part := spoken or rest:
            joined.append(part)
    return joined


def _in_less_room(entries: Sequence[DigestEntry], room: int, counter: TokenCounter) -> Iterator[Sequence[DigestEntry]]:
    """Yield entries in less and less room (tokens), as they are first if they may fit, at last none."""
    size = sum(entry.tokens for entry in entries)
    if size <= room:
        yield entries
    for share in _TRIES:
        if size and 0 < (aim := room * share / size) < 1:
            yield [entry for entry in condense(entries, aim, counter) if entry is not None]


def _chosen(lines: Sequence[StateLine], counter: TokenCounter, room: int) -> list[str]:
    """Return the lines that fit into `room` tokens, those worth most first, in their order."""
    order = sorted(range(len(lines)), key=lambda index: (-lines[index].worth, -index))
    chosen: set[int] = set()
    for index in order:
        cost = counter(single_line(lines[index].text)) + 1
        if cost <= room:
            room -= cost
            chosen.add(index)
    return [single_line(line.text) for index, line in enumerate(lines) if index in chosen]


def _rules_in(draft: Draft) -> str:
    """Return the rules that a view shows already: in people's messages, and in the digest's entries."""
    spoken: list[str] = []
    for segment in draft.segments:
        if segment.is_human:
            spoken.extend(single_line(text_of(shown.message.get("content"))) for shown in segment.shown)
        for entry in segment.chapter.listed if segment.chapter else ():
            spoken.extend("".join(one.text for one in fact.sentences if one.worth >= RULE) for fact in entry.facts)
    return "\n".join(spoken)


def _is_in(line: StateLine, rules: str) -> bool:
    return bool(line.rule) and single_line(line.rule) in rules
