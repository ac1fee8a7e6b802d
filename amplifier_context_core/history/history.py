"""The history of a session as its manager changes it: additions, echoes, edits, interrupts.

Changes are made one at a time, in order, from any thread and event loop. A message that the store refused is not part
of the history. Reading never waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Literal, TypeVar, cast

from ..errors import InvalidMessage, NotErased
from ..futures import LoopTurns, in_thread
from ..locks import CrossLoopLock
from ..messages.parsing import Message, ParsedMessage, parse_message
from ..messages.timestamps import timestamp_of, utc_now, with_timestamp
from ..messages.tokens import TokenCounter, measure
from ..messages.usage import Response, response_of
from ..plugins import Observers
from ..stores import Extent, Store
from ..transcript.alignment import Order
from ..transcript.entry import Entry
from ..transcript.matching import ReplayDetector, alignment_of
from ..transcript.returned_views import HandedViews
from ..transcript.transcript import Snapshot, Transcript, common_prefix_length, copy_entry
from .append_queue import AppendQueue, PendingAppend
from .cancellation import Cancellation, OnInterrupt
from .redactions import Redactions, redactions_of, to_redact, without_former_hashes
from .stored import OnConflict, StoredTranscript

log = logging.getLogger(__name__)
_Redacted = tuple[list[Entry], NotErased | None]
_SetResult = Literal["unchanged", "edited", "needs views"]
_T = TypeVar("_T")


class History:
    """The transcript of one session, and the only place that changes it.

    Messages that are added while the store is busy are queued, and then written in one batch with one sync to disk. A
    change is completed even if its caller is cancelled, so that history and store never differ.

    Args:
        counter: awaited once per message.
        on_conflict: if another writer has the session: fail, or continue in a fork.
        notify: called with a kind and a sentence for people.
    """

    def __init__(
        self,
        session_id: str,
        store: Store,
        counter: Callable[[], Awaitable[TokenCounter]],
        observers: Observers,
        *,
        on_interrupt: OnInterrupt = "repair",
        on_conflict: OnConflict = "error",
        notify: Callable[[str, str], None] = lambda kind, text: None,
        clock: Callable[[], str] = utc_now,
        add_timestamp: Callable[[Message, str], Message] = with_timestamp,
    ) -> None:
        self.cleared_seq = 0  # the highest seq when the history was cleared last
        self._stored = StoredTranscript(session_id, store, self._count, on_conflict=on_conflict, notify=notify)
        self.redactions = Redactions(self._stored.everything)
        self._counter = counter
        self.observers = observers
        self._clock = clock
        self._add_timestamp = add_timestamp
        self._lock = CrossLoopLock()
        self._queue = AppendQueue(self._lock, self._commit_batch, self._start_task)
        self._work: set[asyncio.Task[Any]] = set()
        self._replay_detector = ReplayDetector(self.snapshot, self._stored.load)
        self._cancellation = Cancellation(on_interrupt)

    # -- opening and loading ----------------------------------------------------------------------------------------

    async def open(self) -> Extent:
        """If another writer has the session, open a fork of it, if the config allows that."""
        async with self._lock.hold():
            return await self._stored.open()

    def resume(
        self, transcript: Transcript, interrupted: frozenset[int] = frozenset(), shown: Iterable[Entry] = ()
    ) -> None:
        """Start from the content of the store.

        Args:
            interrupted: turns whose unanswered calls were stopped.
            shown: entries that were read by seq, because checkpoints show them.
        """
        self._stored.begin(transcript, shown)
        self.redactions.are_known = not transcript.last_seq  # else a checkpoint lists them
        self._cancellation.interrupted = interrupted
        self._replay_detector.stop()
        if len(transcript):
            self._replay_detector.on_resume()
        self._cancellation.close(transcript.last_seq)  # turns of an earlier process are over

    async def load(self) -> None:
        if self._transcript.gap:
            async with self._lock.hold():
                await self._stored.load()

    async def read(self, start: int, stop: int) -> list[Entry]:
        """Read the store by index. The log reports the progress of a long read."""
        return await self._stored.read(start, stop)

    async def find_all(self, seqs: Sequence[int]) -> list[Entry]:
        return await self._stored.find_all(seqs)

    async def find(self, seq: int) -> Entry | None:
        """Search memory, the store and its archive, but not what `clear` removed."""
        return await self._stored.find(seq, archived_after=self.cleared_seq)

    async def everything(self) -> list[Entry]:
        await self.load()
        return await self._stored.everything()

    async def added_after(self, seq: int) -> list[Entry]:
        """Return the loaded entries at the end that have later seqs, also those of an append whose outcome was not
        known, the newest first.
        """
        async with self._lock.hold():
            await self._stored.reconcile()
            history = self._transcript.snapshot()
            newest_first = (history[index] for index in range(len(history) - 1, history.gap.stop - 1, -1))
            return list(takewhile(lambda entry: entry.seq > seq, newest_first))

    async def redacted_seqs(self) -> frozenset[int]:
        """Include those that the archive has. The history must be loaded."""
        async with self._lock.hold():
            return frozenset(one.seq for one in await self.redactions.known())

    # -- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return self._transcript.snapshot()

    def unchanged_since(self, revision: int) -> int:
        return self._transcript.unchanged_since(revision)

    @property
    def session_id(self) -> str:
        return self._stored.session_id

    @property
    def _transcript(self) -> Transcript:
        return self._stored.transcript

    @property
    def revision(self) -> int:
        """Rises with every change that is not an append."""
        return self._transcript.revision

    @property
    def last_seq(self) -> int:
        """The highest ever given."""
        return self._transcript.last_seq

    @property
    def turn_count(self) -> int:
        return self._transcript.turn_count

    @property
    def interrupted(self) -> frozenset[int]:
        return self._cancellation.interrupted

    # -- changing ---------------------------------------------------------------------------------------------------

    async def add(self, raw: object, *, requested: str | None = None, reported: Response | None = None) -> Entry | None:
        """Append a message.

        Args:
            raw: of any shape in docs/kernel.md.
            requested: when the response was requested, for an assistant's message.
            reported: what the provider reported of that response.

        Returns:
            The new entry; None if the message is an echo of a stored one.

        Raises:
            InvalidMessage: the message cannot be stored; the field is named.
            StoreError: the store refused the message; it is not part of the history.
        """
        message, info = parse_message(raw)
        tokens = await measure(message, await self._counter())
        acknowledged: asyncio.Future[Entry | None] = asyncio.get_running_loop().create_future()
        append = PendingAppend(message, info, tokens, requested, reported, acknowledged)
        return await self._queue.add(append)

    async def set(self, messages: object, views: Callable[[], Awaitable[HandedViews]] | None = None) -> bool:
        """Make a list the history. An echo changes nothing, and any other list is an edit; return True for an edit.

        Args:
            views: returns views that were handed out; asked for if the list is no echo. Such a view is an echo too.

        Raises:
            InvalidMessage: a message of the list cannot be stored; then none is.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            raise InvalidMessage("messages", f"must be a list of messages, got {type(messages).__name__}")
        incoming = cast("Sequence[object]", messages)
        result = await self.shielded(self._set(incoming, None if views else HandedViews()))
        if result == "needs views" and views:
            result = await self.shielded(self._set(incoming, await views()))
        return result == "edited"

    async def clear(self) -> None:
        """Marks are not reused."""
        await self.shielded(self._clear())
        self.observers.notify("amplifier_context_cleared", session_id=self.session_id)

    async def interrupt(self) -> list[Entry]:
        """Remove the unfinished current turn from the history; return the removed entries."""
        return await self.shielded(self._interrupt())

    async def redact(self, which: Callable[[Entry], bool], *, lines: Collection[str], trace: bool) -> _Redacted:
        """Redact entries, in memory and in the store with its archive.

        Args:
            which: selects entries of the history and of the archive. Recalled texts that quote them are redacted, too.
            lines: of items, see `copies_of`. Recalled texts that quote these are redacted, too.
            trace: keep a hash by which echoes without a timestamp are recognised, see `redactions`.

        Returns:
            The redacted entries, also those that were redacted before; and the reason why the store has not erased
            their former text yet. The next call finishes the erasure, whatever it selects.
        """
        return await self.shielded(self._redact(which, lines, trace))

    async def finish(self) -> None:
        """Wait for changes whose callers were cancelled."""
        here = asyncio.get_running_loop()
        while ours := [task for task in self._work.copy() if task.get_loop() is here]:
            await asyncio.gather(*ours, return_exceptions=True)

    def on_prompt(self) -> None:
        self._cancellation.on_prompt(self._transcript.last_seq)

    def on_request(self) -> None:
        """A host that replays a history does so before its first request."""
        self._replay_detector.stop()

    def on_cancelled(self) -> None:
        """The loop may still add to the turn, so the policy is applied later."""
        self._cancellation.on_cancelled(self._transcript.last_seq)

    async def on_turn_complete(self) -> None:
        if self._cancellation.is_pending:
            await self.shielded(self._complete_turn())

    # -- inside -----------------------------------------------------------------------------------------------------

    async def shielded(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Complete a change even if the caller is cancelled. Half a change would make history and store differ."""
        return await asyncio.shield(self._start_task(work))

    def _start_task(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.ensure_future(work)
        self._work.difference_update([one for one in self._work.copy() if one.get_loop().is_closed()])  # never ends
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _commit_batch(self, batch: Sequence[PendingAppend]) -> None:
        await self._stored.reconcile()
        drafted: list[PendingAppend] = []
        turns = LoopTurns()
        for append in batch:
            await turns.give()
            if timestamp_of(append.message) and (self._replay_detector.is_expected or self.redactions):
                await self._leave_redacted(append)
            if self._replay_detector.is_expected and await self._replay_detector.matches(append.message, append.info):
                append.is_done = True
                continue
            if append.info.human and self._cancellation.is_pending:
                await self._append(drafted)
                drafted = []
                await self._apply_cancellation_policy()
            if append.info.human:
                self._replay_detector.on_human_message()
            before = drafted[-1].entry if drafted else None
            turn = before.turn if before else self._transcript.turn
            item = append.message, append.info
            append.entry = self._draft(item, append.tokens, turn, append.requested, append.reported)
            drafted.append(append)
        await self._append(drafted)

    def _draft(
        self,
        item: ParsedMessage,
        tokens: int,
        turn: int,
        requested: str | None = None,
        reported: Response | None = None,
    ) -> Entry:
        """`turn` is that of the entry before."""
        message, info = item
        now = self._clock()
        completed = timestamp_of(message) or now
        asks = info.role == "assistant"
        return self._transcript.draft(
            self._add_timestamp(message, now),
            info,
            tokens,
            created=min(requested or completed, completed) if asks else completed,
            completed=completed,
            response=response_of(message, reported) if asks else None,
            turn=turn + 1 if info.human else turn,
        )

    async def _append(self, drafted: Sequence[PendingAppend]) -> None:
        entries = [append.entry for append in drafted if append.entry]
        if not entries:
            return
        await self._stored.append(entries)
        for append in drafted:
            append.is_done = True
        for entry in entries:
            self._notify_appended(entry)

    async def _clear(self) -> None:
        async with self._lock.hold():
            await self._stored.reconcile()
            self.cleared_seq = self.last_seq  # before the change, whose outcome may stay unknown
            await self._stored.clear()
            self._reset_turns()

    async def _redact(self, which: Callable[[Entry], bool], lines: Collection[str], trace: bool) -> _Redacted:
        counter = await self._counter()
        async with self._lock.hold():
            await self._stored.reconcile()
            await self._stored.load()
            await self.redactions.known()
            everything = await self._stored.everything()
            known = await in_thread(to_redact, everything, which, self.redactions.unfinished, lines)
            left = await self.redactions.redact(known.values(), counter, trace=trace)
            left, changed = await in_thread(without_former_hashes, left, everything, known)
            problem = await self._stored.rewrite([*left, *changed])
            self.redactions.note(await in_thread(redactions_of, [*everything, *left]))
            self.redactions.unfinished = frozenset(known) if problem else frozenset()
            return left, problem

    async def _leave_redacted(self, append: PendingAppend) -> None:
        """A host may add the message again, because it replays its own transcript."""
        item = (append.message, append.info)
        entries = () if self._transcript.gap else self._transcript.snapshot()
        (left,) = await self.redactions.without_echoes([item], entries, by_text=False)
        if left is not item:
            append.message, append.info = left
            append.tokens = await measure(append.message, await self._counter())

    async def _interrupt(self) -> list[Entry]:
        async with self._lock.hold():
            await self._stored.reconcile()
            return await self._remove_current_turn(finished_too=False)

    async def _complete_turn(self) -> None:
        async with self._lock.hold():
            await self._stored.reconcile()
            await self._apply_cancellation_policy()

    async def _set(self, incoming: Sequence[object], views: HandedViews | None) -> _SetResult:
        """See `set`; views that are not known may be needed."""
        async with self._lock.hold():
            await self._stored.reconcile()
            await self._stored.load()
            stored = self._transcript.snapshot()
            self._replay_detector.on_set_messages()
            found = await alignment_of(stored, incoming, views, partial(self.redactions.without_echoes, entries=stored))
            if found is None:
                return "needs views"
            same, order = found
            if len(order) == len(stored) - same == common_prefix_length(stored[same:], order):
                return "unchanged"
            await self._edit(stored, same, order)
            return "edited"

    async def _apply_cancellation_policy(self) -> None:
        if not self._cancellation.is_pending:
            return
        if self._cancellation.policy == "discard":
            await self._remove_current_turn(finished_too=True)
        elif self._cancellation.policy == "repair":
            turn = await self._stored.current_turn()
            if turn:
                self._cancellation.interrupted |= {turn[0].turn}
        self._cancellation.close(self._transcript.last_seq)

    async def _remove_current_turn(self, *, finished_too: bool) -> list[Entry]:
        turn = await self._stored.current_turn()
        if not turn:
            return []
        is_finished = turn[-1].role == "assistant" and not turn[-1].call_ids
        if is_finished and not finished_too:
            return []
        keep = len(self._transcript) - len(turn)
        if keep <= self._transcript.gap.stop:
            await self._stored.load()
        await self._stored.replace(keep)
        self._cancellation.interrupted -= {entry.turn for entry in turn}  # the next turn may bear the same number
        return turn

    async def _edit(self, stored: Snapshot, same: int, found: Order) -> None:
        order: list[Entry] = stored[:same]
        fresh: list[Entry] = []
        turns = LoopTurns()
        for item in found:
            turn = order[-1].turn if order else 0
            if isinstance(item, Entry):
                # What follows a new message of a person, up to the next one, is of its turn.
                order.append(item if item.turn >= turn else item._replace(turn=turn))
                continue
            entry = self._draft(item, await self._count(item[0]), turn)
            order.append(entry)
            fresh.append(entry)
            await turns.give()
        keep = same + common_prefix_length(stored[same:], order[same:])
        if keep == len(stored):  # nothing but additions at the end
            await self._stored.append(fresh)
        else:
            log.info("set_messages edited the history: %d kept, %d new", len(order) - len(fresh), len(fresh))
            await self._stored.replace(keep, order[keep:])
            if self.interrupted:
                self._cancellation.interrupted &= {entry.turn for entry in order}
            if not order:
                self._reset_turns()
        for entry in fresh:
            self._notify_appended(entry)
            await turns.give()

    async def _count(self, message: Message) -> int:
        return await measure(message, await self._counter())

    def _notify_appended(self, entry: Entry) -> None:
        if self.observers.watch("amplifier_context_appended"):
            # A copy, because an observer may not change the history.
            self.observers.notify("amplifier_context_appended", session_id=self.session_id, entry=copy_entry(entry))

    def _reset_turns(self) -> None:
        self._cancellation.interrupted, self._cancellation.is_pending = frozenset(), False
        self._replay_detector.stop()
