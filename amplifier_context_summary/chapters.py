"""Putting the summary text into a view: the last of the strategies that fold.

The digest has written its chapters when this strategy runs. The newest text goes into the newest chapter, whole; its
open tasks and its next step only if no round was folded after it. The digest's entries of what the text knows are
condensed to make room, the newest first: older chapters stay byte for byte as long as that is enough. What the digest
says of people's words stays. Together the chapters count exactly as many tokens as the digest's, and before the ladder
runs they are made the digest's again (`PlainChapters`): so each compaction decides as it would without a model. Without
a record that holds, the draft is returned as it came.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from amplifier_context_core.compaction.checkpoint import ChapterText, DigestEntry, Draft, Segment
from amplifier_context_core.compaction.condensing import condense
from amplifier_context_core.compaction.digest import with_texts
from amplifier_context_core.compaction.strategies import Goal, Strategy
from amplifier_context_core.messages.tokens import TokenCounter, count_message_tokens
from amplifier_context_core.rendering.quoting import single_line
from amplifier_context_core.view.chapter_carriers import carrier_of

from .records import Record, Records
from .text import SECTIONS, FileUse, Line

_TEXT_SHARE = 0.5  # of what the digest says of what the text knows, beside people's words: what it may take of it
_MOST_TAKEN = 0.75  # of one chapter's share in that: the newest chapter does not lose all
_SMALLER = (1.0, 0.5, 0.25)  # of the room of the text, tried in this order
_HEAD = 12  # tokens of the first line of a text, about
_PERSON = "person"  # `Fact.speaker` of people's words
_HEADS: Mapping[str, str] = {
    "person": "The person:",
    "work": "The work:",
    "findings": "Found out:",
    "files": "Files:",
    "values": "Values:",
}


class TextInChapters(Strategy):
    """Put the summary text into the newest chapter."""

    name: ClassVar[str] = "summary"

    def __init__(self, records: Records) -> None:
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
        self._held = tuple(await self._records.verified())

    def record_for(self, draft: Draft) -> Record | None:
        """Return the record whose text belongs into the chapters of a draft; None if there is none."""
        newest = _newest(draft)
        return next((one for one in reversed(self._held) if one.upto <= newest and one.text.lines), None)

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        record, newest = self.record_for(draft), _newest(draft)
        if record is None:
            return draft
        lines = [line for line in record.text.lines if record.upto == newest or not line.is_task]
        chapters = [segment for segment in draft.segments if segment.chapter and carrier_of(segment) is None]
        if not chapters:
            return draft
        room = sum(segment.tokens for segment in chapters)
        written = with_text(chapters, record.upto, lines, record.text.files, goal.counter, room)
        new = {old.first: old if one == old else one for old, one in zip(chapters, written, strict=True)}
        return draft.with_segments(new.get(segment.first, segment) for segment in draft.segments)


def _newest(draft: Draft) -> int:
    return max((segment.last for segment in draft.segments if segment.chapter), default=0)


class PlainChapters(Strategy):
    """Make the chapters the digest's again, before the ladder decides."""

    name: ClassVar[str] = "summary"

    def __init__(self, texts: TextInChapters) -> None:
        self._texts = texts

    def __repr__(self) -> str:
        """Name the class alone."""
        return f"{type(self).__name__}()"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        if self._texts.record_for(draft) is None:
            return draft
        plain = draft.with_segments(_plain(segment, goal.counter) for segment in draft.segments)
        return plain if plain.tokens <= draft.tokens else draft


def _plain(segment: Segment, counter: TokenCounter) -> Segment:
    chapter = segment.chapter
    if chapter is None or carrier_of(segment) is not None or (not chapter.texts and chapter.beside is None):
        return segment
    return with_texts(segment, (), None, counter, "fold")


def with_text(
    chapters: Sequence[Segment],
    upto: int,
    lines: Sequence[Line],
    files: Sequence[FileUse],
    counter: TokenCounter,
    most: int,
) -> list[Segment]:
    """Return chapters with a text in the newest one; the digest's, if it finds no room.

    Args:
        chapters: at least one.
        upto: highest seq that the text knows.
        lines: of the text.
        files: that calls touched.
        counter: text to tokens.
        most: tokens that the chapters may have together; with a text they count as many as the digest's, or these.
    """
    plain = [_plain(segment, counter) for segment in chapters]
    total = min(most, sum(segment.tokens for segment in plain))
    parts = [_parted(segment.chapter.entries if segment.chapter else (), counter, upto) for segment in plain]
    room = _room(parts)
    head = f"As of m{upto}, in a model's words:"
    for part in _SMALLER if lines else ():
        chosen = _chosen(lines, counter, int(room * part) - _HEAD)
        if not chosen:
            break
        text = ChapterText(plain[-1].first, plain[-1].last, _worded(head, chosen, files, counter, int(room * part)))
        made = _in_less_room(plain, parts, text, counter, total)
        if sum(map(_shown_tokens(counter), made)) <= total:
            slack = total - sum(segment.tokens for segment in made[:-1])
            host = made[-1].chapter
            beside = host.beside if host else None
            return [*made[:-1], with_texts(plain[-1], (text,), beside, counter, TextInChapters.name, slack)]
    return plain if sum(segment.tokens for segment in plain) <= most else list(chapters)


