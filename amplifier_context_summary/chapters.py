"""Putting the summary text into a view: the last of the strategies that fold.

The digest has written its chapters when this strategy runs. The newest text goes into the newest chapter, whole; its
open tasks and its next step only if no round was folded after it. The digest's entries of what the text knows are
condensed to make room, the newest first: older chapters stay byte for byte as long as that is enough. What the digest
says of people's words stays. Together the chapters count exactly as many tokens as the digest's, and before the ladder
runs they are made the digest's again: so each compaction decides as it would without a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from amplifier_context_core.compaction.checkpoint import ChapterText, DigestEntry, Draft, Segment
from amplifier_context_core.compaction.condensing import condense
from amplifier_context_core.compaction.digest import with_texts
from amplifier_context_core.compaction.strategies import Goal, Strategy
from amplifier_context_core.messages.tokens import TokenCounter, count_message_tokens
from amplifier_context_core.rendering.quoting import single_line
from amplifier_context_core.view.candidate import carrier_of

from .records import Record, Records
from .text import HEADS, Text

_TEXT_SHARE = 0.5  # of what the digest says of what the text knows, beside people's words: what it may take of it
_MOST_TAKEN = 0.75  # of one chapter's share in that: the newest chapter does not lose all
_SMALLER = (1.0, 0.5, 0.25)  # of the room of the text, tried in this order
_HEAD = 12  # tokens of the first line of a text, about
_PERSON = "person"  # `Fact.speaker` of people's words

_Parts = list[tuple[DigestEntry | None, DigestEntry | None]]
"""What a chapter says of each round: of people's words and of newer rounds, which stays, and all else."""


class TextInChapters(Strategy):
    """Put the summary text into the newest chapter."""

    name: ClassVar[str] = "summary"

    def __init__(self, records: Records) -> None:
        self._made_with = ""  # the repr: what it puts into a view depends on the session
        self._records = records
        self._held: Sequence[Record] = ()

    async def prepare(self) -> None:
        """Find the records that hold, for the next calls of `apply`.

        Raises:
            StoreError: the store cannot be read.
        """
        self._held = tuple(await self._records.verified())

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        folded = folded_upto(draft.segments)
        record = next((one for one in reversed(self._held) if one.upto <= folded and one.text.lines), None)
        chapters = [segment for segment in draft.segments if segment.chapter and carrier_of(segment) is None]
        if record is None or not chapters:
            return draft
        text = Text(tuple(line for line in record.text.lines if record.upto == folded or not line.is_task))
        written = with_text(chapters, record.upto, text, goal.counter)
        new = {old.first: old if one == old else one for old, one in zip(chapters, written, strict=True)}
        return draft.with_segments(new.get(segment.first, segment) for segment in draft.segments)


def folded_upto(segments: Iterable[Segment]) -> int:
    """Return the highest seq that a chapter covers; 0 without any chapter."""
    return max((segment.last for segment in segments if segment.chapter), default=0)


class PlainChapters(Strategy):
    """Make the chapters the digest's again, before the ladder decides."""

    name: ClassVar[str] = "summary"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        plain = draft.with_segments(_plain(segment, goal.counter) for segment in draft.segments)
        return plain if plain.tokens <= draft.tokens else draft


def _plain(segment: Segment, counter: TokenCounter) -> Segment:
    chapter = segment.chapter
    if chapter is None or carrier_of(segment) is not None or (not chapter.texts and chapter.beside is None):
        return segment
    return with_texts(segment, (), None, counter, "fold")


def with_text(chapters: Sequence[Segment], upto: int, whole: Text, counter: TokenCounter) -> list[Segment]:
    """Return chapters with a text, which knows all up to a seq, in the newest one; the digest's, if it finds no room.

    Together they count no more tokens than before.
    """
    plain = [_plain(segment, counter) for segment in chapters]
    most, of_digest = (sum(segment.tokens for segment in segments) for segments in (chapters, plain))
    total = min(most, of_digest)
    parts = [_parted(segment, counter, upto) for segment in plain]
    room = _room(parts)
    for share in _SMALLER:
        fitted = whole.fitted(counter, int(room * share) - _HEAD)
        if not fitted.lines:
            break
        text = ChapterText(plain[-1].first, plain[-1].last, _worded(f"As of m{upto}, in a model's words:", fitted))
        made = _in_less_room(plain, parts, text, counter, total)
        if sum(_shown_tokens(one, counter) for one in made) <= total:
            slack = total - sum(segment.tokens for segment in made[:-1])
            beside = made[-1].chapter.beside if made[-1].chapter else None
            return [*made[:-1], with_texts(plain[-1], (text,), beside, counter, TextInChapters.name, slack)]
    return plain if of_digest <= most else list(chapters)


