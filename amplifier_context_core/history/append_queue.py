"""Messages on their way into a history: they wait while the store is busy, and are then carried in together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..futures import resolve
from ..locks import Gate
from ..messages.parsing import Message, MessageInfo
from ..messages.usage import Response
from ..transcript.transcript import Entry

_LOOK = 1.0  # seconds between two looks at whether the loop that carries was closed
_AT_ONCE = 4  # callers told in one turn of the event loop: each goes on at once, most often with its next message
_SLICES = 16  # turns it takes at most to tell all of a batch
_PATIENCE = 4  # turns from being told to the next message, and one for safety


@dataclass(slots=True, eq=False)
class Addition:
    """One of them; `landed` tells the caller, on his own event loop."""

    message: Message
    info: MessageInfo
    tokens: int
    asked: str | None
    heard: Response | None
    landed: asyncio.Future[Entry | None]
    entry: Entry | None = None
    is_over: bool = False

    def is_awaited(self) -> bool:
        """Does its caller still wait? Then his event loop goes on until he is told."""
        return not self.landed.done() and not self.landed.get_loop().is_closed()


class Additions:
    """Those that wait, and who brings them in: one task at a time, the carrier, takes all there are.

    They come from any thread, and an event loop may stop as soon as nobody waits on it. So a carrier carries while
    somebody waits on its own loop, and then hands on to one where somebody does.

    Args:
        gate: entered while some are brought in.
        bring_in: makes them part of the history, or raises why not.
        cut_off: tells those who wait on a loop that ends how it stands.
        begin: begins a task on the running loop.
    """

    def __init__(
        self,
        gate: Gate,
        bring_in: Callable[[Sequence[Addition]], Awaitable[None]],
        cut_off: Callable[[Sequence[Addition]], None],
        begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._gate, self._bring_in, self._cut_off, self._begin = gate, bring_in, cut_off, begin
        self._guard = threading.Lock()
        self._waiting: list[Addition] = []
        self._taken: list[Addition] = []
        self._carrier: asyncio.AbstractEventLoop | None = None  # where it runs
        self._company = 0  # how many came together the last time

    async def add(self, addition: Addition) -> Entry | None:
        """Let one wait until it has landed. Cancelled, its caller is not told; it is brought in all the same."""
        here = addition.landed.get_loop()
        with self._guard:
            self._waiting.append(addition)
            carries = self._takes_up(here)
            elsewhere = self._carrier is not here
        if carries:
            self._carry()
        elif elsewhere:
            await self._watched(addition.landed, here)
        return await addition.landed

    def bring_in_left(self) -> None:
        """Bring in what was left waiting, if anything was: nobody waits for it any more, and nobody carries."""
        here = asyncio.get_running_loop()
        with self._guard:
            left = any(not one.is_over for one in (*self._taken, *self._waiting))
            carries = left and self._takes_up(here)
        if carries:
            self._carry()

    async def _watched(self, landed: asyncio.Future[Entry | None], here: asyncio.AbstractEventLoop) -> None:
        """Wait while another loop carries, which may be closed without a word: then this one goes on."""
        try:
            while not (await asyncio.wait((landed,), timeout=_LOOK))[0]:
                with self._guard:
                    carries = self._takes_up(here)
                if carries:
                    self._carry()
        except asyncio.CancelledError:
            landed.cancel()
            raise

    # -- the carrier ------------------------------------------------------------------------------------------------

    def _carry(self) -> None:
        began: list[bool] = []
        task = self._begin(self._carry_all(began))
        task.add_done_callback(lambda task: began or self._never_began(task))

    async def _carry_all(self, began: list[bool]) -> None:
        """Bring in what waits, batch after batch, for as long as somebody waits for that on this loop."""
        began.append(True)
        here = asyncio.get_running_loop()
        batch: list[Addition] = []
        try:
            going = True
            while going:
                await self._gathered()
                async with self._gate:
                    batch = self._take(here)
                    if not batch:
                        return
                    try:
                        await self._bring_in(batch)
                    except Exception as problem:  # noqa: BLE001 - raised where each of them waits
                        land(batch, problem)
                going = self._must_go_on(here)
        except GeneratorExit:  # collected with its history: nobody is left to be told
            raise
        except BaseException:
            self._cut_off(self._pass_on(batch, here))
            raise

    def _never_began(self, task: asyncio.Task[None]) -> None:
        """A carrier was cancelled before its first step."""
        self._cut_off(self._pass_on((), task.get_loop()))

    def _take_over(self) -> None:
        """The carrier on another loop hands on to this one, where somebody waited a moment ago; perhaps no more."""
        if self._must_go_on(asyncio.get_running_loop()):
            self._carry()

    async def _gathered(self) -> None:
        """A moment's patience, if many came together the last time and fewer are here.

        The others were told a moment ago that theirs has landed, and most often come again with their next: together
        they cost one write and one sync. Without this, whoever comes first would be written alone, while all the others
        wait for that. Who adds alone waits so but once.
        """
        before = self._company
        slices = -(-before // _slice(before))
        for _ in range(slices + _PATIENCE if before > 1 else 0):
            if len(self._waiting) >= before:
                return
            await asyncio.sleep(0)

    def _take(self, here: asyncio.AbstractEventLoop) -> list[Addition]:
        """All that wait; none when there are none, or another loop's carrier has been begun."""
        with self._guard:
            # One that was taken and is not over: its carrier was closed in with its loop.
            self._waiting[:0] = [one for one in self._taken if not one.is_over]
            self._taken = []
            if not self._goes_on(here):
                return []
            self._taken, self._waiting = self._waiting, []
            self._company = len(self._taken)
            return self._taken

    def _must_go_on(self, here: asyncio.AbstractEventLoop) -> bool:
        """After a batch: not when nothing waits, nor when another loop can; its carrier is begun then."""
        with self._guard:
            self._taken = [one for one in self._taken if not one.is_over]
            return self._goes_on(here)

    def _pass_on(self, left: Sequence[Addition], here: asyncio.AbstractEventLoop) -> list[Addition]:
        """The carrier is cancelled, for its loop ends: another loop that somebody waits on goes on.

        Args:
            left: what it had taken and not brought in; it comes first again.
            here: the loop that ends.

        Returns:
            Those whose callers are on the loop that ends.
        """
        with self._guard:
            self._taken = [one for one in self._taken if one not in left]
            waiting = [one for one in (*left, *self._waiting) if not one.is_over]
            self._waiting = [one for one in waiting if one.landed.get_loop() is not here]
            if not self._hands_on():
                self._carrier = None
            return [one for one in waiting if one.landed.get_loop() is here]

    # -- under the guard --------------------------------------------------------------------------------------------

    def _takes_up(self, here: asyncio.AbstractEventLoop) -> bool:
        """Is there no carrier, or was its loop closed? Then there is one on this loop from now on."""
        if self._carrier is not None and not self._carrier.is_closed():
            return False
        self._carrier = here
        return True

    def _is_awaited_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        return any(one.landed.get_loop() is loop and one.is_awaited() for one in self._waiting)

    def _goes_on(self, here: asyncio.AbstractEventLoop) -> bool:
        if not self._waiting:
            self._carrier = None
            return False
        # When nobody waits any more, what is left is brought in all the same.
        return self._is_awaited_on(here) or not self._hands_on()

    def _hands_on(self) -> bool:
        for addition in self._waiting:
            loop = addition.landed.get_loop()
            if addition.is_awaited():
                with suppress(RuntimeError):  # closed in this very moment
                    loop.call_soon_threadsafe(self._take_over)
                    self._carrier = loop
                    return True
        return False


