"""Group commit: messages wait in a queue while the store is busy, and are then written in one batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..futures import resolve
from ..locks import CrossLoopLock
from ..messages.parsing import Message, MessageInfo
from ..messages.usage import Response
from ..transcript.entry import Entry

_CHECK_INTERVAL = 1.0  # seconds; how often a waiter checks whether the loop of the leader was closed
_MIN_PER_TURN = 4  # callers acknowledged in one turn of the event loop, at least; most add their next message at once
_MAX_TURNS = 16  # turns that the acknowledgements of one batch take, at most
_LINGER_TURNS = 4  # turns from an acknowledgement to the next message of its caller, and one for safety


@dataclass(slots=True, eq=False)
class PendingAppend:
    """A message in the queue.

    Attributes:
        message: a checked copy.
        info: what the message states about itself.
        tokens: its cost in a request.
        requested: when a response was asked for, for an assistant's message.
        reported: what the provider reported of that response.
        acknowledged: gets the new entry, on the event loop of the caller; None for an echo.
        entry: the drafted entry.
        is_done: the message is part of the history, was refused, or is an echo.
    """

    message: Message
    info: MessageInfo
    tokens: int
    requested: str | None
    reported: Response | None
    acknowledged: asyncio.Future[Entry | None]
    entry: Entry | None = None
    is_done: bool = False

    def is_awaited(self) -> bool:
        """True if the caller still waits. Its event loop then runs until the append is acknowledged."""
        return not self.acknowledged.done() and not self.acknowledged.get_loop().is_closed()


class AppendQueue:
    """The pending appends. One task at a time, the *leader*, commits all of them in batches.

    Appends come from any thread, and an event loop may stop as soon as nothing awaits on it. So a leader works only
    while a caller waits on its own loop. Then it passes leadership to a loop on which a caller waits.

    Args:
        lock: held while a batch is committed.
        commit_batch: makes a batch part of the history, or raises.
        on_leader_lost: resolves the appends of callers on a loop that ends, as far as the history knows their outcome.
        start_task: starts a task on the running loop.
    """

    def __init__(
        self,
        lock: CrossLoopLock,
        commit_batch: Callable[[Sequence[PendingAppend]], Awaitable[None]],
        on_leader_lost: Callable[[Sequence[PendingAppend]], None],
        start_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._lock, self._commit_batch = lock, commit_batch
        self._on_leader_lost, self._start_task = on_leader_lost, start_task
        self._guard = threading.Lock()
        self._waiting: list[PendingAppend] = []
        self._taken: list[PendingAppend] = []
        self._leader: asyncio.AbstractEventLoop | None = None  # the loop that the leader runs on
        self._last_batch_size = 0

    async def add(self, append: PendingAppend) -> Entry | None:
        """Queue an append and wait until it is acknowledged. It is committed even if the caller is cancelled."""
        here = append.acknowledged.get_loop()
        with self._guard:
            self._waiting.append(append)
            leads = self._claim_leadership(here)
            elsewhere = self._leader is not here
        if leads:
            self._start_leader()
        elif elsewhere:
            await self._watch_leader(append.acknowledged, here)
        return await append.acknowledged

    def commit_left(self) -> None:
        """Start a leader for appends that were left in the queue without a leader and without a waiting caller."""
        here = asyncio.get_running_loop()
        with self._guard:
            left = any(not one.is_done for one in (*self._taken, *self._waiting))
            leads = left and self._claim_leadership(here)
        if leads:
            self._start_leader()

    async def _watch_leader(self, acknowledged: asyncio.Future[Entry | None], here: asyncio.AbstractEventLoop) -> None:
        """Wait while the leader runs on another loop. If that loop is closed, lead from this one."""
        try:
            while not (await asyncio.wait((acknowledged,), timeout=_CHECK_INTERVAL))[0]:
                with self._guard:
                    leads = self._claim_leadership(here)
                if leads:
                    self._start_leader()
        except asyncio.CancelledError:
            acknowledged.cancel()
            raise

    # -- the leader -------------------------------------------------------------------------------------------------

    def _start_leader(self) -> None:
        started: list[bool] = []
        task = self._start_task(self._lead(started))
        task.add_done_callback(lambda task: started or self._on_never_started(task))

    async def _lead(self, started: list[bool]) -> None:
        """Commit batch after batch while a caller waits on this loop."""
        started.append(True)
        here = asyncio.get_running_loop()
        batch: list[PendingAppend] = []
        try:
            leads = True
            while leads:
                await self._linger()
                async with self._lock.hold():
                    batch = self._take_batch(here)
                    if not batch:
                        return
                    try:
                        await self._commit_batch(batch)
                    except Exception as problem:  # noqa: BLE001 - raised where each caller waits
                        acknowledge(batch, problem)
                leads = self._keeps_leading(here)
        except GeneratorExit:  # collected after its loop was closed: no caller is left on it
            raise
        except BaseException:
            self._on_leader_lost(self._resign(batch, here))
            raise

    def _on_never_started(self, task: asyncio.Task[None]) -> None:
        """Resign for a leader that was cancelled before its first step."""
        self._on_leader_lost(self._resign((), task.get_loop()))

    def _become_leader(self) -> None:
        """Lead on this loop after the leader of another loop passed leadership here. No caller may wait by now."""
        if self._keeps_leading(asyncio.get_running_loop()):
            self._start_leader()

    async def _linger(self) -> None:
        """Wait a few turns of the loop if the previous batch was larger than the queue is now.

        The callers of that batch were just acknowledged and are likely to append again. Together their appends cost one
        write and one sync. Without the wait, the first of them would be written alone while the others wait for it. A
        single caller lingers at most once.
        """
        before = self._last_batch_size
        turns = -(-before // _per_turn(before))
        for _ in range(turns + _LINGER_TURNS if before > 1 else 0):
            if len(self._waiting) >= before:
                return
            await asyncio.sleep(0)

    def _take_batch(self, here: asyncio.AbstractEventLoop) -> list[PendingAppend]:
        """Return all waiting appends; none if there are none, or if the leader of another loop was started."""
        with self._guard:
            # An append that was taken and is not done belonged to a leader whose loop was closed.
            self._waiting[:0] = [one for one in self._taken if not one.is_done]
            self._taken = []
            if not self._leads_on(here):
                return []
            self._taken, self._waiting = self._waiting, []
            self._last_batch_size = len(self._taken)
            return self._taken

    def _keeps_leading(self, here: asyncio.AbstractEventLoop) -> bool:
        """True if this loop leads the next batch. False if nothing waits, or another loop was made the leader."""
        with self._guard:
            self._taken = [one for one in self._taken if not one.is_done]
            return self._leads_on(here)

    def _resign(self, left: Sequence[PendingAppend], here: asyncio.AbstractEventLoop) -> list[PendingAppend]:
        """Pass leadership to a loop on which a caller waits, because the leader was cancelled and its loop ends.

        Args:
            left: the batch that was taken and not committed; it comes first again.
            here: the loop that ends.

        Returns:
            The appends whose callers are on the loop that ends.
        """
        with self._guard:
            self._taken = [one for one in self._taken if one not in left]
            waiting = [one for one in (*left, *self._waiting) if not one.is_done]
            self._waiting = [one for one in waiting if one.acknowledged.get_loop() is not here]
            if not self._pass_leadership():
                self._leader = None
            return [one for one in waiting if one.acknowledged.get_loop() is here]

    # -- under the guard --------------------------------------------------------------------------------------------

    def _claim_leadership(self, here: asyncio.AbstractEventLoop) -> bool:
        """Make this loop the leader's if there is no leader or its loop was closed. True if it became so."""
        if self._leader is not None and not self._leader.is_closed():
            return False
        self._leader = here
        return True

    def _is_awaited_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        return any(one.acknowledged.get_loop() is loop and one.is_awaited() for one in self._waiting)

    def _leads_on(self, here: asyncio.AbstractEventLoop) -> bool:
        if not self._waiting:
            self._leader = None
            return False
        # When no caller waits any more, what is left is committed all the same.
        return self._is_awaited_on(here) or not self._pass_leadership()

    def _pass_leadership(self) -> bool:
        """Start a leader on the first loop on which a caller waits. False if there is none."""
        for append in self._waiting:
            loop = append.acknowledged.get_loop()
            if append.is_awaited():
                with suppress(RuntimeError):  # the loop was closed in this very moment
                    loop.call_soon_threadsafe(self._become_leader)
                    self._leader = loop
                    return True
        return False


