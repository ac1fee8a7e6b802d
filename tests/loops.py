"""Event loops that careless hosts close with tasks that nothing cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
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
