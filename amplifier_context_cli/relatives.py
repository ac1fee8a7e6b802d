"""Sessions that share messages with another one: its forks, and sessions that a host started with its history.

A fork keeps the origin and the seq of every message. A session that a host started with the history (a spawned agent)
keeps only what the message itself contains: role, ids and timestamp.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from amplifier_context_core.history.redactions import Redactions, is_named, redactions_of
from amplifier_context_core.messages.parsing import MessageInfo
from amplifier_context_core.messages.timestamps import timestamp_of
from amplifier_context_core.stores import Store, read_in_batches
from amplifier_context_core.transcript.alignment import normalized_content
from amplifier_context_core.transcript.entry import Entry

_OPENING = 50  # messages at the beginning of a session that are compared: an inherited history begins there
Identity = tuple[str, tuple[str, ...], tuple[str, ...], str]  # role, ids of calls, ids of answers, timestamp


class Relatives:
    """Finds messages of a session in other sessions; a message that is erased here may still be in another one."""

    def __init__(self, store: Store, name: str, seqs: Collection[int]) -> None:
        self._store, self._name = store, name
        self._seqs = frozenset(seqs)
        self._wanted: dict[tuple[str, int], Entry] = {}
        self._identities: set[Identity] = set()
        self._redactions = Redactions()

    async def read(self) -> list[Entry]:
        """Read the session and return the entries to find, redacted or not."""
        everything = [entry async for entry in all_entries(self._store, self._name)]
        wanted = [entry for entry in everything if entry.seq in self._seqs]
        self._wanted = {(entry.session_id, entry.seq): entry for entry in wanted}
        self._identities = {identity for entry in everything if (identity := _identity(entry))}
        self._redactions.note(redactions_of(everything))
        return wanted

    async def shared_with(self, other: str) -> set[int]:
        """Return the seqs of the shared messages that another session has not erased."""
        kept = await self._store.find(other, sorted(self._seqs))
        kept += [entry for entry in await self._store.archived(other) if entry.seq in self._seqs]
        found = {entry.seq for entry in kept if self._is_in_fork(entry)}
        opening = await self._store.read(other, 0, _OPENING)
        if any(entry.session_id == other and _identity(entry) in self._identities for entry in opening):
            found |= await self._copies_in(other)
        return found

    def _is_in_fork(self, entry: Entry) -> bool:
        ours = self._wanted.get((entry.session_id, entry.seq))
        if ours is None or entry.is_redacted:
            return False
        return ours.is_redacted or ours.message == entry.message

    async def _copies_in(self, other: str) -> set[int]:
        """Return the seqs of the messages that a session took over: with the same content, or of erased ones."""
        theirs = [entry async for entry in all_entries(self._store, other) if entry.session_id == other]
        contents = {content for entry in self._wanted.values() if (content := _identified_content(entry))}
        identities = {identity for identity, _ in contents}
        alike = [entry for entry in theirs if _identity(entry) in identities]
        found = {entry.seq for entry in alike if _identified_content(entry) in contents}
        items = [
            (entry.message, MessageInfo(entry.role, entry.call_ids, entry.answered_ids, entry.human))
            for entry in theirs
        ]
        echoes = await self._redactions.echoes(items, by_text=False)
        found |= {theirs[place].seq for place, one in echoes.items() if (one.session_id, one.seq) in self._wanted}
        return found


def _identity(entry: Entry) -> Identity | None:
    """Return what identifies a message in any session: its ids, or else its timestamp; None if it has neither."""
    kind = entry.role, entry.call_ids, entry.answered_ids
    stamp = "" if is_named(kind) else timestamp_of(entry.message)
    return None if stamp is None else (*kind, stamp)


def _identified_content(entry: Entry) -> tuple[Identity, bytes] | None:
    """Return what two copies of a message share; None of an erased one, and of one that nothing identifies."""
    identity = None if entry.is_redacted else _identity(entry)
    return (identity, normalized_content(entry.message, entry.call_ids)) if identity else None


async def all_entries(store: Store, name: str) -> AsyncIterator[Entry]:
    """Yield the entries of a session, archived ones first."""
    for entry in await store.archived(name):
        yield entry
    async for entries in read_in_batches(store, name):
        for entry in entries:
            yield entry
