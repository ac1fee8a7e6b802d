"""A store that keeps rows in a dictionary, as yours may in a database; a plug-in offers it under the scheme `dict`.

docs/extending.md says what a store must promise. `tests/test_extending.py` holds this one to the contract of stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_context_core import Entry, hookimpl
from amplifier_context_core.stores import (
    Extent,
    OnRepair,
    SessionInfo,
    check_index,
    check_session_id,
    decode_entry,
    encode_extra,
    index_range,
    message_json,
    no_session,
    session_exists,
)

Row = tuple[int, int, int, bytes, dict[str, Any]]  # seq, turn, tokens, message, and what the message does not say


def row_of(session_id: str, entry: Entry) -> Row:
    return entry.seq, entry.turn, entry.tokens, message_json(entry.message), encode_extra(entry, session_id)


@dataclass
class Session:
    rows: list[Row] = field(default_factory=list)
    archive: list[Row] = field(default_factory=list)
    last_seq: int = 0
    checkpoint: tuple[int, bytes] | None = None  # how many entries it covers, and its bytes


class DictStore:
    """Keeps histories in a dictionary of sessions, the last changed at its end."""

    def __init__(self, sessions: dict[str, Session]) -> None:
        self._sessions = sessions

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        return await self.extent(session_id)  # a store that several processes share locks the session here

    async def release(self, session_id: str) -> None:
        pass  # and unlocks it here

    async def extent(self, session_id: str) -> Extent:
        session = self._known(session_id)
        return Extent(len(session.rows), session.last_seq)

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        await self.replace(session_id, len(self._known(session_id).rows), entries)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        rows = self._known(session_id).rows
        return [decode_entry(session_id, *rows[index]) for index in index_range(len(rows), start, stop)]

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        wanted = frozenset(seqs)
        return [decode_entry(session_id, *row) for row in self._known(session_id).rows if row[0] in wanted]

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        length = len(self._known(session_id).rows)
        check_index(session_id, keep, length)
        if keep == length and not entries:
            return
        rows = [row_of(session_id, entry) for entry in entries]  # may fail: before anything is changed
        session = self._changed(session_id)
        staying = {entry.seq for entry in entries}
        session.archive += [row for row in session.rows[keep:] if row[0] not in staying]
        session.rows[keep:] = rows
        session.last_seq = max(session.last_seq, *staying, 0)
        if session.checkpoint and session.checkpoint[0] > keep:
            session.checkpoint = None

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        new = {entry.seq: row_of(session_id, entry) for entry in entries}
        if check_session_id(session_id) not in self._sessions or not new:
            return
        session = self._changed(session_id)
        for kept in (session.rows, session.archive):
            for index, old in enumerate(kept):
                row = kept[index] = new.get(old[0], old)
                if row[3] != old[3]:
                    session.checkpoint = None  # it may quote the message

    async def archived(self, session_id: str) -> list[Entry]:
        return [decode_entry(session_id, *row) for row in self._known(session_id).archive]

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        check_index(session_id, covered, len(self._known(session_id).rows))
        self._changed(session_id).checkpoint = (covered, data)

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        checkpoint = self._known(session_id).checkpoint
        return checkpoint[1] if checkpoint else None

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        parent = self._known(session_id)
        if session_id not in self._sessions:
            raise no_session(session_id)
        if check_session_id(new_id) in self._sessions:
            raise session_exists(new_id)
        count = len(parent.rows) if length is None else length
        check_index(session_id, count, len(parent.rows))
        entries = await self.read(session_id, 0, count)
        child = self._changed(new_id)
        child.rows = [row_of(new_id, entry) for entry in entries]  # made again: an entry names its session
        child.last_seq = parent.last_seq  # also of entries that are not in the fork
        if parent.checkpoint and parent.checkpoint[0] <= count:
            child.checkpoint = parent.checkpoint

    async def sessions(self) -> list[SessionInfo]:
        return [SessionInfo(name, len(session.rows)) for name, session in reversed(self._sessions.items())]

    async def delete(self, session_id: str) -> None:
        self._sessions.pop(check_session_id(session_id), None)

    async def close(self) -> None:
        pass

    def _known(self, session_id: str) -> Session:
        return self._sessions.get(check_session_id(session_id)) or Session()

    def _changed(self, session_id: str) -> Session:
        session = self._sessions[session_id] = self._sessions.pop(check_session_id(session_id), None) or Session()
        return session


KEPT: dict[str, dict[str, Session]] = {}  # by URL, for as long as the process lives


class Plugin:
    """What the entry point names."""

    @hookimpl
    def amplifier_context_stores(self) -> dict[str, Callable[[str], DictStore]]:
        """Offer the store under its scheme. The function gets the whole URL."""
        return {"dict": lambda url: DictStore(KEPT.setdefault(url, {}))}


plugin = Plugin()
