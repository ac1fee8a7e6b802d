"""The measured sessions: a manager with a budget of 100k tokens, its messages, and entries made without a history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import process_time
from typing import Any

from amplifier_context_core import ContextManager, HeuristicTokenCounter, count_message_tokens, load_config
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.timestamps import utc_now, with_timestamp
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing import coding_session

Message = dict[str, Any]

BUDGET = 100_000  # tokens of a request


class Reports:
    """Replaces the kernel's hook registry; keeps the milliseconds of compactions, and of the processor in them."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.own: list[float] = []
        self._began = 0.0

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        if event == "context:pre_compact":
            self._began = process_time()
        elif event == "context:post_compact":
            self.took.append(data["duration_ms"])
            self.own.append((process_time() - self._began) * 1000)


def manager(session_id: str = "bench", **parts: Any) -> ContextManager:
    """Return a manager as a mount plan creates it, that counts by the heuristic unless `parts` has a counter."""
    parts.setdefault("counter", HeuristicTokenCounter())
    return ContextManager(load_config({"max_tokens": BUDGET}), session_id=session_id, **parts)


def messages(count: int, seed: int = 0) -> Iterator[Message]:
    return coding_session(count, seed, shape="kernel")


def rounds(stream: Iterator[Message]) -> Iterator[list[Message]]:
    """Yield the messages before each request: up to the next assistant message."""
    waiting: list[Message] = []
    for message in stream:
        if message["role"] == "assistant" and waiting:
            yield waiting
            waiting = []
        waiting.append(message)


def entries_of(session_id: str, of: Iterable[Message]) -> Iterator[Entry]:
    """Return messages as entries of a session; the entries own the messages."""
    counter = HeuristicTokenCounter()
    turn = 0
    for seq, raw in enumerate(of, 1):
        message, info = parse_message(raw)
        now = utc_now()
        turn += info.human
        tokens = count_message_tokens(message, counter)
        with_timestamp(message, now)
        yield Entry.of(seq, message, info, turn=turn, tokens=tokens, session_id=session_id, created=now)


def name_of(size: int) -> str:
    """Return a size as text: ``10k``."""
    for letter, factor in (("M", 1_000_000), ("k", 1_000)):
        if size % factor == 0:
            return f"{size // factor}{letter}"
    return str(size)
