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
        here = append.acknowledged.get_loop()
        if here in self._waiting:
            self._waiting[here].append(append)
        else:
            self._waiting[here] = [append]
            self._start_writer(self._waiting[here])
        return await append.acknowledged

    def _start_writer(self, waiting: list[PendingAppend]) -> None:
        for closed in [loop for loop in self._waiting.copy() if loop.is_closed()]:
            self._waiting.pop(closed, None)
        self._start_task(self._write(waiting)).add_done_callback(self._on_writer_end)

    async def _write(self, waiting: list[PendingAppend]) -> None:
        batch: list[PendingAppend] = []
        try:
            async with self._lock.hold():
                batch, waiting[:] = waiting.copy(), ()
                await self._commit_batch(batch)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            _acknowledge(
                batch, StoreError("cut off while it was stored; resume the session to see what the store holds")
            )
            raise
        except Exception as problem:  # noqa: BLE001 - raised where each caller waits
            _acknowledge(batch, problem)
        else:
            _acknowledge(batch)

    def _on_writer_end(self, writer: asyncio.Task[None]) -> None:
        """Start the next writer if there is need for one. The callers that were acknowledged have added by now."""
        here = writer.get_loop()
        waiting = self._waiting[here]
        if writer.cancelled():  # the loop ends: a host may add again what it knows to be cut off
            waiting[:] = [append for append in waiting if not append.acknowledged.done()]
        if waiting:
            self._start_writer(waiting)
        else:
            del self._waiting[here]


def _acknowledge(batch: Sequence[PendingAppend], problem: Exception | None = None) -> None:
    """Give callers their entries, or the reason why their messages are not part of the history."""
    for append in batch:
        if not append.acknowledged.done():
            resolve(append.acknowledged, append.entry, None if append.is_done else problem)
            append.acknowledged.exception()  # a caller that is cancelled now does not retrieve it
