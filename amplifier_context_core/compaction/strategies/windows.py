"""Strategies that drop whole rounds: simple, lossy, and what other frameworks' users know."""

from __future__ import annotations

from typing import ClassVar

from ...messages.tokens import PER_MESSAGE_OVERHEAD, TOKENS_PER_MEDIA, TokenCounter, approx_token_counter
from ..checkpoint import Draft
from .base import Goal, Score, Strategy, at_least


class TrimRounds(Strategy):
    """Keep the system prompt, the task, and the newest `max_rounds` tool rounds; drop older tool rounds.

    Args:
        max_rounds: tool rounds kept, at least 0. Other messages are not counted and stay.
    """

    name: ClassVar[str] = "trim"

    def __init__(self, max_rounds: int) -> None:
        self.max_rounds = at_least(0, max_rounds, "max_rounds")

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        tools = [i for i, segment in enumerate(draft.segments) if segment.round and segment.round.is_tool_round]
        old = {i for i in tools[: max(0, len(tools) - self.max_rounds)] if not draft.segments[i].protected_because}
        return draft.with_segments(segment for i, segment in enumerate(draft.segments) if i not in old)


class FitContextWindow(Strategy):
    """Keep a view within `max_tokens`: the system prompt, the task, and as many of the newest rounds as fit.

    If even these and the newest round are too large, that minimum is kept all the same: put `TruncateToolOutputs`
    before it to shrink large outputs first.

    Args:
        reserve_tokens: of the window, left for the model's response.
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
        overhead, media = per_message_overhead, tokens_per_media
        self.counting = {"counter": counter, "per_message_overhead": overhead, "tokens_per_media": media}

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        room = self.max_tokens - self.reserve_tokens
        if draft.tokens <= room:
            return draft
        segments = draft.segments
        used = draft.fixed + sum(segment.tokens for segment in segments if segment.protected_because)
        cut = len(segments)  # the newest rounds from here on are kept
        while cut > 0:
            segment = segments[cut - 1]
            cost = 0 if segment.protected_because else segment.tokens
            if used + cost > room and cut < len(segments):
                break
            used += cost
            cut -= 1
        return draft.with_segments(
            segment for index, segment in enumerate(segments) if index >= cut or segment.protected_because
        )


class KeepImportant(Strategy):
    """Drop the rounds of least importance first.

    The importance of a round is the highest of its messages; of equal rounds the older goes first. Inside a ladder it
    drops until the goal is met; by itself it keeps the `keep` most important rounds.

    Args:
        score: of one message; higher is more important.
        keep: rounds kept when run by itself.
    """

    name: ClassVar[str] = "important"

    def __init__(self, score: Score, keep: int = 20) -> None:
        if not callable(score):
            raise ValueError(f"score must be callable, got {type(score).__name__}")
        self.score = score
        self.keep = at_least(0, keep, "keep")

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        alone = goal.budget == 0
        loose = [i for i, segment in enumerate(draft.segments) if goal.may_touch(segment) and segment.round is not None]
        ranked = sorted(loose, key=lambda i: (max(self.score(s.message) for s in draft.segments[i].shown), i))
        gone: set[int] = set()
        tokens = draft.tokens
        for index in ranked:
            if len(loose) - len(gone) <= self.keep if alone else tokens <= goal.target:
                break
            gone.add(index)
            tokens -= draft.segments[index].tokens
        return draft.with_segments(segment for i, segment in enumerate(draft.segments) if i not in gone)
