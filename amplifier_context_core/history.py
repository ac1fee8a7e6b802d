"""The history of a session as its manager changes it: additions, echoes, edits, interrupts.

One change at a time, in order, whatever thread or event loop it comes from; what a store refused is not part of the
history. Reading never waits.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from time import perf_counter
from typing import Any, Literal, TypeVar, cast

from .additions import Addition, Additions, land
from .align import Alignment, Incoming, align, timestamp_of
from .checkpoint import content_hash
from .clock import utc_now
from .erase import erased
from .errors import InvalidMessage, NotLoaded, SessionInUse, SessionLost, StoreError
from .gate import Gate
from .incoming import echoed, response_of, stamped
from .kin import any_count, known_count
from .lent import lent
from .messages import Message, read_message
from .plugins import Plugins
from .replay import Replay
from .stores import UNCOUNTED, Extent, Repair, Store, slices
from .stores.checks import named_after
from .tokens import TokenCounter, measure
from .transcript import Entry, Response, Snapshot, Transcript, is_finished, same_entries

log = logging.getLogger(__name__)

OnInterrupt = Literal["keep", "discard", "repair"]
OnConflict = Literal["error", "fork"]
_T = TypeVar("_T")
_TOLD = 50_000  # messages loaded in between two words in the log
_TURN = 0.0003  # seconds of drafting in one turn of the event loop
_BREATHE = 500  # messages compared or read in between two breaths of the event loop


class History:
    """The transcript of one session, and the only place that changes it.

    What comes in while the store is busy waits, and is then carried out together: one batch, one sync to disk. Whoever
    is cancelled while it waits leaves work behind that is carried out all the same, so that history and store never
    say different things.

    Args:
        session_id: identity of the session, in its store and in its entries.
        store: where it is kept.
        counter: gives the token counter; awaited once a message.
        plugins: observers to tell.
        on_interrupt: what a cancelled turn becomes.
        on_conflict: what to do when another writer has the session: fail, or go on in a fork.
        notify: told, in a word and a sentence, of what people should know.
        clock: gives the time as `utc_now` does.
        stamp: puts the time on a message that has none.
    """

    def __init__(
        self,
        session_id: str,
        store: Store,
        counter: Callable[[], Awaitable[TokenCounter]],
        plugins: Plugins,
        *,
        on_interrupt: OnInterrupt = "repair",
        on_conflict: OnConflict = "error",
        notify: Callable[[str, str], None] = lambda kind, text: None,
        clock: Callable[[], str] = utc_now,
        stamp: Callable[[Message, str], Message] = stamped,
    ) -> None:
        self.session_id = session_id
        self.interrupted: frozenset[int] = frozenset()  # turns whose open calls were stopped
        self._store = store
        self._counter = counter
        self._plugins = plugins
        self._on_interrupt = on_interrupt
        self._on_conflict = on_conflict
        self._notify = notify
        self._clock = clock
        self._stamp = stamp
        self._transcript = Transcript(session_id)
        self._gate = Gate()
        self._additions = Additions(self._gate, self._add_all, self._cut_off, self._begin)
        self._work: set[asyncio.Task[Any]] = set()
        self._apart = False  # a call was broken off in the store: it may hold more than the transcript
        self._replay = Replay(self.snapshot, self._load)
        self._cancelled = False
        self._settled_at = -1  # last seq when a turn was settled, or one began: the kernel reports cancellations twice

    # -- opening and loading ----------------------------------------------------------------------------------------

    async def open(self) -> Extent:
        """Claim the session in its store, or, where config says so, a fork of it that nobody else writes to."""
        async with self._gate:
            try:
                return await self._store.open(self.session_id, self._repaired)
            except (SessionInUse, SessionLost) as problem:
                extent = await self._store.extent(self.session_id)
                return await self._fork_away(problem, extent.length, None)

    def resume(self, transcript: Transcript, interrupted: frozenset[int] = frozenset()) -> None:
        """Begin with what the store holds."""
        self._transcript = transcript
        self.interrupted = interrupted
        self._replay.end()
        if len(transcript):
            self._replay.resumed()
        self._cancelled = False
        self._settled_at = transcript.last_seq  # the turns of another process are over

    async def load(self) -> None:
        """Bring the whole history into memory."""
        if self._transcript.gap:
            async with self._gate:
                await self._load()

    async def read(self, start: int, stop: int) -> list[Entry]:
        """Entries from the store, by place, counted; with a word in the log every now and then when there are many."""
        entries: list[Entry] = []
        async for part in slices(self._store, self.session_id, start, stop):
            entries.extend(part)
            if len(entries) % _TOLD < len(part):
                log.info("session %s: %d of %d messages loaded", self.session_id, len(entries), stop - start)
        return await self._counted(entries)

    async def find(self, seq: int) -> Entry | None:
        """An entry by its seq, from memory or from the store."""
        try:
            return self._transcript.snapshot().find(seq)
        except NotLoaded:
            return next(iter(await self._store.find(self.session_id, (seq,))), None)

    # -- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The history as it is now."""
        return self._transcript.snapshot()

    def unchanged_since(self, revision: int) -> int:
        """Entries at the start that are as they were at a revision."""
        return self._transcript.unchanged_since(revision)

    @property
    def revision(self) -> int:
        """Rises with every change that is not an append."""
        return self._transcript.revision

    @property
    def last_seq(self) -> int:
        """The highest seq ever given."""
        return self._transcript.last_seq

    @property
    def turn_count(self) -> int:
        """Exchanges so far."""
        return self._transcript.turn_count

    # -- changing ---------------------------------------------------------------------------------------------------

    async def add(self, raw: object, *, asked: str | None = None, heard: Response | None = None) -> Entry | None:
        """Append a message.

        Args:
            raw: the message, of any shape KERNEL.md knows.
            asked: when a response to it was asked for, for an assistant's message.
            heard: what the provider reported of it.

        Returns:
            The new entry; None when it was the echo of one that is there.

        Raises:
            InvalidMessage: it cannot be stored; the field is named.
            StoreError: the store refused it; it is not part of the history.
        """
        message, reading = read_message(raw)
        tokens = await measure(message, await self._counter())
        landed: asyncio.Future[Entry | None] = asyncio.get_running_loop().create_future()
        return await self._additions.add(Addition(message, reading, tokens, asked, heard, landed))

    async def set(self, messages: object) -> bool:
        """Make a list the history: an echo changes nothing, anything else is recorded as an edit.

        Returns:
            Whether the history changed.

        Raises:
            InvalidMessage: a message of the list cannot be stored; then nothing was.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            raise InvalidMessage("messages", f"must be a list of messages, got {type(messages).__name__}")
        return await self._unbroken(self._set(cast("Sequence[object]", messages)))

    async def clear(self) -> None:
        """Forget everything; marks are not given again."""
        await self._unbroken(self._clear())
        self._plugins.tell("amplifier_context_cleared", session_id=self.session_id)

    async def interrupt(self) -> list[Entry]:
        """Take the unfinished current exchange out of the history; returns what was taken."""
        return await self._unbroken(self._interrupt())

    async def erase(self, seqs: Collection[int]) -> list[Entry]:
        """Erase what these entries say, here and in the store, its archive included; returns what stayed behind.

        Seqs that neither the history nor the archive holds are left out.
        """
        return await self._unbroken(self._erase(frozenset(seqs)))

    async def finish(self) -> None:
        """Wait for work that was begun and whose callers were cancelled."""
        self._additions.bring_in_left()
        ours = [task for task in self._work if task.get_loop() is asyncio.get_running_loop()]
        await asyncio.gather(*ours, return_exceptions=True)

    def prompted(self) -> None:
        """Note that a turn begins. Cancelled before its prompt is stored, it must not be taken for the turn before."""
        if not self._cancelled:
            self._settled_at = self._transcript.last_seq

    def asked(self) -> None:
        """Note that a request was made: whoever replays a history has done so by now."""
        self._replay.end()

    def cancelled(self) -> None:
        """Note that the current turn was cancelled. It is settled later: the loop may still add to it."""
        if self._transcript.last_seq != self._settled_at:
            self._cancelled = True

    async def settle(self) -> None:
        """The turn is over: do to a cancelled one what the config says."""
        if self._cancelled:
            await self._unbroken(self._settled())

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _unbroken(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Carry work out to its end, whatever becomes of the caller: half a change would part history and store."""
        return await asyncio.shield(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _cut_off(self, ended: Sequence[Addition]) -> None:
        """Their event loop ends while they are on their way in: those the history holds have landed."""
        self._landed([addition for addition in ended if addition.entry and self._holds(addition.entry)])
        land(ended, StoreError("the store was cut off while it wrote; resume the session to see what it holds"))

    async def _add_all(self, batch: Sequence[Addition]) -> None:
        await self._rejoin()
        drafted: list[Addition] = []
        begun = perf_counter()
        for addition in batch:
            if perf_counter() - begun > _TURN:
                await asyncio.sleep(0)
                begun = perf_counter()
            if addition.entry is not None:  # an earlier carrier was cut off with it: the store may hold it
                if self._holds(addition.entry):
                    self._landed((addition,))
                    continue
                addition.entry = None
            if self._replay.is_expected and await self._replay.has(addition.message, addition.reading):
                land((addition,))
                continue
            if addition.reading.human and self._cancelled:
                await self._append(drafted)
                drafted = []
                await self._settle()
            if addition.reading.human:
                self._replay.worked()
            before = drafted[-1].entry if drafted else None
            addition.entry = self._draft(addition, before.turn if before else self._transcript.turn)
            drafted.append(addition)
        await self._append(drafted)

    def _draft(self, addition: Addition, turn: int) -> Entry:
        message, reading = addition.message, addition.reading
        now = self._clock()
        created = timestamp_of(message) or now
        asks = reading.role == "assistant"
        return self._transcript.draft(
            self._stamp(message, now),
            reading,
            addition.tokens,
            created=min(addition.asked or created, created) if asks else created,
            completed=created,
            response=response_of(message, addition.heard) if asks else None,
            turn=turn + 1 if reading.human else turn,
        )

    async def _append(self, drafted: Sequence[Addition]) -> None:
        entries = [addition.entry for addition in drafted if addition.entry]
        if not entries:
            return
        try:
            await self._stored(lambda: self._store.append(self.session_id, entries, atomic=False))
        except Exception:
            for addition in drafted:
                addition.entry = None
            raise
        self._transcript.extend(entries)
        self._landed(drafted)

    def _landed(self, additions: Sequence[Addition]) -> None:
        land(additions)
        for addition in additions:
            if addition.entry:
                self._tell_appended(addition.entry)

    def _holds(self, entry: Entry) -> bool:
        try:
            found = self._transcript.snapshot().find(entry.seq)
        except NotLoaded:
            return False
        return found is not None and found.message == entry.message

    async def _clear(self) -> None:
        async with self._gate:
            await self._rejoin()
            await self._stored(lambda: self._store.replace(self.session_id, 0, ()))
            self._transcript.clear()
            self._forget_turns()

    async def _erase(self, seqs: frozenset[int]) -> list[Entry]:
        counter = await self._counter()
        async with self._gate:
            await self._rejoin()
            await self._load()
            archived = await self._store.archived(self.session_id)
            known = {entry.seq: entry for entry in (*archived, *self._transcript.snapshot()) if entry.seq in seqs}
            left = {seq: erased(entry, counter) for seq, entry in known.items()}
            await self._stored(lambda: self._store.rewrite(self.session_id, list(left.values())))
            self._transcript.reload([left.get(entry.seq, entry) for entry in self._transcript.snapshot()])
            return list(left.values())

    async def _interrupt(self) -> list[Entry]:
        async with self._gate:
            await self._rejoin()
            return await self._take_out(finished_too=False)

    async def _settled(self) -> None:
        async with self._gate:
            await self._rejoin()
            await self._settle()

    async def _rejoin(self) -> None:
        """Take over what a broken-off call left in the store, before anything is decided by the transcript."""
        if self._apart or self._gate.broken:
            await self._reconcile()

    async def _stored(self, change: Callable[[], Awaitable[None]]) -> None:
        """Make a change in the store; after this, or its error, the store holds what the transcript will hold."""
        try:
            try:
                await change()
            except (SessionInUse, SessionLost) as problem:
                last = self._transcript.last
                await self._fork_away(problem, len(self._transcript), last.seq if last else None)
                await change()
        except asyncio.CancelledError:
            self._apart = True  # the loop is being closed; the store may have done it all the same
            raise

    async def _fork_away(self, problem: SessionInUse | SessionLost, length: int, last_seq: int | None) -> Extent:
        """Another writer has the session: go on in a fork of what we know of it, if config says so."""
        if self._on_conflict != "fork":
            raise problem
        fork = named_after(self.session_id, f"-fork-{secrets.token_hex(4)}")
        if length:
            await self._store.fork(self.session_id, fork, length)
        last = await self._store.read(fork, max(0, length - 1), length)
        if last_seq is not None and [entry.seq for entry in last] != [last_seq]:
            await self._store.delete(fork)  # the other writer has edited what we stand on
            raise problem
        extent = await self._store.open(fork, self._repaired)
        self._notify("fork", f"session {self.session_id!r} goes on as {fork!r}: {problem.holder} has it")
        self.session_id = self._transcript.session_id = fork
        return extent

    async def _load(self) -> None:
        gap = self._transcript.gap
        if not gap:
            return
        entries = await self.read(gap.start, gap.stop)
        if len(entries) == len(gap):
            self._transcript.fill(entries)
        else:
            await self._reconcile()

    async def _reconcile(self) -> None:
        """Take over what the store holds: a call was broken off in it, or it found damage."""
        extent = await self._store.extent(self.session_id)
        stored = await self.read(0, extent.length)
        gap, held = self._transcript.gap, self._transcript.snapshot()
        ours = {} if gap else {entry.seq: entry for entry in held}
        entries = [ours.get(entry.seq, entry) for entry in stored]
        self._transcript.reload(entries)
        self._apart = self._gate.broken = False

    async def _counted(self, entries: list[Entry]) -> list[Entry]:
        """Entries with their tokens: those another program wrote come uncounted, and are counted once."""
        new = [place for place, entry in enumerate(entries) if entry.tokens == UNCOUNTED]
        for number, place in enumerate(new, 1):
            entries[place] = entries[place]._replace(tokens=await self._count(entries[place].message))
            if number % _BREATHE == 0:
                await asyncio.sleep(0)
        if new:
            await self._store.rewrite(self.session_id, [entries[place] for place in new])
        return entries

    def _repaired(self, repair: Repair) -> None:
        self._apart = self._apart or repair.lost > 0  # the transcript may hold what the store does not any more
        self._notify("repair", repair.told)

    async def _set(self, incoming: Sequence[object]) -> bool:
        async with self._gate:
            await self._rejoin()
            await self._load()
            stored = self._transcript.snapshot()
            same, heard = await echoed(stored, incoming)
            self._replay.listed()
            if same == len(stored) and heard == len(incoming):
                return False
            rest = await self._read_all(incoming, heard)
            left = stored[same:]
            small = len(left) + len(rest) <= _BREATHE
            found = align(left, rest) if small else await asyncio.to_thread(align, left, rest)
            if not found.changed:
                log.debug("set_messages brought what is there already; own history is kept")
                return False
            await self._edit(stored, same, found)
            return True

    async def _settle(self) -> None:
        if not self._cancelled:
            return
        if self._on_interrupt == "discard":
            await self._take_out(finished_too=True)
        elif self._on_interrupt == "repair":
            turn = await self._current_turn()
            if turn:
                self.interrupted |= {turn[0].turn}
        self._cancelled = False
        self._settled_at = self._transcript.last_seq

    async def _take_out(self, *, finished_too: bool) -> list[Entry]:
        turn = await self._current_turn()
        if not turn or (is_finished(turn) and not finished_too):
            return []
        keep = len(self._transcript) - len(turn)
        if keep <= self._transcript.gap.stop:
            await self._load()
        await self._stored(lambda: self._store.replace(self.session_id, keep, ()))
        self._transcript.replace(keep)
        self.interrupted -= {entry.turn for entry in turn}  # the next turn may bear the same number
        return turn

    async def _current_turn(self) -> list[Entry]:
        try:
            return self._transcript.current_turn()
        except NotLoaded:
            await self._load()
            return self._transcript.current_turn()

    async def _read_all(self, incoming: Sequence[object], start: int) -> list[Incoming]:
        read: list[Incoming] = []
        for index in range(start, len(incoming)):
            try:
                read.append(read_message(incoming[index]))
            except InvalidMessage as problem:
                field, _, rest = str(problem).partition(": ")
                raise InvalidMessage(
                    f"messages[{index}].{field}", rest.removesuffix("; the message was not stored")
                ) from None
            if len(read) % _BREATHE == 0:
                await asyncio.sleep(0)
        return read

    async def _edit(self, stored: Snapshot, same: int, found: Alignment) -> None:
        order: list[Entry] = stored[:same]
        fresh: list[Entry] = []
        kept = 0
        for number, item in enumerate(found.order):
            if isinstance(item, Entry):
                order.append(item)
                kept += 1
                continue
            message, reading = item
            turn = order[-1].turn if order else 0
            now = self._clock()
            entry = self._transcript.draft(
                self._stamp(message, now),
                reading,
                await self._count(message),
                created=timestamp_of(message) or now,
                response=response_of(message, None) if reading.role == "assistant" else None,
                turn=turn + 1 if reading.human else turn,
            )
            order.append(entry)
            fresh.append(entry)
            if number % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        keep = same + same_entries(stored[same:], order[same:])
        if keep == len(stored):  # nothing but additions at the end
            await self._stored(lambda: self._store.append(self.session_id, fresh))
            self._transcript.extend(fresh)
        else:
            log.info("set_messages edited the history: %d kept, %d new", same + kept, len(fresh))
            await self._stored(lambda: self._store.replace(self.session_id, keep, order[keep:]))
            self._transcript.replace(keep, order[keep:])
            if self.interrupted:
                self.interrupted &= {entry.turn for entry in order}
            if not order:
                self._forget_turns()
        for number, entry in enumerate(fresh, 1):
            self._tell_appended(entry)
            if number % _BREATHE == 0:
                await asyncio.sleep(0)

    async def _count(self, message: Message) -> int:
        counter = await self._counter()
        known = known_count(repr(counter), content_hash(message)) if any_count() else None
        return await measure(message, counter) if known is None else known

    def _tell_appended(self, entry: Entry) -> None:
        if self._plugins.listens("amplifier_context_appended"):
            # Lent, for an observer watches: it may not rewrite history.
            self._plugins.tell("amplifier_context_appended", session_id=self.session_id, entry=lent(entry))

    def _forget_turns(self) -> None:
        self.interrupted = frozenset()
        self._cancelled = False
        self._replay.end()
