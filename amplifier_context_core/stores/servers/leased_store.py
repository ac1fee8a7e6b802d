"""A whole store but for the server: claims, the order of calls, and changes that are made once.

Each object claims for itself. What it asks of the server goes to a `Line`, mostly on the background loop of that line;
see `leases` for what keeps changes from being made twice, half, or by a writer that lost its claim.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from ...errors import SessionInUse, SessionLost, StoreError
from ...locks import Gate
from ...transcript.transcript import Entry
from ..codec import decode_entry
from ..protocol import Extent, OnRepair, Repair, SessionInfo, index_range, report_repair
from ..validation import check_index, check_session_id, no_session, session_exists
from .changes import append_here, lost, make_once, repeated, settle
from .leases import (
    CHUNK,
    Claim,
    Line,
    Rewritten,
    Row,
    breathe,
    holder,
    rows_of,
)
from .owner import Shared

log = logging.getLogger(__name__)

T = TypeVar("T")

Change = Callable[[Line, Claim], Awaitable[None]]

_LIGHT = 32_000  # bytes of a message that is sent from its caller's loop: it is made JSON in some 30 us


class LeasedStore:
    """A store on a server. Each object claims for itself: two in one process are two writers.

    Args:
        lines: the lines of this process.
        key: which of them.
        ttl: seconds until a claim that is not renewed expires.
        archive: keep what edits and interrupts take out of a history.
    """

    def __init__(self, lines: Shared[Any, Any], key: Any, *, ttl: float, archive: bool) -> None:
        self._lines, self._key = lines, key
        self._ttl, self._archive = ttl, archive
        self._lock = threading.Lock()
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._line: Line | None = None
        self._calls = 0
        self._ending = False
        self._claims: dict[str, Claim] = {}
        self._fences: dict[str, str] = {}  # of claims whose answer has not come: asked for again by the same name
        self._turns: WeakValueDictionary[str, Gate] = WeakValueDictionary()
        self._here = Gate()  # one caller at a time appends from his own loop
        self._renewing: asyncio.Task[None] | None = None
        self._repairs: list[tuple[Repair, OnRepair | None]] = []

    # -- the protocol ---------------------------------------------------------------------------------------------

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        check_session_id(session_id)

        async def work(line: Line) -> Extent:
            async with self._turn(session_id):
                await self._settle(line, session_id)
                claim = self._claims.get(session_id)
                if claim is not None:
                    if not claim.lost_to:
                        await self._look(line, claim)
                    if claim.lost_to:
                        del self._claims[session_id]
                claim = await self._claimed(line, session_id)
                claim.on_repair = on_repair or claim.on_repair
                return claim.extent

        return await self._call(work)

    async def release(self, session_id: str) -> None:
        check_session_id(session_id)

        async def work(line: Line) -> None:
            async with self._turn(session_id):
                await self._release(line, session_id)

        await self._call(work, begin=False)

    async def extent(self, session_id: str) -> Extent:
        return await self._reading(session_id, lambda line: line.extent(session_id)) or Extent()

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        check_session_id(session_id)
        given = tuple(entries)
        if not given:
            return

        async def work(line: Line, claim: Claim) -> None:
            rows = rows_of(session_id, given)
            length, last_seq = claim.extent.length, claim.extent.last_seq
            after = Extent(length + len(rows), max(last_seq, *(row.seq for row in rows)))
            await self._make(
                line,
                claim,
                lambda change: line.append(claim, change, rows, self._ttl),
                after,
                appended=len(rows),
            )

        if not await self._append_here(session_id, given, work):
            await self._changing(session_id, work)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        return await self._entries(session_id, lambda line: line.read(session_id, start, stop), start, stop)

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        check_session_id(session_id)
        wanted = sorted({seq for seq in seqs if 0 < seq < 2**63})
        if not wanted:
            return []
        return await self._entries(session_id, lambda line: line.find(session_id, wanted))

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        given = tuple(entries)

        async def work(line: Line, claim: Claim) -> None:
            check_index(session_id, keep, claim.extent.length)
            if keep == claim.extent.length and not given:
                return
            rows = rows_of(session_id, given)
            after = Extent(keep + len(rows), max((claim.extent.last_seq, *(row.seq for row in rows))))
            await self._make(
                line,
                claim,
                lambda change: line.replace(claim, change, keep, rows, self._archive, self._ttl),
                after,
            )

        await self._changing(session_id, work)

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        given = tuple(entries)
        erases = bool(given) and all(entry.erased is not None for entry in given)  # a former call may not have erased

        async def work(line: Line, claim: Claim) -> None:
            if not claim.held.created:
                return
            rows = rows_of(session_id, given)
            done = Rewritten.OTHER_MESSAGES  # also where the answer did not come

            async def send(change: int) -> Rewritten:
                nonlocal done
                made = await line.rewrite(claim, change, rows, self._ttl)
                done = made or done
                return made

            await self._make(line, claim, send)
            if erases or done is Rewritten.OTHER_MESSAGES:
                await line.erase(claim)

        await self._changing(session_id, work)

    async def archived(self, session_id: str) -> list[Entry]:
        return await self._entries(session_id, lambda line: line.archived(session_id))

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        check_session_id(session_id)

        async def work(line: Line, claim: Claim) -> None:
            check_index(session_id, covered, claim.extent.length)
            await make_once(
                line, claim, self._ttl, lambda change: line.save_checkpoint(claim, change, covered, data, self._ttl)
            )

        await self._changing(session_id, work)

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        return await self._reading(session_id, lambda line: line.load_checkpoint(session_id))

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        check_session_id(session_id)
        check_session_id(new_id)

        async def work(line: Line) -> None:
            async with contextlib.AsyncExitStack() as turns:
                for name in sorted({session_id, new_id}):  # in one order: two forks never wait for each other
                    await turns.enter_async_context(self._turn(name))
                await self._fork(line, session_id, new_id, length)

        await self._call(work)

    async def sessions(self) -> list[SessionInfo]:
        return await self._call(lambda line: repeated(line.sessions))

    async def delete(self, session_id: str) -> None:
        async def work(line: Line, claim: Claim) -> None:
            if not await repeated(lambda: line.delete(claim)):
                state = await repeated(lambda: line.state(session_id))
                if state is not None:
                    raise lost(claim, state)
            del self._claims[session_id]

        await self._changing(check_session_id(session_id), work)

    async def verify(self, session_id: str) -> list[str]:
        """What is wrong with a session, a line each; empty when all is well. Changes nothing and claims nothing."""
        return await self._reading(session_id, lambda line: line.verify(session_id))

    async def close(self) -> None:
        async def work(line: Line) -> None:
            self._ending = True
            reachable = True
            for session_id in list(self._claims):
                async with self._turn(session_id):
                    try:
                        if reachable:
                            await self._release(line, session_id)
                    except StoreError as problem:
                        reachable = False
                        log.warning("%s", problem)
                    self._claims.pop(session_id, None)

        await self._call(work, begin=False)

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _call(self, work: Callable[[Line], Coroutine[Any, Any, T]], *, begin: bool = True) -> T:
        """Do something on the line's background loop; with `begin` false only if this store has a line already."""
        with self._lock:
            if self._pid != os.getpid():
                self._start_anew()  # a forked child: claims and connections are its parent's
            line = self._line
            if line is None:
                if not begin:
                    return cast(T, None)
                line = self._line = cast(Line, self._lines.take(self._key))
            self._calls += 1
        try:
            return await line.owner.run(self._work(line, work))
        finally:
            while self._repairs:
                report_repair(*self._repairs.pop(0))

    async def _work(self, line: Line, work: Callable[[Line], Coroutine[Any, Any, T]]) -> T:
        try:
            return await work(line)
        finally:
            with self._lock:
                self._calls -= 1
                ending = self._ending and not self._calls and not self._claims
                last = ending and self._lines.give_back(self._key, line)
                if ending:
                    self._line, self._ending = None, False
            if ending and self._renewing is not None:
                self._renewing.cancel()
                self._renewing = None
            if last:
                await line.stop()
                line.owner.stop()

    def _turn(self, session_id: str) -> Gate:
        """Calls for one session are made one after another."""
        with self._lock:
            turn = self._turns.get(session_id)
            if turn is None:
                turn = self._turns[session_id] = Gate()
            return turn

    async def _reading(self, session_id: str, ask: Callable[[Line], Awaitable[T]]) -> T:
        check_session_id(session_id)

        async def work(line: Line) -> T:
            async with self._turn(session_id):
                await self._settle(line, session_id)
                return await repeated(lambda: ask(line))

        return await self._call(work)

    async def _changing(self, session_id: str, change: Change) -> None:
        async def work(line: Line) -> None:
            turn = self._turn(session_id)
            await turn.enter()
            await self._change(line, session_id, turn, change)

        await self._call(work)

    async def _change(self, line: Line, session_id: str, turn: Gate, change: Change) -> None:
        """Make a change in a turn that was taken; it ends with it."""
        try:
            await self._settle(line, session_id)
            claim = await self._claimed(line, session_id)
            if claim.lost_to:
                raise SessionLost(session_id, claim.lost_to)
            await change(line, claim)
        finally:
            turn.leave()

    # -- claims ---------------------------------------------------------------------------------------------------

    async def _settle(self, line: Line, session_id: str) -> None:
        """End the doubt about an earlier change, if there is one."""
        claim = self._claims.get(session_id)
        if claim is not None and claim.doubt is not None and not claim.lost_to:
            await settle(line, claim, self._ttl, claim.doubt)

    async def _claimed(self, line: Line, session_id: str) -> Claim:
        claim = self._claims.get(session_id)
        if claim is None:
            fence = self._fences.setdefault(session_id, uuid.uuid4().hex)
            held = await repeated(lambda: line.claim(session_id, fence, holder(), self._ttl))
            del self._fences[session_id]
            if isinstance(held, str):
                raise SessionInUse(session_id, held or "another writer")
            claim = self._claims[session_id] = Claim(session_id, fence, held, self._turn(session_id))
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.get_running_loop().create_task(self._renew(line))
        return claim

    async def _renew(self, line: Line) -> None:
        """Keep claims from expiring while nothing is written. Whether one was lost, the next change finds out."""
        while self._claims:
            await asyncio.sleep(self._ttl / 3)
            mine = [claim for claim in self._claims.values() if not claim.lost_to]
            if not mine:
                continue
            try:
                await repeated(lambda mine=mine: line.renew(mine, self._ttl))
            except StoreError as problem:
                log.warning("claims of %d sessions could not be renewed, trying again: %s", len(mine), problem)

    async def _release(self, line: Line, session_id: str) -> None:
        if session_id not in self._claims:
            return
        try:
            await self._settle(line, session_id)
            claim = self._claims[session_id]
            if not claim.lost_to:
                await repeated(lambda: line.release(claim))
        except StoreError as problem:
            raise StoreError(
                f"session {session_id!r} could not be released; it is free in {self._ttl:g} s at the latest: {problem}"
            ) from problem
        finally:
            del self._claims[session_id]

    async def _look(self, line: Line, claim: Claim) -> None:
        """Is a claim still ours? Marks it lost if not."""
        state = await repeated(lambda: line.state(claim.session_id))
        if (state is None and claim.held.created) or (state is not None and state.fence != claim.fence):
            lost(claim, state)

    # -- changes --------------------------------------------------------------------------------------------------

    async def _make(
        self,
        line: Line,
        claim: Claim,
        send: Callable[[int], Awaitable[Any]],
        after: Extent | None = None,
        appended: int = 0,
    ) -> None:
        await make_once(line, claim, self._ttl, send, after, appended)

    async def _append_here(self, session_id: str, entries: Sequence[Entry], work: Change) -> bool:
        """Append a message from the caller's own loop, where nothing is in the way: to wake the background thread, and
        then the caller's again, takes as long as the server does.

        What cannot be sent so, is refused or cut off is done by `work`, without giving up the turn.

        Returns:
            Whether it was appended; if not, nothing was tried.
        """
        claim = self._claims.get(session_id)
        if claim is None or self._calls or self._pid != os.getpid():
            return False
        if len(entries) > 1 or entries[0].tokens > _LIGHT // 4:  # a first look: an image has few tokens
            return False
        here = asyncio.get_running_loop()
        if not self._here.enter_at_once():
            return False  # one at a time: what comes together goes together, by the background loop
        try:
            turn = claim.turn
            if not turn.enter_at_once():
                return False
            leaving = True
            try:
                line = self._line
                if (
                    line is None
                    or claim.doubt is not None
                    or claim.lost_to
                    or self._claims.get(session_id) is not claim
                ):
                    return False
                (row,) = rows_of(session_id, entries)
                if len(row.message) > _LIGHT or not await append_here(line, claim, self._ttl, row):
                    turn.hand_over(None)
                    leaving = False
                    await self._call(lambda line: self._change(line, session_id, turn, work))
                return True
            finally:
                if leaving:
                    turn.leave(here)
        finally:
            self._here.leave(here)

    async def _fork(self, line: Line, session_id: str, new_id: str, length: int | None) -> None:
        await self._settle(line, session_id)
        await self._settle(line, new_id)
        parent = await repeated(lambda: line.extent(session_id))
        if parent is None:
            raise no_session(session_id)
        if await repeated(lambda: line.extent(new_id)) is not None:
            raise session_exists(new_id)
        count = parent.length if length is None else length
        check_index(session_id, count, parent.length)
        was_open = new_id in self._claims
        claim = await self._claimed(line, new_id)
        try:
            if claim.lost_to:
                raise SessionLost(new_id, claim.lost_to)
            if claim.held.created:
                raise session_exists(new_id)
            after = Extent(count, parent.last_seq)
            await make_once(
                line, claim, self._ttl, lambda change: line.fork(claim, change, session_id, count, self._ttl), after
            )
        except StoreError:
            if not was_open:
                with contextlib.suppress(StoreError):
                    await self._release(line, new_id)
            raise

    # -- entries --------------------------------------------------------------------------------------------------

    async def _entries(
        self,
        session_id: str,
        ask: Callable[[Line], Awaitable[list[Row]]],
        start: int | None = None,
        stop: int | None = None,
    ) -> list[Entry]:
        """The entries of what was asked for; damage is mended when the session is open here and a range was read."""
        check_session_id(session_id)

        async def work(line: Line) -> list[Entry]:
            async with self._turn(session_id):
                await self._settle(line, session_id)
                rows = await repeated(lambda: ask(line))
                entries, damaged = await _entries_of(session_id, rows)
                claim = self._claims.get(session_id)
                missing = 0
                if claim is not None and not claim.lost_to and start is not None:
                    missing = len(index_range(claim.extent.length, start, stop)) - len(rows)
                    if damaged or missing > 0:
                        with contextlib.suppress(SessionLost):  # then it is another's to mend; reading needs no claim
                            await self._mend(line, claim, damaged)
                elif damaged:
                    log.warning("session %r: %d damaged messages were left out", session_id, len(damaged))
                return entries

        return await self._call(work)

    async def _mend(self, line: Line, claim: Claim, damaged: list[int]) -> None:
        was = claim.extent
        await self._make(line, claim, lambda change: line.mend(claim, change, damaged, self._ttl))
        state = await repeated(lambda: line.state(claim.session_id))
        claim.moved(claim.held.change, state.extent if state else None)
        gone = was.length - claim.extent.length
        kept = f"the damaged rows on {line.where}" if damaged else ""
        self._tell(claim, Repair(claim.session_id, "what could not be read was taken out", gone, kept))

    def _tell(self, claim: Claim, repair: Repair) -> None:
        self._repairs.append((repair, claim.on_repair))


async def _entries_of(session_id: str, rows: Sequence[Row]) -> tuple[list[Entry], list[int]]:
    """Entries, and the seqs of rows that are damaged."""
    entries: list[Entry] = []
    damaged: list[int] = []
    for index, row in enumerate(rows, 1):
        try:
            entries.append(decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra))
        except StoreError:
            damaged.append(row.seq)
        if index % CHUNK == 0:
            breathe()
            await asyncio.sleep(0)
    return entries, damaged
