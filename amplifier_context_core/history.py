"""The history of a session as its manager changes it: additions, echoes, edits, interrupts.

One change at a time, in order, whatever thread or event loop it comes from; what a store refused is not part of the
history. Reading never waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

from .align import Alignment, Incoming, align, same_message, timestamp_of
from .checkpoint import content_hash
from .errors import InvalidMessage
from .gate import Gate
from .kin import any_count, known_count
from .messages import INSTRUCTING, Message, Reading, copy_message, metadata_of, read_message
from .meter import usage_of
from .plugins import Plugins
from .store import Store
from .tokens import TokenCounter, measure
from .transcript import Entry, Response, Snapshot, Transcript

log = logging.getLogger(__name__)

OnInterrupt = Literal["keep", "discard", "repair"]
_BREATHE = 500  # messages compared or read in between two breaths of the event loop


def utc_now() -> str:
    """The time as messages carry it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class History:
    """The transcript of one session, and the only place that changes it.

    Args:
        session_id: identity of the session, in its store and in its entries.
        store: where it is kept.
        counter: gives the token counter; awaited once a message.
        plugins: observers to tell.
        on_interrupt: what a cancelled turn becomes.
        clock: gives the time as `utc_now` does.
    """

    def __init__(
        self,
        session_id: str,
        store: Store,
        counter: Callable[[], Any],
        plugins: Plugins,
        *,
        on_interrupt: OnInterrupt = "repair",
        clock: Callable[[], str] = utc_now,
    ) -> None:
        self.session_id = session_id
        self.interrupted: frozenset[int] = frozenset()  # turns whose open calls were stopped
        self._store = store
        self._counter = counter
        self._plugins = plugins
        self._on_interrupt = on_interrupt
        self._clock = clock
        self._transcript = Transcript(session_id)
        self._gate = Gate()
        self._replayed: int | None = None  # how far a replay of the history through `add` has come
        self._cancelled = False
        self._settled_at = -1  # last seq when a turn was settled, or one began: the kernel reports cancellations twice

    # -- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The history as it is now."""
        return self._transcript.snapshot()

    def unchanged_since(self, revision: int) -> int:
        """Entries at the start that are as they were at a revision."""
        return self._transcript.unchanged_since(revision)

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
        counter = cast(TokenCounter, await self._counter())
        tokens = await measure(message, counter)
        async with self._gate:
            if self._replayed is not None and self._is_replay(message, reading):
                return None
            if reading.human and self._cancelled:
                await self._settle()
            now = self._clock()
            created = timestamp_of(message) or now
            entry = self._transcript.draft(
                stamped(message, now),
                reading,
                tokens,
                created=min(asked or created, created) if reading.role == "assistant" else created,
                completed=created,
                response=response_of(message, heard) if reading.role == "assistant" else None,
            )
            await self._store.append(self.session_id, (entry,))
            self._transcript.append(entry)
        self._tell_appended(entry)
        return entry

    async def set(self, messages: object) -> bool:
        """Make a list the history: an echo changes nothing, anything else is recorded as an edit.

        Returns:
            Whether the history changed.

        Raises:
            InvalidMessage: a message of the list cannot be stored; then nothing was.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            raise InvalidMessage("messages", f"must be a list of messages, got {type(messages).__name__}")
        incoming = cast("Sequence[object]", messages)
        async with self._gate:
            stored = self._transcript.snapshot()
            same, heard = await _echoed(stored, incoming)
            self._replayed = 0
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

    async def clear(self) -> None:
        """Forget everything; marks are not given again."""
        async with self._gate:
            await self._store.replace(self.session_id, ())
            self._transcript.clear()
            self._forget_turns()
        self._plugins.tell("amplifier_context_cleared", session_id=self.session_id)

    async def interrupt(self) -> list[Entry]:
        """Take the unfinished current exchange out of the history; returns what was taken."""
        async with self._gate:
            return await self._take_out(finished_too=False)

    def prompted(self) -> None:
        """Note that a turn begins. Cancelled before its prompt is stored, it must not be taken for the turn before."""
        if not self._cancelled:
            self._settled_at = self._transcript.last_seq

    def cancelled(self) -> None:
        """Note that the current turn was cancelled. It is settled later: the loop may still add to it."""
        if self._transcript.last_seq != self._settled_at:
            self._cancelled = True

    async def settle(self) -> None:
        """The turn is over: do to a cancelled one what the config says."""
        if self._cancelled:
            async with self._gate:
                await self._settle()

    # -- inside the gate --------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        if not self._cancelled:
            return
        self._cancelled = False
        if self._on_interrupt == "discard":
            await self._take_out(finished_too=True)
        elif self._on_interrupt == "repair":
            turn = self._transcript.current_turn()
            if turn:
                self.interrupted |= {turn[0].turn}
        self._settled_at = self._transcript.last_seq

    async def _take_out(self, *, finished_too: bool) -> list[Entry]:
        before = list(self._transcript.snapshot())
        taken = self._transcript.interrupt(finished_too=finished_too)
        if taken:
            try:
                await self._store.replace(self.session_id, list(self._transcript.snapshot()))
            except BaseException:
                self._transcript.replace(before)
                raise
            self.interrupted -= {entry.turn for entry in taken}  # the next turn may bear the same number
        return taken

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
                stamped(message, now),
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
        grown = kept == len(stored) - same and order[len(stored) :] == fresh
        if grown:  # nothing but additions at the end
            await self._store.append(self.session_id, fresh)
            self._transcript.extend(fresh)
        else:
            log.info("set_messages edited the history: %d kept, %d new", same + kept, len(fresh))
            await self._store.replace(self.session_id, order)
            self._transcript.replace(order)
            if not order:
                self._forget_turns()
        for number, entry in enumerate(fresh, 1):
            self._tell_appended(entry)
            if number % _BREATHE == 0:
                await asyncio.sleep(0)

    async def _count(self, message: Message) -> int:
        counter = cast(TokenCounter, await self._counter())
        known = known_count(repr(counter), content_hash(message)) if any_count() else None
        return await measure(message, counter) if known is None else known

    def _is_replay(self, message: Message, reading: Reading) -> bool:
        """Is it the next message of the history, coming once more (a resumed sub-agent's transcript)?

        Only a message that carries the stored one's timestamp: a new "continue" must not pass for an old one.
        """
        history = self._transcript.snapshot()
        place = self._replayed or 0
        stamp = timestamp_of(message)
        while place < len(history):
            entry = history[place]
            if stamp is not None and stamp == timestamp_of(entry.message) and same_message(entry, message, reading):
                self._replayed = place + 1
                return True
            if entry.role not in INSTRUCTING:
                break
            place += 1  # a filter left it out
        self._replayed = None
        return False

    def _tell_appended(self, entry: Entry) -> None:
        if self._plugins.listens("amplifier_context_appended"):
            lent = replace(
                entry, message=copy_message(entry.message)
            )  # an observer watches; it may not rewrite history
            self._plugins.tell("amplifier_context_appended", session_id=self.session_id, entry=lent)

    def _forget_turns(self) -> None:
        self.interrupted = frozenset()
        self._cancelled = False
        self._replayed = None


async def _echoed(stored: Snapshot, incoming: Sequence[object]) -> tuple[int, int]:
    """How far a list is the history itself: entries passed, and messages passed.

    Stored system and developer messages that a filter left out are passed over. Mostly comparing is all this does, so
    that the echo a host sends every turn costs next to nothing; a message that a filter changed is read and dropped.
    """
    place = heard = 0
    while place < len(stored) and heard < len(incoming):
        entry = stored[place]
        if entry.message == incoming[heard] or _is_filtered(entry, incoming[heard]):
            heard += 1
        elif entry.role not in INSTRUCTING:
            break
        place += 1
        if place % _BREATHE == 0:
            await asyncio.sleep(0)
    if heard == len(incoming) and heard:
        while place < len(stored) and stored[place].role in INSTRUCTING:
            place += 1
    return (place, heard) if heard else (0, 0)


def _is_filtered(entry: Entry, raw: object) -> bool:
    """Is it this entry as a host's filter left it (no thinking, no null keys)? What cannot be read is not."""
    if not isinstance(raw, dict) or cast("Message", raw).get("role") != entry.role:
        return False
    try:
        return same_message(entry, *read_message(cast(object, raw)))
    except InvalidMessage:
        return False


def stamped(message: Message, now: str) -> Message:
    """The message with a timestamp in its metadata, if it has none (KERNEL.md: hosts rely on it)."""
    if timestamp_of(message) is None:
        message["metadata"] = {**metadata_of(message), "timestamp": now}
    return message


def response_of(message: Message, heard: Response | None) -> Response | None:
    """Provenance of an assistant message: what it says itself, and what the last response event told."""
    metadata = metadata_of(message)

    def said(*names: str) -> str | None:
        for name in names:
            for place in (message, metadata):
                value = place.get(name)
                if isinstance(value, str) and value:
                    return value
        return None

    usage = usage_of(message.get("usage")) or usage_of(metadata.get("usage"))
    model, provider = said("model", "model_id"), said("provider", "provider_id")
    finish, error = said("finish_reason", "stop_reason"), said("error")
    if heard is None:
        if not (usage or model or provider or finish or error):
            return None
        return Response(model, provider, usage, finish, error)
    return Response(
        model or heard.model,
        provider or heard.provider,
        usage or heard.usage,
        finish or heard.finish_reason,
        error or heard.error,
    )
