"""The reference store: it keeps histories in memory, for as long as the process lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..transcript.entry import Entry
from .protocol import Extent, OnRepair, SessionInfo, index_range
from .validation import check_index, check_session_id, no_session, session_exists


@dataclass(slots=True)
class _StoredSession:
    entries: list[Entry] = field(default_factory=list[Entry])
    archive: list[Entry] = field(default_factory=list[Entry])
    last_seq: int = 0
    checkpoint: tuple[int, bytes] | None = None
    last_change: int = 0  # its number among all changes of the store


class MemoryStore:
    """Keeps histories in memory. No method waits for anything, so a cancelled call is either done or not begun."""

    def __init__(self) -> None:
        self._sessions: dict[str, _StoredSession] = {}
        self._change_count = 0

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        return await self.extent(session_id)

    async def release(self, session_id: str) -> None:
        return None

    async def extent(self, session_id: str) -> Extent:
        found = self._sessions.get(check_session_id(session_id))
        return Extent(len(found.entries), found.last_seq) if found else Extent()

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        if entries:
            session = self._session_to_change(session_id)
            session.entries.extend(entries)
            session.last_seq = max(session.last_seq, *(entry.seq for entry in entries))

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        found = self._sessions.get(check_session_id(session_id))
        if found is None:
            return []
        wanted = index_range(len(found.entries), start, stop)
        return found.entries[wanted.start : wanted.stop]

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        found = self._sessions.get(check_session_id(session_id))
        wanted = frozenset(seqs)
        return [entry for entry in found.entries if entry.seq in wanted] if found else []

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        found = self._sessions.get(check_session_id(session_id))
        length = len(found.entries) if found else 0
        check_index(session_id, keep, length)
        if keep == length and not entries:
            return
        session = self._session_to_change(session_id)
        staying = {entry.seq for entry in entries}
        session.archive.extend(entry for entry in session.entries[keep:] if entry.seq not in staying)
        session.entries[keep:] = entries
        session.last_seq = max((session.last_seq, *staying))
        if session.checkpoint and session.checkpoint[0] > keep:
            session.checkpoint = None

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        found = self._sessions.get(check_session_id(session_id))
        if found is None or not entries:
            return
        session = self._session_to_change(session_id)
        new = {entry.seq: entry for entry in entries}
        for kept in (session.entries, session.archive):
            for index, old in enumerate(kept):
                entry = new.get(old.seq)
                if entry is not None:
                    session.checkpoint = session.checkpoint if old.message == entry.message else None
                    kept[index] = entry

    async def archived(self, session_id: str) -> list[Entry]:
        found = self._sessions.get(check_session_id(session_id))
        return list(found.archive) if found else []

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        check_index(session_id, covered, (await self.extent(session_id)).length)
        self._session_to_change(session_id).checkpoint = (covered, data)

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        found = self._sessions.get(check_session_id(session_id))
        return found.checkpoint[1] if found and found.checkpoint else None

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        found = self._sessions.get(check_session_id(session_id))
        if found is None:
            raise no_session(session_id)
        if check_session_id(new_id) in self._sessions:
            raise session_exists(new_id)
        count = len(found.entries) if length is None else length
        check_index(session_id, count, len(found.entries))
        child = self._session_to_change(new_id)
        child.entries = found.entries[:count]
        child.last_seq = found.last_seq
        if found.checkpoint and found.checkpoint[0] <= count:
            child.checkpoint = found.checkpoint

    async def sessions(self) -> list[SessionInfo]:
        newest_first = sorted(self._sessions.items(), key=lambda item: item[1].last_change, reverse=True)
        return [SessionInfo(session_id, len(session.entries)) for session_id, session in newest_first]

    async def delete(self, session_id: str) -> None:
        self._sessions.pop(check_session_id(session_id), None)

    async def close(self) -> None:
        return None

    def _session_to_change(self, session_id: str) -> _StoredSession:
        session = self._sessions.setdefault(check_session_id(session_id), _StoredSession())
        self._change_count += 1
        session.last_change = self._change_count
        return session
