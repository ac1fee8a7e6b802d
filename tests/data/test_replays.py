"""Recorded transcripts replayed message by message through context-simple, in windows of a quarter, a half and all.

They are real ones with everything that goes wrong in real ones, and run where they are at hand (`tests/conftest.py`).
The corpus of odd conversations is in tests/wire/test_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

import amplifier_context_simple
from amplifier_context_core import ContextManager, count_message_tokens, exact_token_counter
from amplifier_context_core.messages.parsing import text_of
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing import Transcript, check_request, read_transcripts, replay
from tests.conftest import DATA
from tests.places import ALL

Message = dict[str, Any]

SHARES = [0.25, 0.5, 1.0]


class Remembering:
    """The exact counter, which counts a text once for all replays of this process."""

    exact = True

    def __init__(self) -> None:
        self.counter = exact_token_counter()
        self.known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        tokens = self.known.get(text)
        if tokens is None:
            tokens = self.known[text] = self.counter(text)
        return tokens

    def __repr__(self) -> str:
        return "Remembering(o200k_base)"


@cache
def counter() -> Remembering:
    return Remembering()


def size(messages: Sequence[Message]) -> int:
    return sum(count_message_tokens(message, counter()) for message in messages)


class Judge:
    """Holds every request of one replay against the rules."""

    def __init__(self, manager: ContextManager, budget: int) -> None:
        self.manager = manager
        self.budget = budget
        self.requests = 0
        self.wrong: list[str] = []

    async def __call__(self, index: int, view: list[Message]) -> None:
        self.requests += 1
        faults = [f"request before message {index}: {sentence}" for sentence in check_request(view)]
        tokens = size(view)
        warnings = self.manager.warnings.texts
        if tokens > self.budget and not any("what must be kept needs" in warning for warning in warnings):
            faults.append(f"request before message {index}: {tokens} tokens, and no warning")
        newest = self._newest_human()
        if newest is not None and not _shows(view, newest, clipped=bool(warnings)):
            faults.append(f"request before message {index}: the newest human message is not there")
        self.wrong += faults

    def _newest_human(self) -> Entry | None:
        history = self.manager.history.snapshot()
        for place in range(len(history) - 1, -1, -1):
            entry = history[place]
            if entry.human and not is_left_out(entry.message):
                return entry
        return None


def _shows(view: list[Message], entry: Entry, *, clipped: bool) -> bool:
    """Does a view show what a human wrote: whole, or, where that was reported, clipped?"""
    wanted = _text(entry.message).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    shown = [_text(message) for message in view if message["role"] == "user"]
    if any(wanted in text for text in shown):
        return True
    return clipped and any(f"{entry.mark} ..." in text or text[:4] == wanted[:4] for text in shown)


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = [block for block in content if isinstance(block, dict) and block.get("type") == "text"]
    return text_of(content).strip()


async def mounted(budget: int) -> ContextManager:
    coordinator = MockCoordinator()
    await amplifier_context_simple.mount(coordinator, {"max_tokens": budget})
    manager: ContextManager = coordinator.get("context")
    manager._counter = counter()  # pyright: ignore[reportPrivateUsage]
    return manager


async def replayed(transcript: Transcript, share: float) -> tuple[Judge, list[Message]]:
    """What was wrong with any request of a replay, and the history at its end."""
    budget = max(64, int(size(transcript.messages) * share))
    manager = await mounted(budget)
    judge = Judge(manager, budget)
    await replay(transcript, manager, judge)
    return judge, await manager.get_messages()


def without_timestamps(messages: Sequence[Message]) -> Iterator[Message]:
    for message in messages:
        metadata = {key: value for key, value in (message.get("metadata") or {}).items() if key != "timestamp"}
        rest = {key: value for key, value in message.items() if key not in ("metadata", "timestamp")}
        yield {**rest, **({"metadata": metadata} if metadata else {})}


async def holds(transcript: Transcript, share: float) -> None:
    judge, history = await replayed(transcript, share)
    assert judge.wrong == []
    assert list(without_timestamps(history)) == list(without_timestamps(transcript.messages))


@cache
def recordings(file: str) -> list[Transcript]:
    return list(read_transcripts(DATA / file))


def recorded_names() -> list[str]:
    files = sorted(DATA.glob("*.jsonl.gz"))
    return [f"{file.name}#{place}" for file in files for place in range(len(recordings(file.name)))]


def recorded_cases() -> list[tuple[str, float]]:
    """Each transcript with one window in turn, so that no oddity is missed; in a soak, with every window."""
    cases = [(name, share) for name in recorded_names() for share in SHARES]
    return cases if ALL else [case for place, case in enumerate(cases) if place % 3 == place // 3 % 3]


@pytest.mark.data
@pytest.mark.parametrize(("name", "share"), recorded_cases() or [("none", 1.0)])
async def test_a_recorded_transcript_keeps_every_rule_at_every_request(recorded: Path, name: str, share: float) -> None:
    file, _, place = name.partition("#")
    await holds(recordings(file)[int(place)], share)
