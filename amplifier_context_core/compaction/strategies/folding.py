"""Folding: old rounds become chapters, each added after the former ones.

A compaction adds new chapters after the former ones, which stay byte-identical: the cached prefix survives it. Once
chapters outgrow their share, all of them are condensed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, groupby, islice
from typing import ClassVar

from ...messages.parsing import metadata_of, text_of
from .. import tuning
from ..checkpoint import DigestEntry, Draft, Segment
from ..condensing import condense, only_people, people_tokens, shorten_agent, without_oldest
from ..digest import chapter_of, digest_round
from ..identifiers import MoreNames, names_in
from ..speech import OWN, RULE
from .base import Goal, Strategy

_SCANNED = 50_000  # characters of a message that stays, searched for names that need no second mention
_TRIES = 3  # condensings until chapters are within their share: it is aimed at in characters, met in tokens
_LEAST_GAIN = 0.9  # of the tokens of messages: what a chapter of nothing but people's words aims at, as the last resort
_LEAST_RUN = 500  # tokens of messages: of fewer, the frame and marks of a chapter would take too much
_MIN_KEPT_SHARE = 0.5  # of the tokens of all chapters: what one condensing for want of room leaves at least
_BESIDE_PEOPLE = 1.1  # of the tokens of people's own words: with a little of all else beside them
_CHARS_PER_TOKEN = 4  # of prose


class FoldRounds(Strategy):
    """Fold old rounds into chapters between people's messages, oldest first, until the goal is met.

    Where that is not enough, people's messages beyond the share that the goal leaves them are folded too, into the
    chapters around them.

    Args:
        line_share: share of a round's tokens that the calls and names of its entry may cost.
    """

    name: ClassVar[str] = "fold"

    def __init__(self, line_share: float = 0.25) -> None:
        if isinstance(line_share, bool) or not 0 < line_share <= 1:
            raise ValueError(f"line_share must be above 0 and at most 1, got {line_share}")
        self.line_share = line_share

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        if not goal.met_by(draft):
            draft = self._fold(draft, goal, partial(_takes_round, goal))
        if not goal.met_by(draft):
            draft = self._fold(draft, goal, _takes_people(goal, draft))
        return draft

    def _fold(self, draft: Draft, goal: Goal, takes: Callable[[Segment], bool]) -> Draft:
        done: list[Segment] = []
        run: list[Segment] = []  # what one chapter will replace
        tokens = draft.tokens
        freed = 0.0  # tokens that folding the run will free, about: all but the share that entries may cost
        known: set[str] | None = None
        for segment in (*draft.segments, None):
            if segment is not None and tokens > goal.target and takes(segment):
                run.append(segment)
                freed += 0 if segment.chapter else segment.tokens * (1 - self.line_share)
                if tokens - freed > goal.target:
                    continue
                segment = None
            if any(one.chapter is None for one in run):
                known = _names_shown(draft.segments) if known is None else known
                chapter = self._folded(run, goal, known)
                if chapter is not None:
                    tokens += chapter.tokens - sum(one.tokens for one in run)
                    run = [chapter]
            done += run if segment is None else (*run, segment)
            run, freed = [], 0.0
        return draft.with_segments(done)

    def _folded(self, run: Sequence[Segment], goal: Goal, known: set[str]) -> Segment | None:
        """Return the chapter of a run, and add its names to `known`; None if it would cost more than short messages."""
        before = sum(segment.tokens for segment in run)
        fresh = MoreNames(known)
        lines: list[DigestEntry] = []
        for segment in run:
            if segment.chapter:
                lines.extend(segment.chapter.entries)
            elif segment.round:
                summaries = goal.summaries
                line = digest_round(segment.round, fresh, goal.counter, share=self.line_share, summaries=summaries)
                lines.append(line)
        lines = shorten_agent(lines, int(before * tuning.TUNING.agent_share * _CHARS_PER_TOKEN), goal.counter)
        folded = fold(run, lines, goal, self.name)
        is_tight = goal.is_last_resort and goal.ceiling > 0 and before >= _LEAST_RUN
        if is_tight and folded.tokens >= before:
            # An entry keeps what people wrote whole. Left as messages, the oldest would be dropped with all in them.
            shorter = condense(lines, _LEAST_GAIN * before / folded.tokens, goal.counter)
            folded = fold(run, [entry for entry in shorter if entry is not None], goal, self.name)
        if folded.tokens >= before:
            return None
        known |= fresh.added
        return folded


def _takes_round(goal: Goal, segment: Segment) -> bool:
    """Existing chapters stay byte-identical."""
    return goal.may_touch(segment) and not segment.is_human and not _is_chapter(segment)


def _takes_people(goal: Goal, draft: Draft) -> Callable[[Segment], bool]:
    """Return a predicate, to be asked oldest first: people's messages beyond their share, with all around them."""
    left = sum(segment.tokens for segment in draft.segments if segment.is_human)

    def takes(segment: Segment) -> bool:
        nonlocal left
        if segment.first <= goal.folded_up_to:
            return False
        if segment.chapter:
            return not segment.protected_because
        if not goal.may_touch(segment) or _is_chapter(segment):
            return False
        if segment.is_human:
            if left <= goal.human_tokens:
                return False
            left -= segment.tokens
        return True

    return takes


