"""What is emitted to the kernel's hooks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from amplifier_context_core.events import PRE_COMPACT, emit, inside_handler


class Waiting:
    """A hook registry with a handler that never ends."""

    async def emit(self, event: str, data: dict[str, Any]) -> Any:
        """Wait for ever."""
        await asyncio.Event().wait()


def test_an_emission_that_a_closed_loop_left_can_be_finalised_anywhere() -> None:
    owner = object()
    emission = emit(Waiting(), owner, PRE_COMPACT, {})

    async def host() -> None:
        task = asyncio.create_task(emission)
        await asyncio.sleep(0.01)
        emission.close()  # as the garbage collector does: outside of the context of its task
        assert not inside_handler(owner)
        task.cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await task

    asyncio.run(host())
    with pytest.raises(RuntimeError):
        emission.send(None)
