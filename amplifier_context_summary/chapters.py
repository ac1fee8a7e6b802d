"""Putting the summary text into chapters: the last of the strategies that fold.

The digest has written its chapters when this strategy runs. Each line of the newest text goes into the chapter of the
message which the line names last; open tasks and the next step go into the newest chapter, and only if no round was
folded after the text. The digest's entries are condensed to make room: a chapter never becomes larger, and people's
words in it come first. A chapter whose lines stay the same stays byte for byte as it is. Without a record that holds,
the draft is returned as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from amplifier_context_core.compaction.checkpoint import ChapterText, DigestEntry, Draft, Segment
from amplifier_context_core.compaction.condensing import condense
from amplifier_context_core.compaction.digest import with_texts
from amplifier_context_core.compaction.strategies import Goal, Strategy
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.tokens import TokenCounter
from amplifier_context_core.rendering.quoting import single_line
from amplifier_context_core.view.chapter_carriers import carrier_of

from .records import Record, Records
from .text import SECTIONS, FileUse, Line

TEXT_SHARE = 0.5  # of a chapter's tokens: what the text may take of it at most; the digest keeps the rest
_TRIES = (1.0, 0.85, 0.7)  # of the room beside the text: condensing aims in characters and is measured in tokens
_SMALLER = (1.0, 0.5, 0.25)  # of the room of the text, tried in this order
_HEAD = 20  # tokens of what is said once in a text beside its lines, about
_PERSON = "person"  # `Fact.speaker` of people's words
_HEADS: Mapping[str, str] = {
    "person": "What the person wants:",
    "work": "Where the work stood:",
    "findings": "Found out and decided:",
    "files": "Files:",
    "values": "Exact values:",
}


class TextInChapters(Strategy):
    """Give chapters the lines of the summary text.

    Args:
        records: of the session.
        history: of the session.
    """

    name: ClassVar[str] = "summary"

    def __init__(self, records: Records, history: History | None = None) -> None:
        self.history = history
        self._records = records
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
        chapters = [segment for segment in draft.segments if segment.chapter and carrier_of(segment) is None]
        newest = max((segment.last for segment in draft.segments if segment.chapter), default=0)
        record = next((one for one in reversed(self._held) if one.upto <= newest), None)
        if record is None or not record.text.lines:
            return draft
        lines = [line for line in record.text.lines if record.upto == newest or not line.is_task]
        written = dict(_written(chapters, lines, record, goal.counter))
        return draft.with_segments(written.get(segment.first, segment) for segment in draft.segments)


def _written(
    chapters: Sequence[Segment], lines: Sequence[Line], record: Record, counter: TokenCounter
) -> Iterator[tuple[int, Segment]]:
    """Yield each chapter, by its lowest seq, with the lines of its range and those that found no room in older ones."""
    left = list(lines)
    before = 0
    for index, segment in enumerate(chapters):
        is_newest = index == len(chapters) - 1
        own = [line for line in left if is_newest or (line.place <= segment.last and not line.is_task)]
        files = [use for use in record.text.files if before < int(use.mark[1:]) <= segment.last]
        before = segment.last
        new, shown = with_lines(segment, own, files, counter)
        left = [line for line in left if line not in shown]
        yield segment.first, segment if new == segment else new


def with_lines(
    segment: Segment, lines: Sequence[Line], files: Sequence[FileUse], counter: TokenCounter
) -> tuple[Segment, Sequence[Line]]:
    """Return a chapter with lines of a text before its entries, and the lines that found room.

    What the digest says of people's words comes first: the text and the other entries share the room beside it.

    Args:
        segment: the chapter; it does not become larger than the digest's.
        lines: those that may be in it, and no others.
        files: that its calls touched.
        counter: text to tokens.
    """
    chapter = segment.chapter
    if chapter is None:
        return segment, ()
    plain = with_texts(segment, (), None, counter, "fold") if chapter.texts else segment
    people, others = _parted(chapter.entries, counter)
    free = plain.tokens - sum(entry.tokens for entry in people.values())
    for part in _SMALLER if lines else ():
        room = int(min(plain.tokens * TEXT_SHARE, free) * part) - _HEAD
        chosen = _chosen(lines, counter, room)
        if not chosen:
            break
        text = ChapterText(segment.first, segment.last, _worded(chosen, files, counter, room))
        for rest in _in_less_room(others, free - counter(text.text), counter):
            beside = _joined(chapter.entries, people, {entry.first: entry for entry in rest}, counter)
            new = with_texts(segment, (text,), beside, counter, TextInChapters.name)
            if new.tokens <= plain.tokens:
                return new, chosen
    return plain, ()


def _chosen(lines: Sequence[Line], counter: TokenCounter, room: int) -> list[Line]:
    """Return the lines that fit into `room` tokens, those worth most first and newest first, in their order."""
    order = sorted(range(len(lines)), key=lambda index: (-lines[index].worth, -lines[index].place, index))
    chosen: set[int] = set()
    for index in order:
        cost = counter(single_line(lines[index].text)) + 1
        if cost <= room:
            room -= cost
            chosen.add(index)
    return [line for index, line in enumerate(lines) if index in chosen]


def _worded(lines: Sequence[Line], files: Sequence[FileUse], counter: TokenCounter, room: int) -> str:
    """Return lines under headings, the newest tasks last, and the files if they fit."""
    worded = [f"In a model's words, as of m{max(line.place for line in lines)}:"]
    for section in sorted(SECTIONS, key=lambda section: section == "work"):
        said = [single_line(line.text) for line in lines if line.section == section]
        worded += [_HEADS[section], *said] if said else []
    so_far = "\n".join(worded)
    for use, verb in (("written", "Files written: "), ("run", "Files run: "), ("read", "Files read: ")):
        paths = [f"{one.path} ({one.mark})" for one in files if one.chief_use == use and one.path not in so_far]
        line = verb + ", ".join(paths)
        if paths and counter("\n".join([*worded, line])) <= room:
            worded.append(line)
    return "\n".join(worded)


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


def authors_of(chapters: Sequence[Segment], records: Sequence[Record], newest: int) -> list[dict[str, Any]]:
    """Return for each chapter what wrote it, what that cost, and how old it is, as plain data.

    ``writer`` is ``digest`` or the name of the model, ``cost`` that of the calls for it, in prices of a plain input
    token of the session, ``messages_since`` the messages that came after what the text knows.

    Args:
        chapters: of a view.
        records: that hold, the oldest first.
        newest: highest seq of the history.
    """
    upto = max((segment.last for segment in chapters), default=0)
    record = next((one for one in reversed(records) if one.upto <= upto), None)
    listed: list[dict[str, Any]] = []
    for segment in chapters:
        is_written = carrier_of(segment) is not None or bool(segment.chapter and segment.chapter.texts)
        of = record if is_written else None
        listed.append(
            {
                "mark": f"m{segment.first}",
                "to": f"m{segment.last}",
                "writer": (of.writer if of else "") or ("a model" if is_written else "digest"),
                "cost": round(of.cost) if of else 0,
                "messages_since": newest - (of.upto if of else segment.last),
            }
        )
    return listed
