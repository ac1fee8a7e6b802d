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
from ..messages import text_of
from .base import Goal, Strategy

_BREATHE = 200  # rounds digested between two breaths of the event loop
_SCANNED = 50_000  # characters of a message that stays, searched for names that need not be said again
_CONDENSED = 0.8  # of their share: what chapters are condensed to, so that it is not needed again at once


class FoldRounds(Strategy):
    """Old rounds become chapters between the messages humans wrote; those are folded only when that was not enough.

    Args:
        line_share: of a round's tokens that its line in the chapter may cost.
    """

    name: ClassVar[str] = "fold"

    def __init__(self, line_share: float = 0.25) -> None:
        if not 0 < line_share <= 1:
            raise ValueError(f"line_share must be above 0 and at most 1, got {line_share}")
        self.line_share = line_share

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        for with_humans in (False, True):
            if goal.met_by(draft):
                break
            draft = await self._fold(draft, goal, with_humans)
        return draft

    async def _fold(self, draft: Draft, goal: Goal, with_humans: bool) -> Draft:
        def foldable(piece: Piece) -> bool:
            return goal.may_touch(piece) and (with_humans or not piece.is_human or piece.chapter is not None)

        known: set[str] = {
            name
            for piece in draft.pieces
            if piece.chapter or piece.is_human
            for shown in piece.shown
            for name in identifiers(text_of(shown.message.get("content"))[:_SCANNED])
        }
        done: list[Piece] = []
        run: list[Piece] = []  # rounds, and with humans also chapters, that will stand in one chapter
        tokens = draft.tokens
        seen = 0
        rest = iter(draft.pieces)
        for piece in rest:
            if not foldable(piece) or (piece.chapter and not with_humans):
                tokens += self._close(run, done, goal, known)
                done.append(piece)
                continue
            run.append(piece)
            seen += 1
            if seen % _BREATHE == 0:
                await asyncio.sleep(0)
            # What folding this run will leave, about: the share of it that lines may cost.
            expected = sum(p.tokens if p.chapter else p.tokens * (1 - self.line_share) for p in run if not p.chapter)
            if tokens - expected <= goal.target:
                tokens += self._close(run, done, goal, known)
                if tokens <= goal.target:
                    done.extend(rest)
        self._close(run, done, goal, known)
        if len(done) == len(draft.pieces) and all(a is b for a, b in zip(done, draft.pieces, strict=True)):
            return draft
        return draft.with_pieces(done)

    def _close(self, run: list[Piece], done: list[Piece], goal: Goal, known: set[str]) -> int:
        """Fold what was gathered; returns by how many tokens that changed the view (never above 0)."""
        if not run:
            return 0
        before = sum(piece.tokens for piece in run)
        added: set[str] = set()
        lines: list[DigestLine] = []
        fresh = set(known)
        left_out = stood_for = 0
        for piece in run:
            if piece.chapter:
                lines.extend(piece.chapter.lines)
                left_out += piece.chapter.left_out
                stood_for += piece.chapter.before
            elif piece.round:
                line = digest_line(piece.round, fresh, goal.counter, share=self.line_share, summaries=goal.summaries)
                lines.append(line)
                stood_for += piece.before
        added = fresh - known
        folded = chapter_piece(lines, goal, left_out=left_out, before=stood_for, turn=run[0].turn, rule=self.name)
        if folded.tokens < before:
            known |= added
            done.append(folded)
            change = folded.tokens - before
        else:  # short messages: a chapter would cost more than they do
            done.extend(run)
            change = 0
        run.clear()
        return change

    def __repr__(self) -> str:
        return f"FoldRounds(line_share={self.line_share})"


class CondenseChapters(Strategy):
    """When chapters outgrow their share, neighbours are joined and all are condensed, the oldest most."""

    name: ClassVar[str] = "condense"

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        total = sum(piece.tokens for piece in draft.pieces if piece.chapter)
        if total <= goal.chapter_tokens:
            return draft
        share = _CONDENSED * goal.chapter_tokens / total
        done: list[Piece] = []
        for run in _runs(draft.pieces):
            chapters = [piece.chapter for piece in run if piece.chapter]
            if not chapters:
                done.extend(run)
                continue
            lines = [line for chapter in chapters for line in chapter.lines]
            kept = condense(lines, share, goal.counter)
            await asyncio.sleep(0)
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
        return draft.with_pieces(done)


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
            if piece.chapter and not piece.floor and (chapters > goal.chapter_tokens or tokens > goal.budget > 0):
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
