"""A clock for recordings, which carry no times: when each message comes, with seeded pauses.

A person stays away for a while after a fifth of their messages: the pause comes when the agent has finished with it,
before the person's next message. What is between two other messages takes ten seconds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ..checks.message_shapes import Message, as_mapping, is_human

PAUSES = (360.0, 2_400.0, 5_400.0)  # seconds: 6, 40 and 90 minutes, beyond the times to live of 5, 30 and 60 minutes
PAUSED = 0.2  # of a person's messages
PACE = 10.0  # seconds between two messages
EPOCH = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # a Monday morning; any fixed moment would do


def times(messages: Sequence[Message], seed: str, *, host: frozenset[int] = frozenset()) -> list[float]:
    """Return when each message comes, in seconds.

    Args:
        messages: of one session.
        seed: the same seed gives the same pauses.
        host: indices of messages with the role of a user that no person wrote.
    """
    rng = random.Random(seed)
    people = [index for index, message in enumerate(messages) if is_human(message) and index not in host]
    returns = people[1:]  # a pause needs a message that ends it
    chosen = rng.sample(returns, round(PAUSED * len(returns)))
    pauses = {index: rng.choice(PAUSES) for index in sorted(chosen)}
    now = 0.0
    found: list[float] = []
    for index in range(len(messages)):
        now += pauses.get(index, PACE if index else 0.0)
        found.append(now)
    return found


def stamped(messages: Sequence[Message], at: Sequence[float]) -> list[Message]:
    """Return the messages with the time of each in `metadata.timestamp`, as hosts write it."""
    return [
        {**message, "metadata": {**(as_mapping(message.get("metadata")) or {}), "timestamp": _written(second)}}
        for message, second in zip(messages, at, strict=True)
    ]


def _written(second: float) -> str:
    return (EPOCH + timedelta(seconds=second)).isoformat(timespec="milliseconds")
