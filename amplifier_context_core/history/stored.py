"""A transcript and its store, changed together.

Between two changes both hold the same entries. The store is changed first. A change that it refused is not made in the
transcript. Where they may differ (a change was interrupted, the store lost entries), they are reconciled by seq before
the next change. No entry in memory is given up; entries that the store lost are written to it again.

The caller holds the history's lock around every method but `find` and `read`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Literal

from ..errors import ContextError, NotErased, NotLoaded, OutcomeUnknown, SessionInUse, SessionLost
from ..futures import YIELD_EVERY
from ..messages.parsing import Message
from ..stores import UNCOUNTED, Extent, Repair, Store, read_in_batches
from ..stores.validation import derived_session_id
from ..transcript.entry import Entry
from ..transcript.transcript import Transcript
from .reconcile import Change, reconcile

log = logging.getLogger(__name__)

OnConflict = Literal["error", "fork"]
_LOG_EVERY = 50_000  # messages; how often a long read is logged
_MAX_READS = 3  # reads of a store that loses entries while it is read


class StoredTranscript:
    """The transcript of one session, in memory and in its store."""

    def __init__(
        self,
        session_id: str,
        store: Store,
        count: Callable[[Message], Awaitable[int]],
        *,
        on_conflict: OnConflict,
        notify: Callable[[str, str], None],
    ) -> None:
        self.session_id = session_id  # of the session in the store; another one after a conflict that became a fork
        self.transcript = Transcript(session_id)
        self._loaded_singly: dict[int, Entry] = {}  # by seq, of the transcript's gap
        self._store = store
        self._count = count
        self._on_conflict = on_conflict
        self._notify = notify
        self._archived: dict[int, Entry] | None = None  # by seq; None if it was not read since the last change
        self._writes = 0  # changes of the store that ended
        self._pending_change: Change | None = None  # given to the store; neither acknowledged nor refused
        self._may_diverge = False  # the store reported a loss, or holds less than memory
        self._reported_lost = 0  # entries that it reported as lost and that were not found missing yet

    # -- reading ----------------------------------------------------------------------------------------------------

    async def open(self) -> Extent:
        try:
            return await self._store.open(self.session_id, self._on_repair)
        except (SessionInUse, SessionLost) as problem:
            extent = await self._store.extent(self.session_id)
            return await self._fork_on_conflict(problem, extent.length, None)

    def begin(self, transcript: Transcript, single: Iterable[Entry] = ()) -> None:
        """Continue from a transcript that was read from the store, and perhaps single entries of its gap."""
        transcript.take_place_of(self.transcript)  # or what was made of that one could be taken for current
        self.transcript = transcript
        self._loaded_singly = {entry.seq: entry for entry in single} if transcript.gap else {}
        self._pending_change, self._may_diverge, self._reported_lost, self._archived = None, False, 0, None

    async def read(self, start: int, stop: int) -> list[Entry]:
        entries: list[Entry] = []
        async for part in read_in_batches(self._store, self.session_id, start, stop):
            entries.extend(part)
            if len(entries) % _LOG_EVERY < len(part):
                log.info("session %s: %d of %d messages loaded", self.session_id, len(entries), stop - start)
        return await self._with_tokens(entries)

    async def find(self, seq: int, *, archived_after: int) -> Entry | None:
        """Search memory, the store, and of its archive the seqs above `archived_after`."""
        try:
            found = self.transcript.snapshot().find(seq)
        except NotLoaded:
            found = next(iter(await self.find_all((seq,))), None)
        if found is not None or not archived_after < seq <= self.transcript.last_seq:
            return found
        archived, writes = self._archived, self._writes  # kept until the next change: tools read ranges one by one
        if archived is None:
            archived = {entry.seq: entry for entry in await self._store.archived(self.session_id)}
            self._archived = archived if writes == self._writes else None
        return archived.get(seq)

    async def find_all(self, seqs: Sequence[int]) -> list[Entry]:
        return await self._with_tokens(list(await self._store.find(self.session_id, seqs)))

    async def current_turn(self) -> list[Entry]:
        try:
            return self.transcript.current_turn()
        except NotLoaded:
            await self.load()
            return self.transcript.current_turn()

    async def everything(self) -> list[Entry]:
        """Return the entries that edits and interrupts removed, as far as the store keeps them, then the history."""
        await self.load()
        return [*await self._store.archived(self.session_id), *self.transcript.snapshot()]

    async def load(self) -> None:
        gap, length = self.transcript.gap, len(self.transcript)
        if not gap:
            return
        # One entry on either side as well. If they equal those in memory, no index has moved.
        first, last = max(0, gap.start - 1), min(length, gap.stop + 1)
        entries = await self.read(first, last)
        inner = entries[gap.start - first : len(entries) - (last - gap.stop)]
        known = self.transcript.snapshot()
        outer = [*known[first : gap.start], *known[gap.stop : last]]
        around = [*entries[: gap.start - first], *entries[len(entries) - (last - gap.stop) :]]
        extent = await self._store.extent(self.session_id)
        if _seqs(around) == _seqs(outer) and len(inner) == len(gap) and extent.length == length:
            self.transcript.fill_gap(inner)
            self._loaded_singly = {}
        else:
            _, unstored = await self._reconcile()
            self._may_diverge = self._may_diverge or unstored > 0

    # -- changing ---------------------------------------------------------------------------------------------------

    async def append(self, entries: Sequence[Entry]) -> None:
        """All of the entries are appended, or none."""
        change = Change(len(self.transcript), entries)
        await self._write(change, lambda: self._store.append(self.session_id, entries))
        self.transcript.extend(entries)

    async def replace(self, keep: int, entries: Sequence[Entry] = ()) -> None:
        """Keep the first `keep` entries, followed by these."""
        await self._write(Change(keep, entries), lambda: self._store.replace(self.session_id, keep, entries))
        self.transcript.replace(keep, entries)

    async def clear(self) -> None:
        """No seq is reused."""
        await self._write(Change(0), lambda: self._store.replace(self.session_id, 0, ()))
        self.transcript.clear()

    async def rewrite(self, entries: Collection[Entry]) -> NotErased | None:
        """Replace the entries of the same seqs, archived ones too. The whole history must be loaded.

        Return why the store, which holds the new entries, has not erased the replaced ones yet; None if it has.
        """
        new = {entry.seq: entry for entry in entries}
        change = Change(len(self.transcript), rewritten=frozenset(new))
        problem: NotErased | None = None
        try:
            await self._write(change, lambda: self._store.rewrite(self.session_id, list(new.values())))
        except NotErased as raised:
            problem = raised
        self.transcript.reload([new.get(entry.seq, entry) for entry in self.transcript.snapshot()])
        return problem

    async def reconcile(self) -> None:
        """Make memory and store equal, if they may differ. Raises `StoreError`: entries that the store lost cannot be
        written to it again; memory still holds them.
        """
        if not self._may_diverge and (self._pending_change is None or await self._is_append_resolved()):
            return
        self._may_diverge = False
        try:
            common, unstored = await self._reconcile()
            rest = self.transcript.snapshot()[common:]
            if rest:
                await self._write(Change(common, rest), lambda: self._store.replace(self.session_id, common, rest))
        except BaseException:
            self._may_diverge = True
            raise
        if unstored:
            which = f"{unstored:,} message{'' if unstored == 1 else 's'}"
            self._notify("repair", f"{which} that the store had lost and memory still had: written to the store again")

    async def _is_append_resolved(self) -> bool:
        """Resolve a pending append by the end of the stored history: a long one is not read for it.

        Return False if the pending change is no append, or if what is stored fits neither outcome.
        """
        change, length = self._pending_change, len(self.transcript)
        if change is None or not change.entries or change.keep != length:
            return False
        extent = await self._store.extent(self.session_id)
        if extent.length == length + len(change.entries):
            added = await self._store.read(self.session_id, length, extent.length)
            if [(one.seq, one.message) for one in added] != [(one.seq, one.message) for one in change.entries]:
                return False
            self.transcript.extend(change.entries)
        elif extent.length != length or extent.last_seq >= change.entries[0].seq:
            return False
        self._pending_change = None
        return True

    async def _write(self, change: Change, give: Callable[[], Awaitable[None]]) -> None:
        """Make a change in the store. The caller then makes it in memory, without an await in between.

        If the outcome is unknown, the change stays pending: a loop is closed, or a server fails, in the middle of it.
        """
        self._pending_change = change
        try:
            try:
                await give()
            except (SessionInUse, SessionLost) as problem:
                last = self.transcript.last
                await self._fork_on_conflict(problem, len(self.transcript), last.seq if last else None)
                await give()
            self._pending_change = None
        except OutcomeUnknown:
            raise
        except ContextError:  # refused: nothing was changed
            self._pending_change = None
            raise
        finally:
            self._archived = None
            self._writes += 1

    async def _reconcile(self) -> tuple[int, int]:
        """Add entries that only the store holds, keep entries that only memory holds, and report lost ones.

        Return the number of leading entries that both hold, and the number of entries that only memory holds.
        """
        stored: list[Entry] = []
        for _ in range(_MAX_READS):
            before = await self._store.extent(self.session_id)
            stored = await self.read(0, before.length)
            if before == await self._store.extent(self.session_id) and len(stored) == before.length:
                break
        found = reconcile(self.transcript.snapshot(), stored, self._pending_change, self._loaded_singly)
        self.transcript.reload(found.entries)
        self._pending_change, self._loaded_singly = None, {}
        reported = max(0, self._reported_lost - found.unstored)
        if found.missing > reported:
            lost = Repair(
                self.session_id,
                f"the store holds less of session {self.session_id!r} than it did; what memory holds is kept",
                found.missing,
            )
            self._notify("repair", lost.summary)
        self._reported_lost = max(0, reported - found.missing)
        return found.common, found.unstored

    async def _fork_on_conflict(self, problem: SessionInUse | SessionLost, length: int, last_seq: int | None) -> Extent:
        """Another writer has the session. Raise `problem` if forks are not allowed."""
        if self._on_conflict != "fork":
            raise problem
        fork = derived_session_id(self.session_id, f"-fork-{secrets.token_hex(4)}")
        if (await self._store.extent(self.session_id)).length < length:  # deleted: only memory still holds it
            if self.transcript.gap:
                raise problem
            await self._store.append(fork, self.transcript.snapshot()[:])
        elif length:
            await self._store.fork(self.session_id, fork, length)
        last = await self._store.read(fork, max(0, length - 1), length)
        if last_seq is not None and [entry.seq for entry in last] != [last_seq]:
            await self._store.delete(fork)  # the other writer has edited the entries that the fork needs
            raise problem
        extent = await self._store.open(fork, self._on_repair)
        self._notify("fork", f"session {self.session_id!r} goes on as {fork!r}: {problem.holder or 'no store'} has it")
        self.session_id = self.transcript.session_id = fork
        return extent

    async def _with_tokens(self, entries: list[Entry]) -> list[Entry]:
        """Entries of another program are uncounted, and are counted once."""
        new = [index for index, entry in enumerate(entries) if entry.tokens == UNCOUNTED]
        for number, index in enumerate(new, 1):
            entries[index] = entries[index]._replace(tokens=await self._count(entries[index].message))
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        if new:
            await self._store.rewrite(self.session_id, [entries[index] for index in new])
        return entries

    def _on_repair(self, repair: Repair) -> None:
        if repair.lost > 0:
            self._may_diverge = True
            self._reported_lost += repair.lost
        self._notify("repair", repair.summary)


def _seqs(entries: Sequence[Entry]) -> list[int]:
    return [entry.seq for entry in entries]
