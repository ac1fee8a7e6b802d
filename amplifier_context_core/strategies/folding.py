"""Folding: old rounds become chapters, appended like log segments.

A compaction leaves the chapters that are there byte-identical and adds new ones after them, so that the cached prefix
survives it, until together they outgrow their share and are condensed once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import ClassVar

from ..checkpoint import DigestLine, Draft, Piece
from ..digest import chapter_of, condense, digest_line
from ..identifiers import identifiers
from ..messages import metadata_of, text_of
from .base import Goal, Strategy

_BREATHE = 20  # rounds digested between two breaths of the event loop
_SCANNED = 50_000  # characters of a message that stays, searched for names that need not be said again
_TRIES = 3  # condensings until chapters are within their share: it is aimed at in characters, met in tokens
_LEAST = 0.5  # of themselves: what chapters keep when they are condensed for want of room
_CONDENSED = 0.65  # of their share: what chapters are condensed to, so that it is not needed again at once


class FoldRounds(Strategy):
    """Old rounds become chapters between the messages humans wrote, oldest first, until the goal is met.

    Messages humans wrote are folded too, into the chapters around them, when that was not enough and they hold more
    than the goal leaves them.

    Args:
        line_share: of a round's tokens that its line in the chapter may cost.
    """

    name: ClassVar[str] = "fold"

    def __init__(self, line_share: float = 0.25) -> None:
        if isinstance(line_share, bool) or not 0 < line_share <= 1:
            raise ValueError(f"line_share must be above 0 and at most 1, got {line_share}")
        self.line_share = line_share

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        if not goal.met_by(draft):
            draft = await self._fold(draft, goal, _Rounds(goal))
        if not goal.met_by(draft):
            draft = await self._fold(draft, goal, _Humans(goal, draft))
        return draft

    async def _fold(self, draft: Draft, goal: Goal, choice: _Rounds | _Humans) -> Draft:
        done: list[Piece] = []
        run: list[Piece] = []  # what will stand in one chapter
        tokens = draft.tokens
        freed = 0.0  # about what folding the run will free: all but the share of it that lines may cost
        known: set[str] | None = None
        for seen, piece in enumerate(draft.pieces, 1):
            if seen % _BREATHE == 0:
                await asyncio.sleep(0)
            if tokens > goal.target and choice.takes(piece):
                known = _names_shown(draft.pieces) if known is None else known
                run.append(piece)
                freed += 0 if piece.chapter else piece.tokens * (1 - self.line_share)
                if tokens - freed > goal.target:
                    continue
                piece = None
            freed = 0.0
            tokens += await self._finish(run, done, goal, known, choice)
            if piece is not None:
                done.append(piece)
        await self._finish(run, done, goal, known, choice)
        same = len(done) == len(draft.pieces) and all(a is b for a, b in zip(done, draft.pieces, strict=True))
        return draft if same else draft.with_pieces(done)

    async def _finish(
        self, run: list[Piece], done: list[Piece], goal: Goal, known: set[str] | None, choice: _Rounds | _Humans
    ) -> int:
        """Fold what was gathered, if it is worth it; returns by how many tokens that changed the view."""
        gathered = list(run)
        run.clear()
        if known is not None and choice.worth(gathered):
            return await self._close(gathered, done, goal, known)
        done.extend(gathered)
        return 0

    async def _close(self, run: Sequence[Piece], done: list[Piece], goal: Goal, known: set[str]) -> int:
        before = sum(piece.tokens for piece in run)
        fresh = set(known)
        lines: list[DigestLine] = []
        for seen, piece in enumerate(run, 1):
            if seen % _BREATHE == 0:
                await asyncio.sleep(0)
            if piece.chapter:
                lines.extend(piece.chapter.lines)
            elif piece.round:
                lines.append(
                    digest_line(piece.round, fresh, goal.counter, share=self.line_share, summaries=goal.summaries)
                )
        folded = chapter_piece(
            lines,
            goal,
            left_out=sum(piece.chapter.left_out for piece in run if piece.chapter),
            before=sum(piece.before for piece in run),
            turn=run[0].turn,
            rule=self.name,
            span=(min(piece.first for piece in run), max(piece.last for piece in run)),
        )
        if folded.tokens >= before:  # short messages: a chapter would cost more than they do
            done.extend(run)
            return 0
        known |= fresh
        done.append(folded)
        return folded.tokens - before

    def __repr__(self) -> str:
        return f"FoldRounds(line_share={self.line_share})"


class _Rounds:
    """Fold what no human wrote; chapters that are there stay byte-identical."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal

    def takes(self, piece: Piece) -> bool:
        return self._goal.may_touch(piece) and not piece.is_human and not _is_chapter(piece)

    def worth(self, run: Sequence[Piece]) -> bool:
        return bool(run)


