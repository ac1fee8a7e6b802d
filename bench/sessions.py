"""The measured sessions: a manager with a budget of 100k tokens, and its messages."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any

from amplifier_context_core import ContextManager, HeuristicTokenCounter, TokenCounter, load_config
from amplifier_context_core.compaction.ladder import build_ladder
from amplifier_context_core.plugins import installed_plugins
from amplifier_context_testing import coding_session

from .timers import TimedStrategy, collector

Message = dict[str, Any]

BUDGET = 100_000  # tokens of a request
NAMES = {"k": 1_000, "m": 1_000_000}


class Reports:
    """Replaces the kernel's hook registry and records compactions.

    Attributes:
        took: milliseconds of each, as it reports them.
        own: milliseconds of the processor in each, in all threads, without the collector's pauses: what neither other
            programs on the machine nor the size of the process's memory can lengthen.
    """

    def __init__(self) -> None:
        self.took: list[float] = []
        self.own: list[float] = []
        self._began = 0.0

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        if event == "context:pre_compact":
            self._began = process_time() - collector.seconds
        elif event == "context:post_compact":
            self.took.append(data["duration_ms"])
            self.own.append((process_time() - collector.seconds - self._began) * 1000)

    def clear(self) -> None:
        """Clear the recorded compactions."""
        self.took.clear()
        self.own.clear()


def manager(
    counter: TokenCounter | None = None, hooks: Reports | None = None
) -> tuple[ContextManager, list[TimedStrategy]]:
    """Return a manager as a mount plan creates it, with timed strategies."""
    config = load_config({"max_tokens": BUDGET})
    plugins = installed_plugins()
    strategies = [TimedStrategy(strategy) for strategy in build_ladder(config, plugins)]
    counter = counter or HeuristicTokenCounter()
    return ContextManager(config, session_id="bench", counter=counter, hooks=hooks, ladder=strategies), strategies


def messages(count: int, seed: int = 0) -> Iterator[Message]:
    """Return a coding session in the shape that Amplifier's loops store."""
    return coding_session(count, seed, shape="kernel")


def rounds(stream: Iterator[Message]) -> Iterator[list[Message]]:
    """Yield the messages before each request: up to the next assistant message."""
    waiting: list[Message] = []
    for message in stream:
        if message["role"] == "assistant" and waiting:
            yield waiting
            waiting = []
        waiting.append(message)


def size_of(name: str) -> int:
    """Messages a size names: ``10k``, ``1m`` or plain digits.

    Raises:
        ValueError: it names none.
    """
    text = name.strip().lower()
    factor = NAMES.get(text[-1:], 1)
    count = int(text[:-1] if factor > 1 else text) * factor
    if count < 100:
        raise ValueError("at least 100 messages are needed for a figure")
    return count


def name_of(size: int) -> str:
    """Return a size as text: ``10k``."""
    for letter, factor in (("M", 1_000_000), ("k", 1_000)):
        if size % factor == 0:
            return f"{size // factor}{letter}"
    return str(size)
