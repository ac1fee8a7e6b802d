"""Large things: a message of megabytes, outputs of megabytes, a thousand tiny messages."""

from __future__ import annotations

import threading

from amplifier_context_core import approx_token_counter
from amplifier_context_testing import check_request
from tests.managers import ask, feed, new_manager
from tests.messages import call, result, rounds, size, user, work

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


async def test_a_request_after_each_of_many_tiny_messages_compacts_now_and_then() -> None:
    """Messages so short that a chapter would cost more than they do."""
    manager = new_manager()
    for place in range(160):
        await manager.add_message({"role": "user" if place % 2 == 0 else "assistant", "content": f"message {place}"})
        view = await manager.get_messages_for_request(1_000)
        assert size(view) <= 1_000
    assert check_request(view) == []
    assert (await manager.explain())["compactions"] <= 3
