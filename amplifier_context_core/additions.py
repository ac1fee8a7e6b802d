"""Messages on their way into a history: they wait while the store is busy, and are then carried out together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .messages import Message, Reading
from .transcript import Entry, Response

_PATIENCE = 8  # turns of the event loop


@dataclass(slots=True)
class Addition:
    """One of them; `landed` tells the caller, on his own event loop."""

    message: Message
    reading: Reading
    tokens: int
    asked: str | None
    heard: Response | None
    landed: asyncio.Future[Entry | None]
    entry: Entry | None = None
    is_over: bool = False


class Additions:
    """Those that wait. They come from any thread; one task at a time, the carrier, takes them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: list[Addition] = []
        self._carrier: asyncio.AbstractEventLoop | None = None  # where it runs

    def put(self, addition: Addition) -> bool:
        """Let one wait. True if there is no carrier: then the caller must begin to be it, on his own loop."""
        with self._guard:
            self._waiting.append(addition)
            if self._carrier is not None and not self._carrier.is_closed():
                return False
            self._carrier = addition.landed.get_loop()
            return True

    async def gathered(self, before: int) -> None:
        """A moment's patience, if so many came together before and fewer are here.

        The others were told this moment that theirs has landed, and most often come again with their next: together
        they cost one write and one sync. Without this, whoever comes first would be written alone, while all the others
        wait for that. Who adds alone is never kept waiting.
        """
        for _ in range(_PATIENCE if before > 1 else 0):
            if len(self._waiting) >= before:
                return
            await asyncio.sleep(0)

    def take(self) -> list[Addition]:
        """All that wait, for the carrier. With none he is done, and the next one to `put` begins anew."""
        with self._guard:
            taken, self._waiting = self._waiting, []
            if not taken:
                self._carrier = None
            return taken

    def pass_on(self, left: Sequence[Addition], begin: Callable[[], object]) -> list[Addition]:
        """The carrier is cut off, for its loop ends: another loop that somebody waits on goes on, with `begin`.

        Args:
            left: what it had taken and not brought in; it comes first again.
            begin: called on the other loop.

        Returns:
            Those whose callers are on the loop that ends.
        """
        here = asyncio.get_running_loop()
        with self._guard:
            waiting = [one for one in (*left, *self._waiting) if not one.is_over]
            self._waiting = [one for one in waiting if one.landed.get_loop() is not here]
            self._carrier = None
            for addition in self._waiting:
                loop = addition.landed.get_loop()
                with suppress(RuntimeError):  # closed
                    loop.call_soon_threadsafe(begin)
                    self._carrier = loop
                    break
            return [one for one in waiting if one.landed.get_loop() is here]


def land(batch: Sequence[Addition], problem: Exception | None = None) -> None:
    """Tell who waits for these additions that they are part of the history, or why not."""
    here = asyncio.get_running_loop()
    for addition in batch:
        if addition.is_over:
            continue
        addition.is_over = True
        loop = addition.landed.get_loop()
        if loop is here:
            _tell(addition, problem)
        elif not loop.is_closed():
            with suppress(RuntimeError):  # it was closed in this very moment
                loop.call_soon_threadsafe(_tell, addition, problem)


def _tell(addition: Addition, problem: Exception | None) -> None:
    if addition.landed.done():
        return
    if problem is None:
        addition.landed.set_result(addition.entry)
    else:
        addition.landed.set_exception(problem)
        addition.landed.exception()  # nobody may wait for it any more
