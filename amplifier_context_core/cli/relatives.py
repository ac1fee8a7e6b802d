"""Sessions that share messages with another one: its forks, and sessions that a host started with its history.

A fork keeps the origin and the seq of every message. A session that a host started with the history (a spawned agent)
keeps only what the message itself contains: role, ids and timestamp.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING

from ..stores.iteration import read_in_batches

if TYPE_CHECKING:
    from ..history.redactions import Redactions
    from ..stores import Store
    from ..transcript.entry import Entry

_OPENING = 50  # messages at the beginning of a session that are compared: an inherited history begins there


class Relatives:
    """Finds the messages that other sessions share with a session.

    Args:
        store: the store of all sessions.
        name: id of the session.
        marks: marks of the messages to find; a message that is erased here may still be in another session.
    """

    def __init__(self, store: Store, name: str, marks: Collection[str]) -> None:
        from ..history.redactions import Redactions
        from ..transcript.entry import seq_of

        self._store, self._name = store, name
        self._seqs = sorted(seq_of(mark) for mark in marks)
        self._wanted: dict[tuple[str, int], Entry] = {}
        self._times: set[tuple[str, str]] = set()
        self._redactions: Redactions = Redactions()

    async def read(self) -> list[Entry]:
        """Read the session and return the entries to find, redacted or not."""
        from ..history.redactions import redactions_of
        from ..messages.timestamps import timestamp_of

        seqs = set(self._seqs)
        everything: list[Entry] = []
        async for entry in all_entries(self._store, self._name):
            self._times.add((entry.role, timestamp_of(entry.message) or ""))
            everything.append(entry)
        wanted = [entry for entry in everything if entry.seq in seqs]
        self._wanted = {(entry.session_id, entry.seq): entry for entry in wanted}
        gone = [entry._replace(redaction_trace=entry.redaction_trace or "") for entry in wanted]
        self._redactions.note(redactions_of([*everything, *gone]))
        return wanted

    async def shared_with(self, other: str) -> set[str]:
        """Return the marks of the shared messages that another session has not erased."""
        kept = await self._store.find(other, self._seqs)
        kept += [entry for entry in await self._store.archived(other) if entry.seq in set(self._seqs)]
        found = {entry.mark for entry in kept if self._is_copy(entry, (entry.session_id, entry.seq))}
        if await self._inherits(other):
            found |= await self._copies_in(other)
        return found

    def _is_copy(self, entry: Entry, identity: tuple[str, int]) -> bool:
        ours = self._wanted.get(identity)
        if ours is None or entry.is_redacted:
            return False
        return ours.is_redacted or ours.message == entry.message

    async def _inherits(self, other: str) -> bool:
        """True if a session begins with messages of this one; they are recognised by their timestamps."""
        from ..messages.timestamps import timestamp_of

        opening = await self._store.read(other, 0, _OPENING)
        times = {(entry.role, timestamp_of(entry.message) or "") for entry in opening if entry.session_id == other}
        return any(time and (role, time) in self._times for role, time in times)

    async def _copies_in(self, other: str) -> set[str]:
        from ..messages.parsing import MessageInfo
        from ..transcript.alignment import normalized_content

        entries = [entry async for entry in all_entries(self._store, other) if entry.session_id == other]
        items = [
            (entry.message, MessageInfo(entry.role, entry.call_ids, entry.answered_ids, entry.human))
            for entry in entries
        ]
        found: set[str] = set()
        for place, echo in (await self._redactions.echoes(items, by_text=False)).items():
            ours, theirs = self._wanted.get((echo.session_id, echo.seq)), entries[place]
            if ours is None:
                continue
            if ours.is_redacted or normalized_content(ours.message, ours.call_ids) == normalized_content(
                theirs.message, theirs.call_ids
            ):
                found.add(theirs.mark)
        return found


async def all_entries(store: Store, name: str) -> AsyncIterator[Entry]:
    """Yield the entries of a session, archived ones first."""
    for entry in await store.archived(name):
        yield entry
    async for entries in read_in_batches(store, name):
        for entry in entries:
            yield entry
