"""A store on a server, complete but for the server's `Driver`: leases, and calls on the driver's loop.

Calls for one session run one after another. A call takes the session's lock. If the outcome of an earlier change is
unknown, it leases the session again. A change acquires the lease unless this store holds it. See `protocol` for what
keeps a change from being applied twice, in part, or by a writer that lost its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast
from weakref import WeakValueDictionary

from amplifier_context_core.errors import OutcomeUnknown, SessionInUse, SessionLost, StoreError
from amplifier_context_core.stores.protocol import Extent, OnRepair, Repair, SessionInfo, index_range, report_repair
from amplifier_context_core.stores.validation import check_index, check_session_id, no_session, session_exists
from amplifier_context_core.transcript.entry import Entry

from .loop_thread import RefCounted
from .protocol import (
    GONE,
    Change,
    ConnectionLost,
    Driver,
    EntryRow,
    Lease,
    NotDurable,
    SessionRow,
    decode_row,
    decode_rows,
    encode_rows,
    new_revision,
)
from .url import ServerSettings

log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D", bound=Driver)

COPY = "Copy the session to another store with `amplifier-context copy`, which leaves such messages out, or delete it"


class LeasedStore(Generic[D]):
    """A store on a server. Each object leases for itself: two in one process are two writers."""

    def __init__(self, drivers: RefCounted[Any, D], settings: ServerSettings, *, archive: bool) -> None:
        self._drivers, self._key = drivers, settings
        self._ttl, self._archive = settings.lease_ttl, archive
        self._lock = threading.Lock()
        self._driver: D | None = None
        self._running_calls = 0
        self._closing = False
        self._leases: dict[str, Lease] = {}
        self._requested_tokens: dict[str, str] = {}  # by session: of leases that were asked for without an answer yet
        self._session_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._renewal: asyncio.Task[None] | None = None

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        async def work(driver: Driver) -> Extent:
            lease = self._leases.get(session_id)
            if lease is not None and not lease.is_lost:
                row = await retry_once(lambda: driver.state(session_id))
                if lease.row.created if row is None else row.token != lease.row.token:
                    lease.lose(row)
            if lease is not None and lease.is_lost:
                del self._leases[session_id]
            lease = await self._lease(driver, session_id)
            lease.on_repair, lease.is_damaged = on_repair or lease.on_repair, False
            return lease.row.extent

        return await self._locked(session_id, work)

    async def release(self, session_id: str) -> None:
        check_session_id(session_id)

        async def work(driver: Driver) -> None:
            async with self._session_lock(session_id):
                await self._release(driver, session_id)

        await self._call(work, begin=False)

    async def extent(self, session_id: str) -> Extent:
        row = await self._read(session_id, lambda driver: driver.state(session_id))
        return row.extent if row and row.created else Extent()

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        if given := tuple(entries):
            await self._replace(session_id, None, given)

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        await self._replace(session_id, keep, tuple(entries))

    async def _replace(self, session_id: str, keep: int | None, entries: Sequence[Entry]) -> None:
        async def work(driver: Driver, lease: Lease) -> None:
            first = lease.length if keep is None else keep
            check_index(session_id, first, lease.length)
            if first == lease.length and not entries:
                return
            rows = encode_rows(session_id, entries)
            send = partial(driver.replace, lease, first, rows, self._archive)
            await self._apply(driver, lease, send, lease.extent_with(rows, first))

        await self._change(session_id, work)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        return await self._entries(session_id, lambda driver: driver.read(session_id, start, stop), start, stop)

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        check_session_id(session_id)
        wanted = sorted({seq for seq in seqs if 0 < seq < 2**63})
        return await self._entries(session_id, lambda driver: driver.find(session_id, wanted)) if wanted else []

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        given = tuple(entries)

        async def work(driver: Driver, lease: Lease) -> None:
            if not lease.row.created:
                return
            await self._apply(driver, lease, partial(driver.rewrite, lease, encode_rows(session_id, given)))
            # Even if no message differs: an earlier call may have replaced the messages and failed to erase them.
            if any(entry.is_redacted for entry in given):
                await driver.erase(lease)

        await self._change(session_id, work)

    async def archived(self, session_id: str) -> list[Entry]:
        return await self._entries(session_id, lambda driver: driver.archived(session_id))

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        async def work(driver: Driver, lease: Lease) -> None:
            check_index(session_id, covered, lease.length)
            await self._apply(driver, lease, partial(driver.save_checkpoint, lease, covered, data))

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
                    await self._resolve_outcome(driver, name)
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
                    send = partial(driver.fork, lease, session_id, count)
                    await self._apply(driver, lease, send, Extent(count, parent.extent.last_seq))
                except StoreError:
                    if not was_open:
                        with contextlib.suppress(StoreError):
                            await self._release(driver, new_id)
                    raise

        await self._call(work)

    async def sessions(self) -> list[SessionInfo]:
        return await self._call(lambda driver: retry_once(driver.sessions))

    async def delete(self, session_id: str) -> None:
        async def work(driver: Driver, lease: Lease) -> None:
            is_unknown = False
            try:
                try:
                    is_deleted = await driver.delete(lease)
                except ConnectionLost:
                    is_unknown = True
                    is_deleted = await driver.delete(lease)
                row = None if is_deleted else await retry_once(lambda: driver.state(session_id))
            except StoreError as problem:
                if is_unknown or isinstance(problem, NotDurable):
                    raise OutcomeUnknown(f"session {session_id!r}: {problem}; delete it again") from problem
                raise
            if row is not None:
                raise lease.lose(row)
            del self._leases[session_id]

        await self._change(check_session_id(session_id), work, of_damaged=True)

    async def verify(self, session_id: str) -> list[str]:
        """Return what is wrong with a session, one line each. Changes nothing and leases nothing."""
        return await self._read(session_id, lambda driver: _problems(driver, session_id))

    async def close(self) -> None:
        await self._call(self._release_all, begin=False)

    async def _entries(
        self,
        session_id: str,
        ask: Callable[[D], Awaitable[list[EntryRow]]],
        start: int | None = None,
        stop: int | None = None,
    ) -> list[Entry]:
        """Return the entries of the requested rows. Damaged ones are left out and reported.

        After that the session is not changed until it is opened again: indexes would not be those of its reader.
        """

        async def work(driver: D) -> tuple[list[Entry], int, OnRepair | None]:
            rows = await retry_once(lambda: ask(driver))
            entries = await decode_rows(session_id, rows)
            left_out, lease = len(rows) - len(entries), self._leases.get(session_id)
            if lease is None or lease.is_lost:
                return entries, left_out, None
            if start is not None:
                left_out = len(index_range(lease.length, start, stop)) - len(entries)
            is_known, lease.is_damaged = lease.is_damaged, lease.is_damaged or left_out > 0
            return entries, 0 if is_known else left_out, lease.on_repair

        entries, left_out, on_repair = await self._locked(session_id, work)
        if left_out > 0:
            which = "damaged message was" if left_out == 1 else "damaged messages were"
            report_repair(Repair(session_id, f"{left_out:,} {which} left out. {COPY}", left_out), on_repair)
        return entries

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _call(self, work: Callable[[D], Coroutine[Any, Any, T]], *, begin: bool = True) -> T:
        """Run work on the driver's loop. With `begin` false, only if this store has a driver."""
        with self._lock:
            driver = self._driver
            if driver is None or driver.loop_thread.pid != os.getpid():
                if not begin:
                    return cast(T, None)
                if driver is not None:
                    raise StoreError("this store was in use when the process forked; open another one in the child")
                driver = self._driver = self._drivers.acquire(self._key)
            self._running_calls += 1
        return await driver.loop_thread.run(self._run(driver, work))

    async def _run(self, driver: D, work: Callable[[D], Coroutine[Any, Any, T]]) -> T:
        """Run work, and give the driver back after the last call of a store that is closing."""
        try:
            return await work(driver)
        finally:
            with self._lock:
                self._running_calls -= 1
                is_done = self._closing and not self._running_calls and not self._leases
                is_last_user = is_done and self._drivers.release(self._key)
                if is_done:
                    self._driver, self._closing = None, False
            if is_done and self._renewal is not None:
                self._renewal.cancel()
                self._renewal = None
            if is_last_user:
                await driver.stop()
                driver.loop_thread.stop()

    def _session_lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock that calls for one session hold one after another. For the driver's loop."""
        lock = self._session_locks.get(session_id)
        if lock is None:
            lock = self._session_locks[session_id] = asyncio.Lock()
        return lock

    async def _locked(self, session_id: str, work: Callable[[D], Awaitable[T]]) -> T:
        """Run work under the session's lock, after the outcome of the change before is known."""
        check_session_id(session_id)

        async def run(driver: D) -> T:
            async with self._session_lock(session_id):
                await self._resolve_outcome(driver, session_id)
                return await work(driver)

        return await self._call(run)

    async def _read(self, session_id: str, ask: Callable[[D], Awaitable[T]]) -> T:
        """Run a request that changes nothing; it is repeated once if the connection breaks."""
        return await self._locked(session_id, lambda driver: retry_once(lambda: ask(driver)))

    async def _change(
        self, session_id: str, change: Callable[[Driver, Lease], Awaitable[None]], *, of_damaged: bool = False
    ) -> None:
        """Run a change under the session's lock and lease. With `of_damaged`, also if messages of it are damaged."""

        async def work(driver: Driver) -> None:
            lease = await self._lease(driver, session_id)
            if lease.is_lost:
                raise SessionLost(session_id, lease.lost_to or "")
            if lease.is_damaged and not of_damaged:
                raise StoreError(f"session {session_id!r} has damaged messages, so nothing was written. {COPY}")
            await change(driver, lease)

        await self._locked(session_id, work)

    # -- leases ---------------------------------------------------------------------------------------------------

    async def _resolve_outcome(self, driver: Driver, session_id: str) -> None:
        """Lease a session again if the outcome of an earlier change is unknown."""
        lease = self._leases.get(session_id)
        if lease is None or lease.unknown is None or lease.is_lost:
            return
        before, unknown = lease.row, lease.unknown
        try:
            lease.row = await self._acquire(driver, session_id, before.token)
        except SessionInUse as problem:
            lease.lost_to = problem.holder
            return
        lease.unknown = None
        if lease.row.revision == unknown:
            log.warning("session %r: a change whose outcome was unknown was made", session_id)
        elif lease.row.revision != before.revision:
            lease.lost_to = "another writer, which has released it since" if lease.row.created else ""
            await retry_once(lambda: driver.release(lease))

    async def _acquire(self, driver: Driver, session_id: str, former: str = "") -> SessionRow:
        """Lease a session under a new token, and return its row."""
        # A request whose answer was lost is repeated under the same token.
        token = self._requested_tokens.setdefault(session_id, uuid.uuid4().hex)
        row = await retry_once(lambda: driver.acquire(session_id, token, self._ttl, former))
        del self._requested_tokens[session_id]
        if row is None or row.token != token:
            raise SessionInUse(session_id, row.holder if row else "another writer")
        return row

    async def _lease(self, driver: Driver, session_id: str) -> Lease:
        lease = self._leases.get(session_id)
        if lease is None:
            lease = self._leases[session_id] = Lease(session_id, await self._acquire(driver, session_id))
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.get_running_loop().create_task(self._renew(driver))
        return lease

    async def _renew(self, driver: Driver) -> None:
        """Keep leases from expiring while nothing is written. The next change finds out whether one was lost."""
        while self._leases:
            await asyncio.sleep(self._ttl / 3)
            leases = [lease for lease in self._leases.values() if not lease.is_lost]
            if not leases:
                continue
            try:
                await retry_once(lambda leases=leases: driver.renew(leases, self._ttl))
            except StoreError as problem:
                log.warning("leases of %d sessions could not be renewed, trying again: %s", len(leases), problem)

    async def _release(self, driver: Driver, session_id: str) -> None:
        if session_id not in self._leases:
            return
        try:
            await self._resolve_outcome(driver, session_id)
            lease = self._leases[session_id]
            if not lease.is_lost:
                await retry_once(lambda: driver.release(lease))
        except StoreError as problem:
            raise StoreError(
                f"session {session_id!r} could not be released; it is free in {self._ttl:g} s at the latest: {problem}"
            ) from problem
        finally:
            del self._leases[session_id]

    async def _release_all(self, driver: Driver) -> None:
        """Release every session. After the first failure the others are dropped: their leases expire."""
        self._closing = True
        is_reachable = True
        for session_id in list(self._leases):
            async with self._session_lock(session_id):
                try:
                    if is_reachable:
                        await self._release(driver, session_id)
                except StoreError as problem:
                    is_reachable = False
                    log.warning("%s", problem)
                self._leases.pop(session_id, None)

    # -- changes --------------------------------------------------------------------------------------------------

    async def _apply(
        self, driver: Driver, lease: Lease, send: Callable[[Change], Awaitable[object]], after: Extent | None = None
    ) -> None:
        """Apply a change once; `send` it, under its revision, again if no answer came. Raise `OutcomeUnknown` if none
        came, and the change may have been applied.
        """
        revision = new_revision()
        for attempt in (1, 2, 3):
            try:
                if await send(Change(revision, self._ttl)) or await self._was_applied(driver, lease, revision):
                    lease.row = lease.row._replace(revision=revision, extent=after or lease.row.extent, created=True)
                    lease.unknown = None
                    return
            except SessionLost:
                raise
            except StoreError as problem:
                if isinstance(problem, (ConnectionLost, NotDurable)):
                    lease.unknown = revision
                if isinstance(problem, ConnectionLost) and attempt < 3:
                    continue
                if lease.unknown is not None:
                    raise OutcomeUnknown(
                        f"session {lease.session_id!r}: {problem}; the next call finds out whether the change was made"
                    ) from problem
                raise
        raise StoreError(f"session {lease.session_id!r} could not be leased again on {driver.display_name}; try again")

    async def _was_applied(self, driver: Driver, lease: Lease, revision: int) -> bool:
        """Return True if a change was refused because it had been applied before; raise if the lease is lost."""
        row = await driver.state(lease.session_id)
        if row is None and not lease.row.created:
            # Nothing was ever written, and the lease itself has expired.
            row = await driver.acquire(lease.session_id, lease.row.token, self._ttl)
            if row is None or row.token != lease.row.token or row.created:
                raise lease.lose(row)
            lease.row = row
            return False
        if row is None or row.token != lease.row.token:
            raise lease.lose(row)
        if row.revision != revision:
            raise StoreError(f"session {lease.session_id!r} was changed by a writer without a lease; open it again")
        return True


async def retry_once(ask: Callable[[], Awaitable[T]]) -> T:
    """Send a request, and send it once more if the connection breaks. For requests that are harmless to repeat."""
    try:
        return await ask()
    except ConnectionLost:
        return await ask()


async def _problems(driver: Driver, session_id: str) -> list[str]:
    before = await driver.state(session_id)
    rows, archived = await driver.read(session_id, 0, None), await driver.archived(session_id)
    after = await driver.state(session_id)
    problems: list[str] = []
    if before and after and after.revision == before.revision and len(rows) != before.extent.length:
        problems.append(f"its record says {before.extent.length:,} messages; {len(rows):,} of them are there")
    for index, row in enumerate(rows):
        if _is_damaged(session_id, row):
            name = f" (m{row.seq})" if row.seq > 0 else ""
            problems.append(f"the message at index {index:,}{name} is {'gone' if row is GONE else 'damaged'}")
    return problems + [f"m{row.seq} of the archive is damaged" for row in archived if _is_damaged(session_id, row)]


def _is_damaged(session_id: str, row: EntryRow) -> bool:
    try:
        decode_row(session_id, row)
    except StoreError:
        return True
    return False