def acknowledge(batch: Sequence[PendingAppend], problem: Exception | None = None) -> None:
    """Resolve appends with their entries, or with the reason why they are not part of the history.

    Callers on the running loop are acknowledged a few in a turn, so that other tasks of the loop run in between.
    """
    here = asyncio.get_running_loop()
    ours: list[PendingAppend] = []
    for append in batch:
        if append.is_done:
            continue
        append.is_done = True
        loop = append.acknowledged.get_loop()
        if loop is here:
            ours.append(append)
        elif not loop.is_closed():
            with suppress(RuntimeError):  # the loop was closed in this very moment
                loop.call_soon_threadsafe(_resolve, append, problem)
    _resolve_in_turns(ours, _per_turn(len(ours)), problem)


def _per_turn(count: int) -> int:
    """Return how many of `count` appends are acknowledged in one turn of the loop."""
    return max(_MIN_PER_TURN, -(-count // _MAX_TURNS))


def _resolve_in_turns(batch: Sequence[PendingAppend], per_turn: int, problem: Exception | None) -> None:
    for append in batch[:per_turn]:
        _resolve(append, problem)
    if len(batch) > per_turn:
        asyncio.get_running_loop().call_soon(_resolve_in_turns, batch[per_turn:], per_turn, problem)


def _resolve(append: PendingAppend, problem: Exception | None) -> None:
    if append.acknowledged.done():
        return
    resolve(append.acknowledged, append.entry, problem)
    append.acknowledged.exception()  # a caller that was cancelled does not retrieve it
