"""Strategies that drop whole rounds: simple, lossy, and what other frameworks' users know."""

from __future__ import annotations

from typing import Any, ClassVar

from ..checkpoint import Draft
from ..messages import Message
from ..tokens import PER_MESSAGE_OVERHEAD, TOKENS_PER_MEDIA, TokenCounter, approx_token_counter
from .base import Goal, Score, Strategy, at_least, draft_of


class TrimRounds(Strategy):
    """Keep the system prompt, the task, and the newest `max_rounds` tool rounds; drop older tool rounds.

    Args:
        max_rounds: tool rounds kept, at least 0. Other messages are not counted and stay.
    """

    name: ClassVar[str] = "trim"

    def __init__(self, max_rounds: int) -> None:
        self.max_rounds = at_least(0, max_rounds, "max_rounds")

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        tools = [i for i, piece in enumerate(draft.pieces) if piece.round is not None and piece.round.is_tool_round]
        old = {i for i in tools[: max(0, len(tools) - self.max_rounds)] if not draft.pieces[i].floor}
        return draft.with_pieces(p for i, p in enumerate(draft.pieces) if i not in old) if old else draft

    def __repr__(self) -> str:
        return f"TrimRounds(max_rounds={self.max_rounds})"


class FitContextWindow(Strategy):
    """Keep the transcript under a number of tokens: system prompt and task, then as many of the newest rounds as fit.

    If even these and the newest round are too large, that minimum is kept all the same: put `TruncateToolOutputs`
    before it to shrink large outputs first.

    Args:
        max_tokens: tokens of the window.
        counter: text to tokens.
        reserve_tokens: tokens of the window left for the model's response.
        per_message_overhead: tokens of framing a message.
        tokens_per_media: tokens of an image or file whose size is not known.
    """

    name: ClassVar[str] = "fit"

    def __init__(
        self,
        max_tokens: int,
        counter: TokenCounter = approx_token_counter,
        *,
        reserve_tokens: int = 0,
        per_message_overhead: int = PER_MESSAGE_OVERHEAD,
        tokens_per_media: int = TOKENS_PER_MEDIA,
    ) -> None:
        self.max_tokens = at_least(1, max_tokens, "max_tokens")
        self.reserve_tokens = at_least(0, reserve_tokens, "reserve_tokens")
        self._counter = counter
        self._counting: dict[str, Any] = {
            "per_message_overhead": per_message_overhead,
            "tokens_per_media": tokens_per_media,
        }

    @property
    def counter(self) -> TokenCounter:
        return self._counter

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        room = self.max_tokens - self.reserve_tokens
        if draft.tokens <= room:
            return draft
        pieces = draft.pieces
        used = draft.fixed + sum(piece.tokens for piece in pieces if piece.floor)
        cut = len(pieces)  # the newest rounds from here on are kept
        while cut > 0:
            piece = pieces[cut - 1]
            cost = 0 if piece.floor else piece.tokens
            if used + cost > room and cut < len(pieces):
                break
            used += cost
            cut -= 1
        kept = [piece for index, piece in enumerate(pieces) if index >= cut or piece.floor]
        return draft if len(kept) == len(pieces) else draft.with_pieces(kept)

    async def compact(self, messages: list[Message]) -> list[Message]:
        head, draft = draft_of(messages, self._counter, **self._counting)
        done = await self.apply(draft, self.goal(draft))
        return messages if done is draft else [*head, *done.messages]

    def __repr__(self) -> str:
        return f"FitContextWindow(max_tokens={self.max_tokens}, reserve_tokens={self.reserve_tokens})"


class KeepImportant(Strategy):
    """Drop the rounds of least importance first, in the order of history otherwise; a round's score is its highest.

    Inside a ladder it drops until the goal is met; by itself it keeps the `keep` most important rounds.

    Args:
        score: importance of one message; higher is more important.
        keep: rounds kept when run by itself.
    """

    name: ClassVar[str] = "important"

    def __init__(self, score: Score, keep: int = 20) -> None:
        if not callable(score):
            raise ValueError(f"score must be callable, got {type(score).__name__}")
        self.score = score
        self.keep = at_least(0, keep, "keep")

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        alone = goal.budget == 0
        loose = [i for i, piece in enumerate(draft.pieces) if goal.may_touch(piece) and piece.round is not None]
        ranked = sorted(loose, key=lambda i: (max(self.score(s.message) for s in draft.pieces[i].shown), i))
        gone: set[int] = set()
        tokens = draft.tokens
        for index in ranked:
            if len(loose) - len(gone) <= self.keep if alone else tokens <= goal.target:
                break
            gone.add(index)
            tokens -= draft.pieces[index].tokens
        return draft.with_pieces(p for i, p in enumerate(draft.pieces) if i not in gone) if gone else draft

    def __repr__(self) -> str:
        return (
            f"KeepImportant(score={getattr(self.score, '__qualname__', type(self.score).__name__)}, keep={self.keep})"
        )