def text_room(segments: Sequence[Segment], counter: TokenCounter) -> int:
    """Return the tokens that a text may take of the chapters among segments."""
    return _room([_parted(one.chapter.entries, counter) for one in segments if one.chapter])


def _room(parts: Sequence[tuple[Mapping[int, DigestEntry], Sequence[DigestEntry]]]) -> int:
    return int(_TEXT_SHARE * sum(entry.tokens for _, others in parts for entry in others))


def _shown_tokens(counter: TokenCounter) -> Callable[[Segment], int]:
    return lambda segment: sum(count_message_tokens(one.message, counter) for one in segment.shown)


def _in_less_room(
    plain: Sequence[Segment],
    parts: Sequence[tuple[Mapping[int, DigestEntry], Sequence[DigestEntry]]],
    text: ChapterText,
    counter: TokenCounter,
    total: int,
) -> list[Segment]:
    """Return chapters, the newest with a text, condensed until they fit, if they can."""
    size = _shown_tokens(counter)
    made = [*plain[:-1], with_texts(plain[-1], (text,), None, counter, TextInChapters.name)]
    over = sum(map(size, made)) - total
    for index in range(len(made) - 1, -1, -1):
        kept, others = parts[index]
        had = sum(entry.tokens for entry in others)
        if over <= 0 or not had:
            continue
        aim = max(1 - _MOST_TAKEN, 1 - 1.1 * over / had)
        rest = [entry for entry in condense(others, aim, counter) if entry is not None]
        segment = plain[index]
        beside = _joined(segment.chapter.entries if segment.chapter else (), kept, rest, counter)
        texts = (text,) if index == len(made) - 1 else ()
        new = with_texts(segment, texts, beside, counter, TextInChapters.name if texts else segment.rule)
        over -= size(made[index]) - size(new)
        made[index] = new
    return made


def _chosen(lines: Sequence[Line], counter: TokenCounter, room: int) -> list[Line]:
    """Return the lines that fit into `room` tokens, those worth most first, in their order."""
    order = sorted(range(len(lines)), key=lambda index: (-lines[index].worth, index))
    chosen: set[int] = set()
    headed: set[str] = set()
    for index in order:
        section = lines[index].section
        head = 0 if section in headed else counter(_HEADS[section]) + 1
        cost = head + counter(single_line(lines[index].text)) + 1
        if cost <= room:
            room -= cost
            chosen.add(index)
            headed.add(section)
    return [line for index, line in enumerate(lines) if index in chosen]


def _worded(head: str, lines: Sequence[Line], files: Sequence[FileUse], counter: TokenCounter, room: int) -> str:
    """Return lines under headings, the work last, and before it the files if they fit."""
    worded: list[str] = []
    for section in (*(section for section in SECTIONS if section != "work"), "work"):
        said = [single_line(line.text) for line in lines if line.section == section]
        worded += [_HEADS[section], *said] if said else []
    so_far = "\n".join(worded)
    for use in ("read", "written"):
        paths = [f"{one.path} ({one.mark})" for one in files if one.use == use and one.path not in so_far]
        line = single_line(f"Files {use}: {', '.join(paths)}")
        if paths and counter("\n".join([*worded, line])) <= room:
            worded.insert(0, line)
    return "\n".join([head, *worded])


def _parted(
    entries: Sequence[DigestEntry], counter: TokenCounter, upto: float = math.inf
) -> tuple[dict[int, DigestEntry], list[DigestEntry]]:
    """Return what entries say of people's words and of rounds after a seq, by their lowest seq, and all else."""
    kept: dict[int, DigestEntry] = {}
    others: list[DigestEntry] = []
    for entry in entries:
        spoken = [fact for fact in entry.facts if fact.speaker == _PERSON or entry.last > upto]
        rest = [fact for fact in entry.facts if fact.speaker != _PERSON and entry.last <= upto]
        if spoken:
            kept[entry.first] = entry.with_facts(spoken, counter)
        if rest:
            others.append(entry.with_facts(rest, counter) if spoken else entry)
    return kept, others


def _joined(
    entries: Sequence[DigestEntry],
    kept: Mapping[int, DigestEntry],
    rest: Sequence[DigestEntry],
    counter: TokenCounter,
) -> list[DigestEntry]:
    """Return the entries of a chapter from both parts; those of which nothing is left are out."""
    joined: list[DigestEntry] = []
    others = {entry.first: entry for entry in rest}
    for entry in entries:
        spoken, other = kept.get(entry.first), others.get(entry.first)
        if spoken and other:
            joined.append(entry.with_facts((*spoken.facts, *other.facts), counter))
        elif part := spoken or other:
            joined.append(part)
    return joined


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
