"""Baselines: three simple managers that other managers should be better than.

All keep the system prompt. The two that cut keep whole rounds. They also keep the newest human message if the newest
rounds begin after it: without it a request would not begin with the user and would ask nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checks.message_shapes import SYSTEM_ROLES, Message, calls_of, is_human, results_of
from .token_scale import TokenScale


class Unlimited:
    """The whole history, whatever the budget: the price of never compacting."""

    def __init__(self, scale: TokenScale) -> None:
        self.scale = scale
        self.messages: list[Message] = []

    async def add_message(self, message: Message) -> None:
        """Store a message; absent content becomes empty text, as loops send it."""
        content = message.get("content")
        self.messages.append({**message, "content": "" if content is None else content})

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """Return the whole history."""
        return list(self.messages)


class Newest(Unlimited):
    """The newest rounds that fit, selected for each request: a sliding window."""

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        return newest_rounds(self.messages, token_budget or 0, self.scale)


class NewestCheckpointed(Unlimited):
    """The newest rounds, cut to half of the budget when the view exceeds it; between two cuts it only grows."""

    target = 0.5  # share of the budget after a cut

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        budget = token_budget or 0
        made = {call.id for message in self.messages for call in calls_of(message)}
        self.messages = [m for m in self.messages if all(result.id in made for result in results_of(m))]  # late ones
        if sum(self.scale.tokens(message) for message in self.messages) > budget:
            self.messages = newest_rounds(self.messages, int(budget * self.target), self.scale)
        return list(self.messages)


def newest_rounds(messages: Sequence[Message], capacity: int, scale: TokenScale) -> list[Message]:
    """Return system messages, the newest human message, and the newest rounds that fit, at least one."""
    system = [message for message in messages if message.get("role") in SYSTEM_ROLES]
    rounds = rounds_of([message for message in messages if message.get("role") not in SYSTEM_ROLES])
    if not rounds:
        return system
    fixed = sum(scale.tokens(message) for message in system)
    human = next((place for place in range(len(rounds) - 1, -1, -1) if is_human(rounds[place][0])), None)
    asked = sum(scale.tokens(message) for message in rounds[human]) if human is not None else 0
    start = len(rounds) - 1
    kept = sum(scale.tokens(message) for message in rounds[start])
    while start > 0:
        more = sum(scale.tokens(message) for message in rounds[start - 1])
        without = asked if human is not None and human < start - 1 else 0
        if fixed + kept + more + without > capacity:
            break
        kept += more
        start -= 1
    while start < len(rounds) - 1 and human is not None and start < human and not is_human(rounds[start][0]):
        start += 1  # a request begins with the user
    before = rounds[human] if human is not None and human < start else []
    return [*system, *before, *(message for round_ in rounds[start:] for message in round_)]


def rounds_of(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the rounds of messages: a message with calls and its results, or one other message."""
    rounds: list[list[Message]] = []
    open_calls: set[object] = set()
    for message in messages:
        results = results_of(message)
        if rounds and results and open_calls and any(result.id in open_calls for result in results):
            rounds[-1].append(message)
            continue
        rounds.append([message])
        open_calls = {call.id for call in calls_of(message)}
    return rounds
