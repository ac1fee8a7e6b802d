"""Three managers that anybody could write in a quarter of an hour: what others must be better than.

All keep the system prompt. The two that cut keep whole rounds, and the newest human message even when the newest rounds
begin after it: without it a request would not begin with the user, and nobody would be asking anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checks.message_shapes import SYSTEM_ROLES, Message, calls_of, is_human, results_of
from .token_scale import TokenScale


class Unlimited:
    """The whole history, whatever the budget: the price of never forgetting."""

    def __init__(self, scale: TokenScale) -> None:
        self.scale = scale
        self.messages: list[Message] = []

    async def add_message(self, message: Message) -> None:
        """Keep it; absent content becomes empty text, as everybody sends it."""
        content = message.get("content")
        self.messages.append({**message, "content": "" if content is None else content})

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """All of it."""
        return list(self.messages)


class Newest(Unlimited):
    """The newest rounds that fit, found anew for each request: a window that slides."""

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        return newest_rounds(self.messages, token_budget or 0, self.scale)


class NewestCheckpointed(Unlimited):
    """The newest rounds, cut to half of the budget when the view outgrows it; between two cuts it only grows."""

    target = 0.5  # of the budget

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        budget = token_budget or 0
        made = {call.id for message in self.messages for call in calls_of(message)}
        self.messages = [m for m in self.messages if all(result.id in made for result in results_of(m))]  # late ones
        if sum(self.scale.tokens(message) for message in self.messages) > budget:
            self.messages = newest_rounds(self.messages, int(budget * self.target), self.scale)
        return list(self.messages)


def newest_rounds(messages: Sequence[Message], room: int, scale: TokenScale) -> list[Message]:
    """System messages, the newest human message, and as many of the newest rounds as fit; the newest always."""
    system = [message for message in messages if message.get("role") in SYSTEM_ROLES]
    rounds = rounds_of([message for message in messages if message.get("role") not in SYSTEM_ROLES])
    if not rounds:
        return system
    fixed = sum(scale.tokens(message) for message in system)
    human = next((place for place in range(len(rounds) - 1, -1, -1) if is_human(rounds[place][0])), None)
    asked = sum(scale.tokens(message) for message in rounds[human]) if human is not None else 0
    start = len(rounds) - 1
    held = sum(scale.tokens(message) for message in rounds[start])
    while start > 0:
        more = sum(scale.tokens(message) for message in rounds[start - 1])
        without = asked if human is not None and human < start - 1 else 0
        if fixed + held + more + without > room:
            break
        held += more
        start -= 1
    while start < len(rounds) - 1 and human is not None and start < human and not is_human(rounds[start][0]):
        start += 1  # a request begins with the user
    before = rounds[human] if human is not None and human < start else []
    return [*system, *before, *(message for held_round in rounds[start:] for message in held_round)]


def rounds_of(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages that stand together: a message with calls and the results after it, or one other message."""
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