def text_room(segments: Sequence[Segment], counter: TokenCounter) -> int:
    """Return the tokens that a text may take of the chapters among segments."""
    return _room([_parted(one, counter) for one in segments])


def _room(chapters: Sequence[_Parts]) -> int:
    return int(_TEXT_SHARE * sum(other.tokens for parts in chapters for _, other in parts if other))


def _shown_tokens(segment: Segment, counter: TokenCounter) -> int:
    return sum(count_message_tokens(one.message, counter) for one in segment.shown)


def _in_less_room(
    plain: Sequence[Segment], parts: Sequence[_Parts], text: ChapterText, counter: TokenCounter, total: int
) -> list[Segment]:
    """Return chapters, the newest with a text, condensed until they fit, if they can."""
    made = [*plain[:-1], with_texts(plain[-1], (text,), None, counter, TextInChapters.name)]
    over = sum(_shown_tokens(one, counter) for one in made) - total
    for index in range(len(made) - 1, -1, -1):
        had = sum(other.tokens for _, other in parts[index] if other)
        if over <= 0 or not had:
            continue
        beside = _condensed(parts[index], max(1 - _MOST_TAKEN, 1 - 1.1 * over / had), counter)
        texts, rule = ((text,), TextInChapters.name) if index == len(made) - 1 else ((), plain[index].rule)
        new = with_texts(plain[index], texts, beside, counter, rule)
        over -= _shown_tokens(made[index], counter) - _shown_tokens(new, counter)
        made[index] = new
    return made


def _parted(segment: Segment, counter: TokenCounter, upto: float = math.inf) -> _Parts:
    parts: _Parts = []
    for entry in segment.chapter.entries if segment.chapter else ():
        stays = [fact for fact in entry.facts if fact.speaker == _PERSON or entry.last > upto]
        rest = [fact for fact in entry.facts if fact.speaker != _PERSON and entry.last <= upto]
        other = entry.with_facts(rest, counter) if stays else entry
        parts.append((entry.with_facts(stays, counter) if stays else None, other if rest else None))
    return parts


def _condensed(parts: _Parts, share: float, counter: TokenCounter) -> list[DigestEntry]:
    condensed = iter(condense([other for _, other in parts if other], share, counter))
    entries: list[DigestEntry] = []
    for stays, other in parts:
        rest = next(condensed) if other else None
        if stays and rest:
            entries.append(stays.with_facts((*stays.facts, *rest.facts), counter))
        elif either := stays or rest:
            entries.append(either)
    return entries


def _worded(head: str, text: Text) -> str:
    worded = [head]
    for section, heading in HEADS.items():
        said = [single_line(line.text) for line in text.lines if line.section == section]
        worded += [heading, *said] if said else []
    return "\n".join(worded)


def authors_of(chapters: Sequence[Segment], records: Sequence[Record], newest: int) -> list[dict[str, Any]]:
    """Return for each chapter of a view what wrote it, what that cost, and how old it is, as plain data.

    ``writer`` is ``digest`` or the name of the model, ``cost`` that of the calls for it, in prices of a plain input
    token of the session, ``messages_since`` the messages that came after what the text knows, up to seq `newest`.
    """
    record = next((one for one in reversed(records) if one.upto <= folded_upto(chapters)), None)
    listed: list[dict[str, Any]] = []
    for segment in chapters:
        is_written = carrier_of(segment) is not None or bool(segment.chapter and segment.chapter.texts)
        writer, cost, known = ("a model" if is_written else "digest"), 0.0, segment.last
        if is_written and record:
            writer, cost, known = record.writer or writer, record.cost, record.upto
        about = {"mark": f"m{segment.first}", "to": f"m{segment.last}", "writer": writer, "cost": round(cost)}
        listed.append({**about, "messages_since": newest - known})
    return listed