class _Humans:
    """Fold the oldest messages humans wrote, with all around them, down to what the goal leaves them."""

    def __init__(self, goal: Goal, draft: Draft) -> None:
        self._goal = goal
        self._left = sum(piece.tokens for piece in draft.pieces if piece.is_human)

    def takes(self, piece: Piece) -> bool:
        if piece.first <= self._goal.settled:
            return False
        if piece.chapter:
            return not piece.floor
        if not self._goal.may_touch(piece) or _is_chapter(piece):
            return False
        if piece.is_human:
            if self._left <= self._goal.human_tokens:
                return False
            self._left -= piece.tokens
        return True

    def worth(self, run: Sequence[Piece]) -> bool:
        return any(piece.chapter is None for piece in run)


def _is_chapter(piece: Piece) -> bool:
    """Is it a chapter, be it one that came in as a message of a plain list?"""
    return piece.round is None or "chapter" in metadata_of(piece.round.head.message)


def _names_shown(pieces: Sequence[Piece]) -> set[str]:
    """Identifiers that stand in chapters, or in messages humans wrote: they need not be said again."""
    return {
        name
        for piece in pieces
        if piece.chapter or piece.is_human
        for shown in piece.shown
        for name in identifiers(text_of(shown.message.get("content"))[:_SCANNED])
    }


class CondenseChapters(Strategy):
    """When chapters outgrow their share, or leave no room when all else was given, neighbours are joined and condensed,
    the oldest most."""

    name: ClassVar[str] = "condense"

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        for _ in range(_TRIES):
            total = sum(piece.tokens for piece in draft.pieces if piece.chapter)
            room = goal.chapter_tokens if total <= goal.chapter_tokens else int(_CONDENSED * goal.chapter_tokens)
            if goal.is_last_resort and goal.ceiling:
                room = min(room, max(total - (draft.tokens - goal.ceiling), int(_LEAST * total)))
            if total <= room:
                break
            draft = await self._condense(draft, goal, room / total)
        return draft

    async def _condense(self, draft: Draft, goal: Goal, share: float) -> Draft:
        done: list[Piece] = []
        for run in _runs(draft.pieces):
            chapters = [piece.chapter for piece in run if piece.chapter]
            if not chapters:
                done.extend(run)
                continue
            lines = [line for chapter in chapters for line in chapter.lines]
            kept = condense(lines, share, goal.counter)
            await asyncio.sleep(0)
            if len(run) == 1 and kept == lines:
                done.extend(run)
                continue
            done.append(
                chapter_piece(
                    kept,
                    goal,
                    left_out=sum(chapter.left_out for chapter in chapters) + len(lines) - len(kept),
                    before=sum(chapter.before for chapter in chapters),
                    turn=run[0].turn,
                    rule=self.name,
                    span=(run[0].first, run[-1].last),
                )
            )
        same = len(done) == len(draft.pieces) and all(a is b for a, b in zip(done, draft.pieces, strict=True))
        return draft if same else draft.with_pieces(done)


def _runs(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Neighbouring chapters together, and neighbouring other pieces together."""
    for _, run in groupby(pieces, key=lambda piece: piece.chapter is not None):
        yield list(run)


class DropChapters(Strategy):
    """The oldest chapters go while all together outgrow their share, or the budget is at stake.

    A chapter within its share is worth more than the tokens it takes. Originals stay in history.
    """

    name: ClassVar[str] = "drop"

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        tokens = draft.tokens
        chapters = sum(piece.tokens for piece in draft.pieces if piece.chapter)
        kept: list[Piece] = []
        for piece in draft.pieces:
            crowded = chapters > goal.chapter_tokens or (goal.is_last_resort and tokens > goal.budget > 0)
            if piece.chapter and not piece.floor and crowded:
                tokens -= piece.tokens
                chapters -= piece.tokens
            else:
                kept.append(piece)
        return draft if len(kept) == len(draft.pieces) else draft.with_pieces(kept)


def chapter_piece(
    lines: Sequence[DigestLine],
    goal: Goal,
    *,
    left_out: int,
    before: int,
    turn: str,
    rule: str,
    span: tuple[int, int] | None = None,
) -> Piece:
    """The piece of a chapter of these lines."""
    first, last = span or (min(line.first for line in lines), max(line.last for line in lines))
    chapter, shown = chapter_of(lines, goal.counter, left_out=left_out, before=before)
    return Piece(first, last, turn, (shown,), shown.tokens, before, "folded", rule, None, chapter)
