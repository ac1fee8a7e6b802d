"""The queue of messages on their way into the history: a signal that ends its writer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.history.append_queue import AppendQueue, PendingAppend
from amplifier_context_core.locks import CrossLoopLock
from amplifier_context_core.messages.parsing import parse_message


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
