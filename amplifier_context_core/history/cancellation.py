"""A cancelled turn: the policy is applied to it once, when the turn is over.

The loop may still add to a turn after it was cancelled, and the kernel reports a cancellation twice (docs/kernel.md). A
cancellation counts only if the history grew since the last turn was closed.
"""

from __future__ import annotations

from typing import Literal

OnInterrupt = Literal["keep", "discard", "repair"]


class Cancellation:
    def __init__(self, policy: OnInterrupt) -> None:
        self.policy: OnInterrupt = policy
        self.interrupted: frozenset[int] = frozenset()  # turns whose unanswered calls were stopped
        self.is_pending = False  # the current turn was cancelled, and the policy was not applied yet
        self._closed_at_seq = -1  # last seq when the policy was applied or a turn began

    def on_prompt(self, last_seq: int) -> None:
        """A turn begins. If it is cancelled before its prompt is stored, the turn before must stay."""
        if not self.is_pending:
            self._closed_at_seq = last_seq

    def on_cancelled(self, last_seq: int) -> None:
        if last_seq != self._closed_at_seq:
            self.is_pending = True

    def close(self, last_seq: int) -> None:
        """The turn is over, and nothing is left to apply to it."""
        self.is_pending = False
        self._closed_at_seq = last_seq