def land(batch: Sequence[Addition], problem: Exception | None = None) -> None:
    """Tell who waits for these additions that they are part of the history, or why not.

    Those on this loop are told a few in a turn, so that whatever else is due there is done in between.
    """
    here = asyncio.get_running_loop()
    ours: list[Addition] = []
    for addition in batch:
        if addition.is_over:
            continue
        addition.is_over = True
        loop = addition.landed.get_loop()
        if loop is here:
            ours.append(addition)
        elif not loop.is_closed():
            with suppress(RuntimeError):  # it was closed in this very moment
                loop.call_soon_threadsafe(_tell, addition, problem)
    _tell_all(ours, _slice(len(ours)), problem)


def _slice(count: int) -> int:
    """How many of so many are told in one turn."""
    return max(_AT_ONCE, -(-count // _SLICES))


def _tell_all(batch: Sequence[Addition], at_once: int, problem: Exception | None) -> None:
    for addition in batch[:at_once]:
        _tell(addition, problem)
    if len(batch) > at_once:
        asyncio.get_running_loop().call_soon(_tell_all, batch[at_once:], at_once, problem)


def _tell(addition: Addition, problem: Exception | None) -> None:
    if addition.landed.done():
        return
    resolve(addition.landed, addition.entry, problem)
    addition.landed.exception()  # a caller that was cancelled does not retrieve it