def _is_chapter(segment: Segment) -> bool:
    """True also for one that came in as a message of a plain list."""
    return segment.round is None or "chapter" in metadata_of(segment.round.head.message)


def _names_shown(segments: Sequence[Segment]) -> set[str]:
    """Return the identifiers in chapters and people's messages, which a new chapter need not repeat."""
    names: set[str] = set()
    for segment in segments:
        if segment.chapter:
            names.update(*(entry.read_names for entry in segment.chapter.entries))
        elif segment.is_human:
            for shown in segment.shown:
                text = text_of(shown.message.get("content"))[:_SCANNED]
                names.update(names_in(text, limit=len(text)))
    return names


class CondenseChapters(Strategy):
    """Join and condense chapters that outgrew their share, or that leave no room when all else was given."""

    name: ClassVar[str] = "condense"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        given = draft
        for _ in range(_TRIES):
            chapters = [segment for segment in draft.segments if segment.chapter]
            total = sum(segment.tokens for segment in chapters)
            is_tight = goal.is_last_resort and draft.tokens > goal.ceiling > 0
            if total <= _room(goal, chapters) and not is_tight:
                break
            people = people_tokens(chapters, goal.counter, OWN)
            most = _room(goal, chapters, people)
            room = _aim(most, people) if total > most else most
            if is_tight:
                room = min(room, max(total - (draft.tokens - goal.ceiling), int(_MIN_KEPT_SHARE * total), people))
            if total <= room:
                break
            draft = self._condense(draft, goal, room / total, OWN if people <= room else RULE)
        # Of a very short chapter to leave a line out costs more than it saves: a line says that one is left out.
        return draft if draft.tokens < given.tokens else given

    def _condense(self, draft: Draft, goal: Goal, share: float, least: float) -> Draft:
        condensed = iter(condense(_entries_of(draft.segments), share, goal.counter, least))
        done: list[Segment] = []
        for _, neighbours in groupby(draft.segments, key=lambda segment: segment.chapter is not None):
            run = list(neighbours)
            old = _entries_of(run)
            kept = [entry for entry in islice(condensed, len(old)) if entry is not None]
            is_same = not old or (len(run) == 1 and kept == old)
            done += run if is_same else [fold(run, kept, goal, self.name)]
        return draft.with_segments(done)


def _room(goal: Goal, chapters: Sequence[Segment], people: int = 0) -> int:
    """Return the tokens that chapters may fill: more the more they replace, or the more people wrote in them."""
    if goal.budget == 0:
        return goal.chapter_tokens
    replaced = sum(segment.original_tokens for segment in chapters)
    of_replaced = tuning.TUNING.chapters_of_replaced * math.sqrt(goal.budget * replaced)
    of_budget = max(tuning.TUNING.chapters * goal.budget, tuning.TUNING.least_chapters)
    wanted = max(of_budget, of_replaced, people / tuning.TUNING.condensed_for_people)
    return min(goal.chapter_tokens, int(wanted))


