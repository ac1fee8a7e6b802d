"""The driver of a Redis server: each request of a store as commands and scripts.

A change is one script, atomic on the server and guarded by the session's lease token and last revision (see
`..leased.protocol` and `scripts`). Sessions are listed by their keys.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from amplifier_context_core.errors import NotErased, SessionInUse, StoreError
from amplifier_context_core.stores.codec import loads, message_json
from amplifier_context_core.stores.protocol import Extent, SessionInfo

from ..leased.protocol import GONE, Change, EntryRow, Lease, SessionRow, holder_name
from . import scripts
from .client import RedisClient, evaluated
from .former import CARRY_OVER, IN_USE, NAMES, TOO_OLD
from .url import RedisSettings

log = logging.getLogger(__name__)

_UNUSED_TTL = 3_600.0  # seconds that an unused lease is kept after its last renewal
_AOF_POLLS = 200  # how often to ask, every tenth of a second, whether a rewrite of the append-only file has ended
_WINDOW = 200  # rows of one read, seqs of one search, sessions of one listing
# Of one change: a command has at most 1,048,576 parts, and Redis ends the connection of a client that has sent it 1 GB.
_MAX_ROWS, _MAX_BYTES = 1_000_000, 500_000_000


class StateReply(NamedTuple):
    """The reply of a script that returns the state of a session's lease and history."""

    token: bytes
    holder: bytes
    length: bytes
    last_seq: bytes
    revision: bytes
    updated: bytes
    size: bytes
    shape: bytes
    archived: bytes
    is_leased: int

    def row(self, session_id: str) -> SessionRow:
        extent = Extent(int(self.length), int(self.last_seq))
        holder = self.holder.decode()
        return SessionRow(session_id, self.token.decode(), holder, extent, int(self.revision), bool(self.updated))

    def info(self, session_id: str) -> SessionInfo:
        when = datetime.fromtimestamp(int(self.updated) / 1_000_000, UTC).isoformat()
        holder = self.holder.decode() if self.is_leased else ""
        return SessionInfo(session_id, int(self.length), when, int(self.size), holder)


