"""One session with all that can be known before a manager runs it, for each budget and for all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from amplifier_context_testing.caches import Bill, caches
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import SYSTEM_ROLES
from amplifier_context_testing.replay.transcripts import requests_of

from .recall import FAR, References, Target
from .sentences import Sentences
from .sessions import Session
from .validity import Faults
from .words import Words
from .working_memory import WorkingMemory


@dataclass(frozen=True, slots=True)
class Size:
    """How large a budget is.

    Attributes:
        budget: tokens; goes before a fraction.
    """

    budget: int | None = None
    fraction: float = 0.25

    def of(self, tokens: int, system: int = 0) -> int:
        """Return the budget for a session of so many tokens, so many of them in system messages."""
        if self.budget is not None:
            return self.budget
        return max(1, system + int((tokens - system) * self.fraction))

    @property
    def label(self) -> str:
        return f"{self.budget:,}" if self.budget is not None else f"{self.fraction:.0%}"


class Recording:
    """One session, read for all that is measured whatever the budget.

    Attributes:
        system: tokens of the system prompt and of other system messages.
        before: tokens of the history before each message, and of all of it at the end.
        requests: indices of the messages a view is asked for.
    """

    def __init__(self, session: Session, scale: TokenScale) -> None:
        self.session = session
        self._scale = scale
        messages = session.messages
        tokens = [scale.tokens(message) for message in messages]
        roles = [message.get("role") for message in messages]
        self.system = sum(weight for weight, role in zip(tokens, roles, strict=True) if role in SYSTEM_ROLES)
        self.before = list(accumulate(tokens, initial=0))
        self.requests = requests_of(messages)
        self.sentences = Sentences(messages, scale, host=session.host)
        self.faults = Faults(messages)

    @cached_property
    def words(self) -> Words:
        return Words(self.session.messages, self._scale)

    @cached_property
    def working_memory(self) -> WorkingMemory:
        return WorkingMemory(self.session.messages, self._scale)

    @cached_property
    def references(self) -> References:
        return References(self.session.messages)

    @cached_property
    def unlimited(self) -> dict[str, Bill]:
        models = caches()
        bills = dict.fromkeys(models, Bill())
        history = [{**m, "content": "" if m.get("content") is None else m["content"]} for m in self.session.messages]
        whole = Request.of(history, self._scale)
        for index in self.requests:
            request = whole.first(index)
            for name, cache in models.items():
                bills[name] += cache.bill(request, 0.0)
        return bills


class Course:
    """A recording at one budget (tokens).

    Attributes:
        targets: identifiers to look for, by index of the message that says them again; as the words only where the
            history outgrew the budget.
        words: plain words to look for, by the same, and those of them that are far.
    """

    def __init__(self, recording: Recording, size: Size) -> None:
        self.recording = recording
        self.session = recording.session
        self.budget = size.of(recording.before[-1], recording.system)
        self._near = near(recording.before, self.budget)

    @cached_property
    def targets(self) -> Mapping[int, list[Target]]:
        targets = self.recording.references.targets(self._near)
        return {index: targets[index] for index in self.recording.requests if self.outgrown(index)}

    @cached_property
    def words(self) -> Mapping[int, tuple[int, int]]:
        wanted = self.recording.words.wanted(self._near)
        return {index: wanted[index] for index in self.recording.requests if self.outgrown(index)}

    def outgrown(self, index: int) -> bool:
        """True if the full history before this message is larger than the budget."""
        return self.recording.before[index] > self.budget


def near(before: Sequence[int], budget: int) -> list[int]:
    """Return, for each message, the first one that is not far from it: it reaches into the newest quarter of a budget.

    Args:
        before: tokens before each message, and of all of them at the end.
        budget: tokens.
    """
    return [max(0, bisect_right(before, held - FAR * budget) - 1) for held in before[:-1]]
