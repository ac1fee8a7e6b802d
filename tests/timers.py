"""Find out whether a task waits with a time limit, without a clock: such a wait sets a timer on the event loop."""

import asyncio
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

LOCKS = "amplifier_context_core/locks.py"


@contextmanager
def timers_of(task: asyncio.Task[Any] | None) -> Generator[list[float]]:
    """Yield the list that gets the time of each timer which a task sets; other tasks are not watched.

    A lock that another task holds sets one too, to look whether the holder's loop is closed; it is left out.

    Args:
        task: to be watched.
    """
    loop: Any = asyncio.get_running_loop()
    found: list[float] = []
    set_timer = loop.call_at

    def call_at(when: float, *given: Any, **named: Any) -> Any:
        if asyncio.current_task() is task and not any(
            one.filename.endswith(LOCKS) for one in traceback.extract_stack()
        ):
            found.append(when)
        return set_timer(when, *given, **named)

    loop.call_at = call_at
    try:
        yield found
    finally:
        loop.call_at = set_timer
