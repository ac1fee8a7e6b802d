"""Changes of many sessions that arrive at the same time are sent to the server together.

Items that arrive while all batches are in flight are queued. The next batch is the oldest `_MAX_ITEMS` of them: one
round trip and one flush to disk for many items. An item that arrives alone is sent at once; nothing is delayed to fill
a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from amplifier_context_core.errors import StoreError
from amplifier_context_core.futures import resolve

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")
_MAX_ITEMS = 64  # of one batch


class MicroBatcher(Generic[I, R]):
    """Sends items in batches. Belongs to one event loop.

    `send` returns for each item of a batch, in order, a result or the error to raise for that item alone. An error that
    it raises is raised for all items.
    """

    def __init__(
        self,
        send: Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]],
        max_in_flight: int = 2,
    ) -> None:
        self._send, self._max_in_flight = send, max_in_flight
        self._in_flight = 0
        self._queue: list[tuple[I, asyncio.Future[R]]] = []
        self._tasks: set[asyncio.Task[None]] = set()  # event loops hold their tasks weakly

    async def add(self, item: I) -> R:
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.append((item, answer))
        self._send_queued()
        return await answer

    def _send_queued(self) -> None:
        if self._queue and self._in_flight < self._max_in_flight:
            batch, self._queue = self._queue[:_MAX_ITEMS], self._queue[_MAX_ITEMS:]
            self._in_flight += 1
            task = asyncio.get_running_loop().create_task(self._flush(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _flush(self, batch: list[tuple[I, asyncio.Future[R]]]) -> None:
        results: list[R | BaseException] = []
        missing: BaseException = StoreError("the server gave no answer for this change; read the session again")
        try:
            results += await self._send([item for item, _ in batch])
        except BaseException as problem:
            missing = problem  # every waiting caller gets it
            if not isinstance(problem, Exception):
                raise
        finally:
            self._in_flight -= 1
            self._send_queued()
            results += [missing] * (len(batch) - len(results))
            for (_, answer), result in zip(batch, results, strict=False):
                resolve(answer, result, result if isinstance(result, BaseException) else None)
