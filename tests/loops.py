"""Event loops: how long work holds one, and those that careless hosts close with tasks that nothing cancelled."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any


def abandoned(work: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
    """Run work until it sets the event, and close its loop. While the task is kept, it is not collected."""
    loop = asyncio.new_event_loop()
    event = asyncio.Event()
    task = loop.create_task(work(event))
    loop.run_until_complete(event.wait())
    for left in asyncio.all_tasks(loop):
        left._log_destroy_pending = False  # type: ignore[attr-defined]  # what is collected later is meant to be
    loop.close()
    return task


async def longest_turn(work: Awaitable[object]) -> float:
    """Return the longest time, in seconds of the loop's thread, between two turns of another task.

    Garbage is not collected meanwhile: that takes as long as the whole process has objects.
    """
    turns: list[float] = []

    async def take_turns() -> None:
        while True:
            turns.append(time.thread_time())
            await asyncio.sleep(0)

    other = asyncio.ensure_future(take_turns())
    await asyncio.sleep(0)
    gc.disable()
    try:
        await work
        await asyncio.sleep(0)
    finally:
        gc.enable()
        other.cancel()
    return max(later - turn for turn, later in pairwise(turns))
