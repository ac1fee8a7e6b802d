"""Changes of many sessions that come at the same time go to the server together.

What comes while the lanes are busy waits, and all that waits goes next, as one: one round trip and one flush to disk
for many. What comes alone goes at once. Nothing is held back in the hope of company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ...errors import StoreError
from ...futures import resolve

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")


class Batches(Generic[I, R]):
    """Gives items to `send` in batches. Belongs to one event loop.

    Args:
        send: answers each item of a batch, in order, with a result or with the error that is raised for that item
            alone; what it raises is raised for all.
        lanes: batches on their way at the same time.
        most: items of one batch.
    """

    def __init__(
        self, send: Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]], lanes: int = 2, most: int = 64
    ) -> None:
        self._send, self._lanes, self._most = send, lanes, most
        self._busy = 0
        self._waiting: list[tuple[I, asyncio.Future[R]]] = []
        self._tasks: set[asyncio.Task[None]] = set()  # loops hold their tasks weakly

    async def add(self, item: I) -> R:
        """What `send` answered for this item."""
        if self._busy >= self._lanes:
            answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            self._waiting.append((item, answer))
            return await answer
        self._busy += 1
        try:
            (result,) = await self._send((item,))
        finally:
            self._busy -= 1
            self._go_on()
        if isinstance(result, Exception):
            raise result
        return result

    def _go_on(self) -> None:
        if self._waiting and self._busy < self._lanes:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            self._busy += 1
            task = asyncio.get_running_loop().create_task(self._flush(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _flush(self, batch: list[tuple[I, asyncio.Future[R]]]) -> None:
        results: list[R | BaseException] = []
        missing: BaseException = StoreError("the server gave no answer for this change; read the session again")
        try:
            results += await self._send([item for item, _ in batch])
        except Exception as problem:  # noqa: BLE001 - every waiter gets it
            missing = problem
        except BaseException as problem:
            missing = problem
            raise
        finally:
            self._busy -= 1
            self._go_on()
            results += [missing] * (len(batch) - len(results))
            for (_, answer), result in zip(batch, results, strict=False):
                resolve(answer, result, result if isinstance(result, BaseException) else None)
