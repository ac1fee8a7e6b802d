"""What counting, views and commands take of the event loop at once, and what works on texts beside it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import pytest

from amplifier_context_core import approx_token_counter
from amplifier_context_core.history import redactions
from tests.loops import longest_turn
from tests.managers import ask, feed, new_manager
from tests.messages import Message, call, result, rounds, says, user, work

GIANT = [user("Read it."), call("log"), result("log", "a line of some program's output, as it comes\n" * 110_000)]


class Threads:
    """A counter that notes which threads it ran in, and how long the texts were it was given there."""

    exact = False

    def __init__(self) -> None:
        self.longest: dict[int, int] = {}

    def __call__(self, text: str) -> int:
        here = threading.get_ident()
        self.longest[here] = max(self.longest.get(here, 0), len(text))
        return approx_token_counter(text)

    def __repr__(self) -> str:
        return "tests.Threads"


async def test_a_giant_is_never_counted_on_the_event_loop() -> None:
    counter = Threads()
    manager = new_manager(counter=counter)
    await manager.set_messages(GIANT)
    assert counter.longest[threading.get_ident()] < 60_000
    await feed(manager, [*work(3), *GIANT])
    counter.longest.clear()
    await ask(manager, 8_000)
    await feed(manager, rounds(40, start=50))
    await ask(manager, 8_000)
    assert max(counter.longest.values()) < 200_000


def many() -> list[Message]:
    return [say(f"{n}: the module reads entry {n * 7919 % 10_007}") for n in range(15_000) for say in (user, says)]


async def shortest_of_three(work: Callable[[], Awaitable[object]]) -> float:
    return min([await longest_turn(work()) for _ in range(3)])


@pytest.mark.soak
@pytest.mark.digest
async def test_commands_on_a_long_history_let_other_tasks_run() -> None:
    manager = new_manager(max_tokens=32_000)
    await manager.set_messages(many())
    turns = {
        "first view": await longest_turn(ask(manager)),
        "forget": await shortest_of_three(lambda: manager.forget(containing="what no message holds")),
        "explain": await shortest_of_three(manager.explain),
    }
    # Before: 0.25, 0.11 and 0.18; now 0.05, 0.003 and 0.001 on the same machine.
    most = {"first view": 0.16, "forget": 0.05, "explain": 0.08}  # seconds
    assert [name for name, seconds in turns.items() if seconds > most[name]] == []


@pytest.mark.digest
async def test_the_text_of_a_message_is_read_for_its_trace_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in: list[int] = []
    read = redactions.normalized_content

    def noted(message: Message, calls: tuple[str, ...]) -> bytes:
        read_in.append(threading.get_ident())
        return read(message, calls)

    monkeypatch.setattr(redactions, "normalized_content", noted)
    manager = new_manager()
    await manager.set_messages([user("a secret"), says()])
    assert await manager.forget(["m1"]) == ["m1"]
    assert read_in
    assert threading.get_ident() not in read_in
