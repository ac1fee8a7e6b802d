"""A store on a server, complete but for the server's `Driver`.

`LeasedStore` translates the store protocol into requests to its driver. Requests run on the driver's background loop.
See `protocol` for what keeps a change from being applied twice, in part, or by a writer that lost its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from amplifier_context_core.errors import SessionLost, StoreError
from amplifier_context_core.stores.codec import decode_entry
from amplifier_context_core.stores.protocol import Extent, OnRepair, Repair, SessionInfo, index_range
from amplifier_context_core.stores.validation import check_index, check_session_id, no_session, session_exists
from amplifier_context_core.stores.yielding import yield_gil
from amplifier_context_core.transcript.entry import Entry

from .loop_thread import RefCounted
from .protocol import YIELD_EVERY, Driver, EntryRow, Lease, RewriteResult, encode_rows
from .sessions import LeasedSessions, lease_lost, retry_once

log = logging.getLogger(__name__)


class LeasedStore(LeasedSessions):
    """A store on a server. Each object leases for itself: two in one process are two writers.

    Args:
        drivers: the drivers of this process.
        key: of this store's driver among them.
        ttl: seconds until a lease that is not renewed expires.
        archive: keep what edits and interrupts take out of a history.
    """

    def __init__(self, drivers: RefCounted[Any, Any], key: Any, *, ttl: float, archive: bool) -> None:
        super().__init__(drivers, key, ttl=ttl)
        self._archive = archive

    # -- the protocol ---------------------------------------------------------------------------------------------

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        check_session_id(session_id)

        async def work(driver: Driver) -> Extent:
            async with self._session_lock(session_id):
                await self._resolve_outcome(driver, session_id)
                lease = self._leases.get(session_id)
                if lease is not None:
                    if not lease.is_lost:
                        await self._verify_lease(driver, lease)
                    if lease.is_lost:
                        del self._leases[session_id]
                lease = await self._lease(driver, session_id)
                lease.on_repair = on_repair or lease.on_repair
                return lease.extent

        return await self._call(work)

    async def release(self, session_id: str) -> None:
        check_session_id(session_id)

        async def work(driver: Driver) -> None:
            async with self._session_lock(session_id):
                await self._release(driver, session_id)

        await self._call(work, begin=False)

    async def extent(self, session_id: str) -> Extent:
        state = await self._read(session_id, lambda driver: driver.state(session_id))
        return state.extent if state and state.created else Extent()

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        check_session_id(session_id)
        given = tuple(entries)
        if not given:
            return

        async def work(driver: Driver, lease: Lease) -> None:
            rows = encode_rows(session_id, given)
            length, last_seq = lease.extent.length, lease.extent.last_seq
            after = Extent(length + len(rows), max(last_seq, *(row.seq for row in rows)))
            await self._apply(
                driver,
                lease,
                lambda revision: driver.append(lease, revision, rows, self._ttl),
                after,
            )

        await self._change(session_id, work)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        return await self._entries(session_id, lambda driver: driver.read(session_id, start, stop), start, stop)

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        check_session_id(session_id)
        wanted = sorted({seq for seq in seqs if 0 < seq < 2**63})
        if not wanted:
            return []
        return await self._entries(session_id, lambda driver: driver.find(session_id, wanted))

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        given = tuple(entries)

        async def work(driver: Driver, lease: Lease) -> None:
            check_index(session_id, keep, lease.extent.length)
            if keep == lease.extent.length and not given:
                return
            rows = encode_rows(session_id, given)
            after = Extent(keep + len(rows), max((lease.extent.last_seq, *(row.seq for row in rows))))
            await self._apply(
                driver,
                lease,
                lambda revision: driver.replace(lease, revision, keep, rows, self._archive, self._ttl),
                after,
            )

        await self._change(session_id, work)

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        given = tuple(entries)
        # Erase even if no message differs: an earlier call may have replaced the messages and failed to erase them.
        erases = bool(given) and all(entry.is_redacted for entry in given)

        async def work(driver: Driver, lease: Lease) -> None:
            if not lease.grant.created:
                return
            rows = encode_rows(session_id, given)
            result = RewriteResult.OTHER_MESSAGES  # also if no answer comes

            async def send(revision: int) -> RewriteResult:
                nonlocal result
                applied = await driver.rewrite(lease, revision, rows, self._ttl)
                result = applied or result
                return applied

            await self._apply(driver, lease, send)
            if erases or result is RewriteResult.OTHER_MESSAGES:
                await driver.erase(lease)

        await self._change(session_id, work)

    async def archived(self, session_id: str) -> list[Entry]:
        return await self._entries(session_id, lambda driver: driver.archived(session_id))

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        check_session_id(session_id)

        async def work(driver: Driver, lease: Lease) -> None:
            check_index(session_id, covered, lease.extent.length)
            await self._apply(
                driver, lease, lambda revision: driver.save_checkpoint(lease, revision, covered, data, self._ttl)
            )

        await self._change(session_id, work)

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        return await self._read(session_id, lambda driver: driver.load_checkpoint(session_id))

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        check_session_id(session_id)
        check_session_id(new_id)

        async def work(driver: Driver) -> None:
            async with contextlib.AsyncExitStack() as locks:
                for name in sorted({session_id, new_id}):  # in one order, so that two forks cannot deadlock
                    await locks.enter_async_context(self._session_lock(name))
                await self._fork(driver, session_id, new_id, length)

        await self._call(work)

    async def sessions(self) -> list[SessionInfo]:
        return await self._call(lambda driver: retry_once(driver.sessions))

    async def delete(self, session_id: str) -> None:
        async def work(driver: Driver, lease: Lease) -> None:
            if not await retry_once(lambda: driver.delete(lease)):
                state = await retry_once(lambda: driver.state(session_id))
                if state is not None:
                    raise lease_lost(lease, state)
            del self._leases[session_id]

        await self._change(check_session_id(session_id), work)

    async def verify(self, session_id: str) -> list[str]:
        """Return what is wrong with a session, one line each. Changes nothing and leases nothing."""
        return await self._read(session_id, lambda driver: driver.verify(session_id))

    async def close(self) -> None:
        await self._call(self._release_all, begin=False)

    # -- changes --------------------------------------------------------------------------------------------------

    async def _fork(self, driver: Driver, session_id: str, new_id: str, length: int | None) -> None:
        await self._resolve_outcome(driver, session_id)
        await self._resolve_outcome(driver, new_id)
        parent = await retry_once(lambda: driver.state(session_id))
        if parent is None or not parent.created:
            raise no_session(session_id)
        existing = await retry_once(lambda: driver.state(new_id))
        if existing is not None and existing.created:
            raise session_exists(new_id)
        count = parent.extent.length if length is None else length
        check_index(session_id, count, parent.extent.length)
        was_open = new_id in self._leases
        lease = await self._lease(driver, new_id)
        try:
            if lease.is_lost:
                raise SessionLost(new_id, lease.lost_to or "")
            if lease.grant.created:
                raise session_exists(new_id)
            after = Extent(count, parent.extent.last_seq)
            await self._apply(
                driver, lease, lambda revision: driver.fork(lease, revision, session_id, count, self._ttl), after
            )
        except StoreError:
            if not was_open:
                with contextlib.suppress(StoreError):
                    await self._release(driver, new_id)
            raise

    # -- entries --------------------------------------------------------------------------------------------------

    async def _entries(
        self,
        session_id: str,
        ask: Callable[[Driver], Awaitable[list[EntryRow]]],
        start: int | None = None,
        stop: int | None = None,
    ) -> list[Entry]:
        """Return the entries of the requested rows, without damaged ones.

        If a range was read and the session is open in this store, damage is repaired.
        """
        check_session_id(session_id)

        async def work(driver: Driver) -> list[Entry]:
            async with self._session_lock(session_id):
                await self._resolve_outcome(driver, session_id)
                rows = await retry_once(lambda: ask(driver))
                entries, damaged = await _decode_rows(session_id, rows)
                lease = self._leases.get(session_id)
                missing = 0
                if lease is not None and not lease.is_lost and start is not None:
                    missing = len(index_range(lease.extent.length, start, stop)) - len(rows)
                    if damaged or missing > 0:
                        with contextlib.suppress(SessionLost):  # then its new writer repairs it; reading needs no lease
                            await self._repair(driver, lease, damaged)
                elif damaged:
                    log.warning("session %r: %d damaged messages were left out", session_id, len(damaged))
                return entries

        return await self._call(work)

    async def _repair(self, driver: Driver, lease: Lease, damaged: list[int]) -> None:
        was = lease.extent
        await self._apply(driver, lease, lambda revision: driver.repair(lease, revision, damaged, self._ttl))
        state = await retry_once(lambda: driver.state(lease.session_id))
        lease.advance(lease.grant.revision, state.extent if state else None)
        lost = was.length - lease.extent.length
        quarantine = f"the damaged rows on {driver.display_name}" if damaged else ""
        self._report(lease, Repair(lease.session_id, "unreadable messages were taken out", lost, quarantine))


async def _decode_rows(session_id: str, rows: Sequence[EntryRow]) -> tuple[list[Entry], list[int]]:
    """Return the entries of rows, and the seqs of rows that are damaged."""
    entries: list[Entry] = []
    damaged: list[int] = []
    for index, row in enumerate(rows, 1):
        try:
            entries.append(decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra))
        except StoreError:
            damaged.append(row.seq)
        if index % YIELD_EVERY == 0:
            yield_gil()
            await asyncio.sleep(0)
    return entries, damaged