class RedisDriver:
    """Implements `..leased.protocol.Driver`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._client = RedisClient(settings)
        self._prefix = _quoted(settings.prefix)
        self.loop_thread = self._client.loop_thread
        self.display_name = settings.display_name
        self.stop = self._client.stop
        self._call = self._client.call

    def _keys(self, session_id: str) -> list[str]:
        """Return the keys of every script: the session, and the `meta` of its former layout."""
        tag = f"{{{self._prefix}:{_quoted(session_id)}}}"
        return [f"{tag}:session", f"{tag}:meta"]

    async def _run(self, script: str, session_id: str, *arguments: Any) -> Any:
        """Return the reply of a script; carry the session over first if it is in the former layout."""
        command = evaluated(script, self._keys(session_id), *arguments)
        reply = await self._call(*command)
        if reply == scripts.FORMER:
            await self._carry_over(session_id)
            reply = await self._call(*command)
        return reply

    async def _carry_over(self, session_id: str) -> None:
        session, meta = self._keys(session_id)
        keys = [session, *(meta.removesuffix("meta") + name for name in NAMES)]
        result, text = await self._client.change(CARRY_OVER, keys)
        if result == IN_USE:
            raise SessionInUse(session_id, f"{text.decode()}, with an earlier version")
        if result == TOO_OLD:
            raise StoreError(
                f"session {session_id!r} has a layout from before commit 37ba2a6: add a message to it with the "
                "amplifier-context-core of that commit, then open it here"
            )
        state = await self._state(session_id)
        gone = int(text) - (int(state.length) if state else 0)
        if gone > 0:
            log.warning("session %r: %d of %d messages are gone from the server", session_id, gone, int(text))

    # -- leases ---------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str, token: str, ttl: float, former: str = "") -> SessionRow | None:
        times = _millis(ttl), _millis(ttl + _UNUSED_TTL)
        reply = await self._run(scripts.ACQUIRE, session_id, token, holder_name(), *times, former)
        return StateReply._make(reply).row(session_id)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> None:
        for first in range(0, len(leases), _WINDOW):
            window = leases[first : first + _WINDOW]
            times = _millis(ttl), _millis(ttl + _UNUSED_TTL)
            await self._client.call_all(
                [evaluated(scripts.RENEW, self._keys(one.session_id), one.row.token, *times) for one in window]
            )

    async def release(self, lease: Lease) -> None:
        await self._run(scripts.RELEASE, lease.session_id, lease.row.token, "")

    async def state(self, session_id: str) -> SessionRow | None:
        state = await self._state(session_id)
        return state and state.row(session_id)

    async def _state(self, session_id: str) -> StateReply | None:
        reply = await self._run(scripts.STATE, session_id)
        return reply and StateReply._make(reply)

    # -- changes --------------------------------------------------------------------------------------------------

    async def replace(self, lease: Lease, keep: int, rows: Sequence[EntryRow], archive: bool, change: Change) -> bool:
        values = (lease.extent_with(rows, keep).last_seq, keep, int(archive), "", "")
        return await self._change(scripts.CHANGE, lease, change, values, _packed(rows)) > 0

    async def rewrite(self, lease: Lease, rows: Sequence[EntryRow], change: Change) -> bool:
        return await self._change(scripts.REWRITE, lease, change, (), _packed(rows)) > 0

    async def save_checkpoint(self, lease: Lease, covered: int, data: bytes, change: Change) -> bool:
        values = (lease.row.extent.last_seq, lease.length, 0, covered, data)
        return await self._change(scripts.CHANGE, lease, change, values) > 0

    async def fork(self, lease: Lease, parent: str, length: int, change: Change) -> bool:
        before = await self._state(parent)
        rows = await self._rows(parent, "e:", 0, length)
        covered, data = await self._run(scripts.LOAD_CHECKPOINT, parent)
        # Several reads return one history only if the parent's writer did not replace it between them.
        after = await self._state(parent)
        if not before or not after or len(rows) != length or before.shape != after.shape:
            raise StoreError(f"session {parent!r} was changed or deleted while it was forked; try again")
        checkpoint = ("", "") if covered is None or int(covered) > length else (int(covered), data)
        packed = [_with_origin(row, parent) for row in rows if row is not None]
        values = (int(after.last_seq), 0, 0, *checkpoint)
        return await self._change(scripts.CHANGE, lease, change, values, packed) > 0

    async def _change(
        self, script: str, lease: Lease, change: Change, values: Sequence[Any], rows: Sequence[bytes] = ()
    ) -> int:
        if len(rows) > _MAX_ROWS or sum(map(len, rows)) > _MAX_BYTES:
            most = f"{_MAX_ROWS:,} messages and {_MAX_BYTES:,} bytes"
            raise StoreError(f"session {lease.session_id!r}: Redis takes at most {most} in one change")
        guard = lease.row.token, lease.row.revision, change.revision, _millis(change.ttl)
        result = await self._client.change(script, self._keys(lease.session_id), *guard, *values, *rows)
        if result == scripts.DUPLICATE_SEQ:
            raise StoreError(f"session {lease.session_id!r} holds one of these seqs already; nothing was changed")
        return result

    async def erase(self, lease: Lease) -> None:
        if not self._client.has_aof:
            return
        # A rewrite that is under way may have begun before the change. One that begins later leaves the text out.
        is_under_way = await self._is_rewriting_aof()
        for _ in range(_AOF_POLLS):
            if not is_under_way:
                break
            await asyncio.sleep(0.1)
            is_under_way = await self._is_rewriting_aof()
        try:
            await self._call("BGREWRITEAOF")
        except StoreError as problem:
            if not is_under_way and await self._is_rewriting_aof():
                return
            raise NotErased(
                f"session {lease.session_id!r}: the messages were replaced, but their former text stays in the "
                f"server's append-only file until BGREWRITEAOF ({problem}); make the same call again"
            ) from problem

    async def _is_rewriting_aof(self) -> bool:
        """True if the server is rewriting its append-only file. False if it refuses to answer."""
        try:
            return bool((await self._call("INFO", "persistence")).get("aof_rewrite_in_progress"))
        except StoreError:
            return False

    async def delete(self, lease: Lease) -> bool:
        deleted = await self._client.change(scripts.RELEASE, self._keys(lease.session_id), lease.row.token, "1")
        await self._call("ZREM", f"{self._prefix}:sessions", lease.session_id)  # in which former versions listed it
        return bool(deleted)

    # -- reading --------------------------------------------------------------------------------------------------

    async def read(self, session_id: str, start: int, stop: int | None) -> list[EntryRow]:
        return [_unpacked(row) for row in await self._rows(session_id, "e:", start, stop)]

    async def archived(self, session_id: str) -> list[EntryRow]:
        return [_unpacked(row) for row in await self._rows(session_id, "a:", 0, None)]

    async def _rows(self, session_id: str, kind: str, start: int, stop: int | None) -> list[bytes | None]:
        """Return packed rows, read in windows; begin again if the history was replaced between two of them."""
        for _ in range(5):
            state = await self._state(session_id)
            if state is None:
                return []
            wanted = range(*slice(start, stop).indices(int(state.length if kind == "e:" else state.archived)))
            rows: list[bytes | None] = []
            shape = state.shape
            for first in range(wanted.start, wanted.stop, _WINDOW):
                last = min(first + _WINDOW, wanted.stop)
                shape, window = await self._run(scripts.READ, session_id, kind, first, last)
                if shape != state.shape:
                    break
                rows += window
            if shape == state.shape:
                return rows
        raise StoreError(f"session {session_id!r} is being changed all the time; try again")

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[EntryRow]:
        found: list[tuple[int, bytes]] = []
        for first in range(0, len(seqs), _WINDOW):
            reply = await self._run(scripts.FIND, session_id, *seqs[first : first + _WINDOW])
            found += zip(map(int, reply[::2]), reply[1::2], strict=True)
        return [_unpacked(row) for _, row in sorted(found)]

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        return (await self._run(scripts.LOAD_CHECKPOINT, session_id))[1]

    async def sessions(self) -> list[SessionInfo]:
        start = f"{{{self._prefix}:"
        keys = await self._client.scan(re.sub(r"([\\*?[\]^])", r"\\\1", start) + "*}:*")
        names = [str(key, "utf-8", "replace")[len(start) :].rpartition("}:") for key in keys]
        ids = sorted({unquote(name) for name, _, part in names if part in ("session", "meta")})
        found: list[tuple[int, SessionInfo]] = []
        for first in range(0, len(ids), _WINDOW):
            window = ids[first : first + _WINDOW]
            replies = await self._client.call_all([evaluated(scripts.STATE, self._keys(one)) for one in window])
            for session_id, reply in zip(window, replies, strict=True):
                is_former = reply == scripts.FORMER
                state = await self._state(session_id) if is_former else reply and StateReply._make(reply)
                if state and state.updated:
                    found.append((int(state.updated), state.info(session_id)))
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]


def _quoted(name: str) -> str:
    """Quote a name for a hash tag, which ends at the first closing brace."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def _millis(seconds: float) -> int:
    return round(seconds * 1000)


def _packed(rows: Sequence[EntryRow]) -> list[bytes]:
    return [
        b"%d %d %d %b\n%b" % (row.seq, row.turn, row.tokens, message_json(row.extra) if row.extra else b"", row.message)
        for row in rows
    ]


def _unpacked(raw: bytes | None) -> EntryRow:
    """Return a packed row. If its head is damaged, the seq is -1 and there is no message."""
    if raw is None:
        return GONE
    head, _, message = raw.partition(b"\n")
    try:
        seq, turn, tokens, extra = head.split(b" ", 3)
        fields = cast("dict[str, Any]", loads(extra) if extra else {})
        return EntryRow(int(seq), int(turn), int(tokens), message, fields)
    except (ValueError, RecursionError):
        return EntryRow(-1, 0, 0, b"", {})


def _with_origin(raw: bytes, session_id: str) -> bytes:
    """Return a row of a session as it is kept in a fork: with the session that it was first added to."""
    row = _unpacked(raw)
    if row.seq < 0 or "session_id" in row.extra:
        return raw
    return _packed([row._replace(extra={"session_id": session_id, **row.extra})])[0]
