"""The queue of messages on their way into the history: batches, and what becomes of them when something goes wrong."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.history.append_queue import AppendQueue, PendingAppend
from amplifier_context_core.locks import CrossLoopLock
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_testing.contract.samples import entry


class Log:
    """Commits batches, and keeps the texts of each.

    Attributes:
        open_gate: batches wait until it is set.
        refused: a batch fails when it comes to this text.
        writers: tasks that were started.
    """

    def __init__(self) -> None:
        self.lock = CrossLoopLock()
        self.queue = AppendQueue(self.lock, self._commit, self._start)
        self.batches: list[list[object]] = []
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.refused = ""
        self.writers: list[asyncio.Task[None]] = []

    def add(self, text: str) -> asyncio.Task[object]:
        message, info = parse_message({"role": "user", "content": text})
        acknowledged = asyncio.get_running_loop().create_future()
        return asyncio.create_task(self.queue.add(PendingAppend(message, info, 1, None, None, acknowledged)))

    async def _commit(self, batch: Sequence[PendingAppend]) -> None:
        self.batches.append([append.message["content"] for append in batch])
        await self.open_gate.wait()
        for append in batch:
            if append.message["content"] == self.refused:
                raise StoreError("make room")
            append.entry = entry(1, str(append.message["content"]))
            append.is_done = True

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.writers.append(asyncio.create_task(work))
        return self.writers[-1]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await asyncio.sleep(0)


async def test_of_a_batch_that_fails_those_done_before_are_acknowledged_and_the_others_raise() -> None:
    log = Log()
    log.refused = "b"
    added = await asyncio.gather(*map(log.add, "abc"), return_exceptions=True)
    assert added[0] == entry(1, "a")
    assert [type(one) for one in added[1:]] == [StoreError, StoreError]
    assert await log.add("d") == entry(1, "d")


async def test_a_writer_that_is_cancelled_drops_messages_of_cancelled_callers_and_no_others() -> None:
    log = Log()
    log.open_gate.clear()
    first = log.add("a")
    await until(lambda: log.batches)
    cancelled, waiting = log.add("b"), log.add("c")
    await asyncio.sleep(0)
    cancelled.cancel()
    log.writers[0].cancel()
    with pytest.raises(StoreError, match="cut off"):
        await first
    log.open_gate.set()
    assert await waiting == entry(1, "c")
    assert log.batches == [["a"], ["c"]]


def test_a_writer_that_a_signal_ends_leaves_no_caller_waiting() -> None:
    async def interrupted(batch: Sequence[PendingAppend]) -> None:
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    queue = AppendQueue(CrossLoopLock(), interrupted, loop.create_task)
    message, info = parse_message({"role": "user", "content": "one"})

    async def add() -> object:
        return await queue.add(PendingAppend(message, info, 1, None, None, loop.create_future()))

    adding = loop.create_task(add())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(adding)
    with pytest.raises(StoreError, match="cut off"):
        loop.run_until_complete(asyncio.wait_for(adding, 5))
    loop.close()
    gc.collect()  # here, not while another test reads source code: CPython 3.11 takes that for a wrong recursion depth
