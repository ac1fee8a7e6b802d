"""Group commit: messages wait in a queue while the store is busy, and are then written in one batch.

Each event loop has a queue and a writer of its own; the lock alone passes from loop to loop. So no message outlives its
loop, and a loop that ends takes no message of another loop with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import StoreError
from ..futures import resolve
from ..locks import CrossLoopLock
from ..messages.parsing import Message, MessageInfo
from ..messages.usage import Response
from ..transcript.entry import Entry


@dataclass(slots=True, eq=False)
class PendingAppend:
    message: Message  # a checked copy
    info: MessageInfo
    tokens: int  # its cost in a request
    requested: str | None  # when a response was asked for, for an assistant's message
    reported: Response | None  # what the provider reported of that response
    acknowledged: asyncio.Future[Entry | None]  # gets the new entry, on the event loop of the caller; None for an echo
    entry: Entry | None = None  # the drafted entry
    is_done: bool = False  # the message is part of the history, or is an echo


class AppendQueue:
    """The pending appends of each event loop. A task on that loop, its *writer*, commits all of them in one batch.

    Args:
        lock: held while a batch is committed, and no longer: a caller that is acknowledged may stop the loop.
        commit_batch: makes a batch part of the history, or raises.
        start_task: starts a task on the running loop.
    """

    def __init__(
        self,
        lock: CrossLoopLock,
        commit_batch: Callable[[Sequence[PendingAppend]], Awaitable[None]],
        start_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._lock, self._commit_batch, self._start_task = lock, commit_batch, start_task
        self._waiting: dict[asyncio.AbstractEventLoop, list[PendingAppend]] = {}  # of each loop that has a writer

    async def add(self, append: PendingAppend) -> Entry | None:
        """The append is committed even if the caller is cancelled."""
        self._put([append])
        return await append.acknowledged

    def _put(self, appends: Sequence[PendingAppend]) -> None:
        here = asyncio.get_running_loop()
        for closed in [loop for loop in self._waiting.copy() if loop.is_closed()]:
            self._waiting.pop(closed, None)
        if here not in self._waiting:
            self._waiting[here] = []
            self._start_task(self._write(here))
        self._waiting[here].extend(appends)

    async def _write(self, here: asyncio.AbstractEventLoop) -> None:
        """Commit all that wait on this loop when the lock is free."""
        batch: list[PendingAppend] = []
        problem: Exception = StoreError("cut off while it was stored; resume the session to see what the store holds")
        try:
            async with self._lock.hold():
                batch = self._waiting.pop(here)
                await self._commit_batch(batch)
        except asyncio.CancelledError:  # the loop ends: what its callers add now is stored all the same
            if not batch and (left := [one for one in self._waiting.pop(here) if not one.acknowledged.done()]):
                self._put(left)
            raise
        except GeneratorExit:  # the loop was closed, and its callers with it
            batch = []
            raise
        except Exception as raised:  # noqa: BLE001 - raised where each caller waits
            problem = raised
        finally:
            for append in batch:
                if not append.acknowledged.done():
                    resolve(append.acknowledged, append.entry, None if append.is_done else problem)
                    append.acknowledged.exception()  # a caller that is cancelled now does not retrieve it