def _entries_of(segments: Iterable[Segment]) -> list[DigestEntry]:
    return [entry for segment in segments if segment.chapter for entry in segment.chapter.entries]


def _aim(most: int, people: int) -> int:
    """Return the tokens that condensing aims at: a share of the most, or more where people's own words need it."""
    least, larger = (int(share * most) for share in (tuning.TUNING.condensed_share, tuning.TUNING.condensed_for_people))
    return max(least, min(int(_BESIDE_PEOPLE * people), larger))


class DropChapters(Strategy):
    """Drop the oldest chapters while all together outgrow their share, or the view its budget.

    First each is reduced to what people wrote themselves in it, then to the rules of that. Where that leaves the view
    above its budget, the oldest rounds that state no rule go, and only then the oldest rules, as many as needed.
    Chapters within their share stay, for they are worth their tokens. Originals stay in history.
    """

    name: ClassVar[str] = "drop"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        for least in (OWN, RULE):
            draft = self._drop(draft, goal, partial(self._reduced_to_people, least))
        if goal.is_last_resort and goal.budget > 0:
            draft = without_oldest(
                draft, goal.budget, lambda one: one.chapter is None and not people_tokens([one], goal.counter)
            )
        return self._drop(draft, goal, self._without_oldest)

    def _drop(self, draft: Draft, goal: Goal, shrink: Callable[[Segment, int, Goal], Segment | None]) -> Draft:
        """Replace the oldest chapters by `shrink(chapter)` until all fit their share and the view fits its budget."""
        tokens = draft.tokens
        chapters = sum(segment.tokens for segment in draft.segments if segment.chapter)
        kept: list[Segment] = []
        for segment in draft.segments:
            over = chapters - goal.chapter_tokens
            if goal.is_last_resort and goal.budget > 0:
                over = max(over, tokens - goal.budget)
            left: Segment | None = segment
            if segment.chapter and not segment.protected_because and over > 0:
                left = shrink(segment, over, goal)
                freed = segment.tokens - (left.tokens if left else 0)
                tokens -= freed
                chapters -= freed
            if left is not None:
                kept.append(left)
        return draft.with_segments(kept)

    def _reduced_to_people(self, least: float, segment: Segment, over: int, goal: Goal) -> Segment | None:
        """Return None if the chapter holds no sentence of this worth."""
        return self._with(segment, only_people(_entries_of([segment]), goal.counter, least), goal)

    def _without_oldest(self, segment: Segment, over: int, goal: Goal) -> Segment | None:
        """Leave out so many entries that the chapter is `over` tokens smaller; return None if all go."""
        entries = _entries_of([segment])
        ends = list(accumulate(entry.tokens for entry in entries))
        freed = over
        while True:  # a line that counts what is left out costs tokens too, so one try may free too little
            kept = [entry for entry, end in zip(entries, ends, strict=True) if end > freed]
            left = self._with(segment, kept, goal)
            if left is None or (missing := left.tokens - (segment.tokens - over)) <= 0:
                return left
            freed += missing

    def _with(self, segment: Segment, entries: Sequence[DigestEntry], goal: Goal) -> Segment | None:
        if not entries:
            return None
        folded = fold([segment], entries, goal, self.name)
        return folded if folded.tokens < segment.tokens else segment


def fold(segments: Sequence[Segment], entries: Sequence[DigestEntry], goal: Goal, rule: str) -> Segment:
    """Return the chapter that takes the place of neighbouring segments: the digest's, without texts of other authors.

    Args:
        segments: rounds and earlier chapters, in the order of the draft, at least one.
        entries: one for each round that it describes, in order; it counts the other rounds as left out.
        rule: name of the strategy.
    """
    rounds = sum(one.chapter.left_out + len(one.chapter.entries) if one.chapter else 1 for one in segments)
    span = (min(segment.first for segment in segments), max(segment.last for segment in segments))
    chapter, shown = chapter_of(
        entries,
        goal.counter,
        left_out=rounds - len(entries),
        original_tokens=sum(segment.original_tokens for segment in segments),
        span=span,
    )
    turn = segments[0].turn
    return Segment(*span, turn, (shown,), shown.tokens, chapter.original_tokens, "folded", rule, None, chapter)
