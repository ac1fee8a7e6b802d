"""One session with all that can be known before a manager runs it, for each budget and for all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from ..checks.message_shapes import SYSTEM_ROLES, Message
from .caches import Bill, caches
from .clock import stamped, times
from .re_reads import Reads
from .recall import FAR, References, Target
from .request import Request
from .sentences import Sentences
from .sessions import Probe, Session
from .token_scale import TokenScale
from .validity import Faults
from .words import Wanted, Words
from .working_memory import WorkingMemory


@dataclass(frozen=True, slots=True)
class Size:
    """How large a budget is.

    Attributes:
        budget: tokens; goes before a fraction.
        fraction: else this share of each session's conversation, and its whole system prompt, which no manager can cut.
        whole: the share is of all of the session, system prompt included. Long prompts leave little room then.
    """

    budget: int | None = None
    fraction: float = 0.25
    whole: bool = False

    def of(self, tokens: int, system: int = 0) -> int:
        """Return the budget for a session of so many tokens, so many of them in system messages."""
        if self.budget is not None:
            return self.budget
        beside = 0 if self.whole else system
        return max(1, beside + int((tokens - beside) * self.fraction))

    @property
    def label(self) -> str:
        """Return the budget in a table."""
        return f"{self.budget:,}" if self.budget is not None else f"{self.fraction:.0%}"

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        fraction = None if self.budget is not None else self.fraction
        return {"budget": self.budget, "fraction": fraction, "whole": self.whole}


class Recording:
    """One session, read for all that is measured whatever the budget.

    Args:
        session: as recorded.
        scale: to weigh with.
        pauses: a seed for pauses; without one no time is known.
        planted: sentences that were planted into it.

    Attributes:
        system: tokens of the system prompt and of other system messages.
        before: tokens of the history before each message, and of all of it at the end.
        requests: indices of the messages a view is asked for.
        messages: as they are given to a manager: with times where there is a clock.
    """

    def __init__(
        self, session: Session, scale: TokenScale, *, pauses: str | None = None, planted: frozenset[str] = frozenset()
    ) -> None:
        self.session = session
        self._scale = scale
        tokens = [scale.tokens(message) for message in session.messages]
        roles = [message.get("role") for message in session.messages]
        self.system = sum(weight for weight, role in zip(tokens, roles, strict=True) if role in SYSTEM_ROLES)
        self.before = list(accumulate(tokens, initial=0))
        self.requests = requests_of(session.messages)
        at = None if pauses is None else times(session.messages, f"{pauses} {session.id}", host=session.host)
        self._times = at
        self.messages = session.messages if at is None else stamped(session.messages, at)
        self.sentences = Sentences(session.messages, scale, host=session.host, planted=planted)
        self.faults = Faults(session.messages)

    @cached_property
    def words(self) -> Words:
        """Return the plain words its agent uses again."""
        return Words(self.session.messages, self._scale)

    @cached_property
    def working_memory(self) -> WorkingMemory:
        """Return the lines its calls repeat."""
        return WorkingMemory(self.session.messages, self._scale)

    @cached_property
    def reads(self) -> Reads:
        """Return the Reads whose files it reads again."""
        return Reads(self.session.messages, self._scale)

    @cached_property
    def references(self) -> References:
        """Return the identifiers of each message, and where they came from."""
        return References(self.session.messages)

    @cached_property
    def unlimited(self) -> dict[str, Bill]:
        """Return what all requests cost with an unlimited window, by cache."""
        models = caches()
        bills = dict.fromkeys(models, Bill())
        history = [{**m, "content": "" if m.get("content") is None else m["content"]} for m in self.session.messages]
        whole = Request.of(history, self._scale)
        for index in self.requests:
            request = whole.first(index)
            for name, cache in models.items():
                bills[name] += cache.bill(request, self.time_of(index))
        return bills

    def time_of(self, index: int) -> float:
        """When the request for a message is sent, in seconds; always 0.0 where no time is known."""
        return 0.0 if self._times is None else self._times[index]


class Course:
    """A recording at one budget.

    Attributes:
        recording: the session.
        budget: tokens.
        targets: identifiers to look for, by index of the message that says them again; as all that follows only where
            the history outgrew the budget.
        words: plain words to look for, by the same.
        probes: reuse probes, by the same.
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
    def words(self) -> Mapping[int, Wanted]:
        wanted = self.recording.words.wanted(self._near)
        return {index: wanted[index] for index in self.recording.requests if self.outgrown(index)}

    @cached_property
    def probes(self) -> Mapping[int, list[Probe]]:
        return {
            index: [probe for probe in self.session.probes if probe.used_at == index]
            for index in self.recording.requests
            if self.outgrown(index)
        }

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


def requests_of(messages: Sequence[Message]) -> list[int]:
    """Return where a view is asked for: before each assistant message that is not the first of the conversation."""
    begun = False
    found: list[int] = []
    for index, message in enumerate(messages):
        if begun and message.get("role") == "assistant":
            found.append(index)
        begun = begun or message.get("role") not in SYSTEM_ROLES
    return found
