"""The driver of a Redis server: each request of a store as commands and scripts.

A change is one script, atomic on the server and guarded by the session's lease token and last revision (see
`..leased.protocol` and `scripts`). A sorted set, the *directory*, lists the sessions. A session is added to it before
its first change, so it may list too many sessions, never too few.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from amplifier_context_core.errors import NotErased, SessionInUse, StoreError
from amplifier_context_core.stores.codec import decode_entry, loads, message_json
from amplifier_context_core.stores.protocol import Extent, SessionInfo

from ..leased.protocol import EntryRow, Lease, LeaseGrant, LeaseState, RewriteResult
from . import scripts
from .client import RedisClient, ScriptCall
from .former import CARRY_OVER, IN_USE, NAMES, TOO_OLD
from .scripts import Script
from .url import RedisSettings

log = logging.getLogger(__name__)

_UNUSED_TTL = 3_600.0  # seconds that an unused lease is kept after its last renewal
_STALE_AFTER = 86_400.0  # seconds until the directory drops a name without a session; longer than clocks differ
_AOF_POLLS = 200  # how often to ask, every tenth of a second, whether a rewrite of the append-only file has ended
_WINDOW = 200  # rows of one read, seqs of one search, sessions of one listing
# Of one change: a command has at most 1,048,576 parts, and Redis ends the connection of a client that has sent it 1 GB.
_MAX_ROWS, _MAX_BYTES = 1_000_000, 500_000_000


class StateReply(NamedTuple):
    """The reply of the script that returns the state of a session's lease and history."""

    exists: int
    revision: bytes
    length: bytes
    last_seq: bytes
    token: bytes
    holder: bytes
    updated: bytes
    size: bytes
    is_leased: int
    shape: bytes

    @property
    def extent(self) -> Extent:
        """How much of the session there is."""
        return Extent(int(self.length), int(self.last_seq))


class RedisDriver:
    """Implements `..leased.protocol.Driver`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._client = RedisClient(settings)
        self._prefix = _quoted(settings.prefix)
        self._directory = f"{self._prefix}:sessions"
        self.loop_thread = self._client.loop_thread
        self.display_name = settings.display_name
        self.stop = self._client.stop
        self._call = self._client.call

    def _keys(self, session_id: str) -> list[str]:
        """Return the keys of every script: the session, and the `meta` of its former layout."""
        tag = f"{{{self._prefix}:{_quoted(session_id)}}}"
        return [f"{tag}:session", f"{tag}:meta"]

    async def _run(self, script: Script, session_id: str, *arguments: Any) -> Any:
        """Return the reply of a script; carry the session over first if it is in the former layout."""
        reply = await self._client.run(script, self._keys(session_id), *arguments)
        if reply == scripts.FORMER:
            await self._carry_over(session_id)
            reply = await self._client.run(script, self._keys(session_id), *arguments)
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
        gone = int(text) - (await self._state(session_id)).extent.length
        if gone > 0:
            log.warning("session %r: %d of %d messages are gone from the server", session_id, gone, int(text))

    # -- leases ---------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str, token: str, holder: str, ttl: float, former: str = "") -> LeaseGrant | str:
        granted, *reply = await self._run(
            scripts.ACQUIRE, session_id, token, holder, _millis(ttl), _millis(ttl + _UNUSED_TTL), former
        )
        if not granted:
            return reply[0].decode()
        created, revision, length, last_seq = map(int, reply)
        if created:
            await self._add_to_directory(session_id)
        return LeaseGrant(session_id, Extent(length, last_seq), revision, bool(created))

    async def renew(self, leases: Sequence[Lease], ttl: float) -> None:
        for first in range(0, len(leases), _WINDOW):
            window = leases[first : first + _WINDOW]
            times = _millis(ttl), _millis(ttl + _UNUSED_TTL)
            await self._client.run_all(
                [ScriptCall(scripts.RENEW, self._keys(one.session_id), (one.token, *times)) for one in window]
            )

    async def release(self, lease: Lease) -> None:
        await self._run(scripts.RELEASE, lease.session_id, lease.token)

    async def state(self, session_id: str) -> LeaseState | None:
        reply = await self._state(session_id)
        if not reply.exists:
            return None
        return LeaseState(
            reply.token.decode(), reply.holder.decode(), int(reply.revision), reply.extent, bool(reply.updated)
        )

    async def _state(self, session_id: str) -> StateReply:
        return StateReply._make(await self._run(scripts.STATE, session_id))

    # -- changes --------------------------------------------------------------------------------------------------

    async def append(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> bool:
        last_seq = max(lease.extent.last_seq, *(row.seq for row in rows))
        return await self._change(scripts.APPEND, lease, revision, ttl, (last_seq, "", ""), _packed(rows)) > 0

    async def replace(
        self, lease: Lease, revision: int, keep: int, rows: Sequence[EntryRow], archive: bool, ttl: float
    ) -> bool:
        last_seq = max((lease.extent.last_seq, *(row.seq for row in rows)))
        values = (last_seq, keep, int(archive))
        return await self._change(scripts.REPLACE, lease, revision, ttl, values, _packed(rows)) > 0

    async def rewrite(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> RewriteResult:
        return RewriteResult(await self._change(scripts.REWRITE, lease, revision, ttl, (), _packed(rows)))

    async def _change(
        self, script: Script, lease: Lease, revision: int, ttl: float, values: Sequence[Any], rows: Sequence[bytes]
    ) -> int:
        if len(rows) > _MAX_ROWS or sum(map(len, rows)) > _MAX_BYTES:
            most = f"{_MAX_ROWS:,} messages and {_MAX_BYTES:,} bytes"
            raise StoreError(f"session {lease.session_id!r}: Redis takes at most {most} in one change")
        await self._before_first_change(lease)
        keys = self._keys(lease.session_id)
        result = await self._client.change(script, keys, *_guard(lease, revision, ttl), *values, *rows)
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

    async def save_checkpoint(self, lease: Lease, revision: int, covered: int, data: bytes, ttl: float) -> bool:
        await self._before_first_change(lease)
        values = (*_guard(lease, revision, ttl), covered, data)
        return bool(await self._client.change(scripts.SAVE_CHECKPOINT, self._keys(lease.session_id), *values))

    async def fork(self, lease: Lease, revision: int, parent: str, length: int, ttl: float) -> bool:
        before = await self._state(parent)
        rows = await self._raw(parent, 0, length)
        covered, data = await self._run(scripts.LOAD_CHECKPOINT, parent)
        # Several reads return one history only if the parent's writer did not replace it between them.
        after = await self._state(parent)
        if not after.updated or len(rows) != length or before.shape != after.shape:
            raise StoreError(f"session {parent!r} was changed or deleted while it was forked; try again")
        copied = ("", "") if covered is None or int(covered) > length else (int(covered), data)
        packed = [_with_origin(row, parent) for row in rows if row is not None]
        values = (int(after.last_seq), *copied)
        return await self._change(scripts.APPEND, lease, revision, ttl, values, packed) > 0

    async def delete(self, lease: Lease) -> bool:
        deleted = await self._client.change(scripts.DELETE, self._keys(lease.session_id), lease.token)
        await self._call("ZREM", self._directory, lease.session_id)
        return bool(deleted)

    async def _before_first_change(self, lease: Lease) -> None:
        """Add a session to the directory before its first change."""
        if not lease.grant.created:
            await self._add_to_directory(lease.session_id)

    async def _add_to_directory(self, session_id: str) -> None:
        await self._call("ZADD", self._directory, f"{time.time():.3f}", session_id)

    # -- reading --------------------------------------------------------------------------------------------------

    async def read(self, session_id: str, start: int, stop: int | None) -> list[EntryRow]:
        return [_unpacked(row) for row in await self._raw(session_id, start, stop) if row is not None]

    async def _raw(self, session_id: str, start: int, stop: int | None) -> list[bytes | None]:
        """Return packed rows, read in windows; begin again if the history was replaced between two of them."""
        for _ in range(5):
            state = await self._state(session_id)
            wanted = range(*slice(start, stop).indices(state.extent.length))
            rows: list[bytes | None] = []
            shape = state.shape
            for first in range(wanted.start, wanted.stop, _WINDOW):
                last = min(first + _WINDOW, wanted.stop)
                shape, window = await self._run(scripts.READ, session_id, first, last)
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

    async def archived(self, session_id: str) -> list[EntryRow]:
        rows: list[bytes] = []
        while window := await self._run(scripts.ARCHIVED, session_id, len(rows), len(rows) + _WINDOW):
            rows += window
        return [_unpacked(row) for row in rows]

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        return (await self._run(scripts.LOAD_CHECKPOINT, session_id))[1]

    async def sessions(self) -> list[SessionInfo]:
        named = await self._call("ZRANGE", self._directory, 0, -1, "WITHSCORES")
        listed = {bytes(name).decode(): float(score) for name, score in zip(named[::2], named[1::2], strict=True)}
        if not listed:
            listed = await self._rebuild_directory()
        ids = list(listed)
        found: list[tuple[int, SessionInfo]] = []
        for first in range(0, len(ids), _WINDOW):
            window = ids[first : first + _WINDOW]
            replies = await self._client.run_all([ScriptCall(scripts.STATE, self._keys(one), ()) for one in window])
            for session_id, reply in zip(window, replies, strict=True):
                state = await self._state(session_id) if reply == scripts.FORMER else StateReply._make(reply)
                if state.updated:
                    micros = int(state.updated)
                    when = datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat()
                    holder = state.holder.decode() if state.is_leased else ""
                    info = SessionInfo(session_id, state.extent.length, when, int(state.size), holder)
                    found.append((micros, info))
                elif listed[session_id] < time.time() - _STALE_AFTER:
                    await self._call("ZREM", self._directory, session_id)
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]

    async def _rebuild_directory(self) -> dict[str, float]:
        """Find the sessions among all keys, and add them to the directory, which is empty or lost."""
        found: dict[str, float] = {}
        start = f"{{{self._prefix}:"
        for end in ("}:session", "}:meta"):
            for key in await self._client.scan(f"{_globbed(start)}*{end}"):
                found[_unquoted(bytes(key).decode()[len(start) : -len(end)])] = time.time()
        for session_id in found:
            await self._add_to_directory(session_id)
        return found

    async def verify(self, session_id: str) -> list[str]:
        problems: list[str] = []
        rows = await self._raw(session_id, 0, None)
        highest, last_seq = 0, int((await self._state(session_id)).last_seq)
        found = {row.seq for row in await self.find(session_id, [_unpacked(row).seq for row in rows if row])}
        for index, row in enumerate(rows):
            seq = _unpacked(row).seq if row is not None else -1
            if row is None:
                problems.append(f"the message at index {index:,} is gone")
            elif _is_damaged(session_id, row):
                problems.append(f"the message at index {index:,}{f' (m{seq})' if seq > 0 else ''} is damaged")
            elif seq not in found:
                problems.append(f"m{seq} at index {index:,} is not found by its seq")
            highest = max(highest, seq)
        if highest > last_seq:
            problems.append(f"it holds m{highest}, and its record says that no seq above {last_seq:,} was ever given")
        return problems


def _quoted(name: str) -> str:
    """Quote a name for a hash tag, which ends at the first closing brace."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def _unquoted(name: str) -> str:
    return name.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")


def _globbed(text: str) -> str:
    return "".join(f"\\{one}" if one in "\\*?[]^" else one for one in text)


def _millis(seconds: float) -> int:
    return round(seconds * 1000)


def _guard(lease: Lease, revision: int, ttl: float) -> tuple[Any, ...]:
    return lease.token, lease.grant.revision, revision, _millis(ttl)


def _packed(rows: Sequence[EntryRow]) -> list[bytes]:
    return [
        b"%d %d %d %b\n%b" % (row.seq, row.turn, row.tokens, message_json(row.extra) if row.extra else b"", row.message)
        for row in rows
    ]


def _unpacked(raw: bytes) -> EntryRow:
    """Return a packed row. If its head is damaged, the seq is -1 and there is no message."""
    head, _, message = raw.partition(b"\n")
    try:
        seq, turn, tokens, extra = head.split(b" ", 3)
        fields = cast("dict[str, Any]", loads(extra) if extra else {})
        return EntryRow(int(seq), int(turn), int(tokens), message, fields)
    except (ValueError, RecursionError):
        return EntryRow(-1, 0, 0, b"", {})


def _is_damaged(session_id: str, raw: bytes) -> bool:
    row = _unpacked(raw)
    try:
        decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra)
    except StoreError:
        return True
    return False


def _with_origin(raw: bytes, session_id: str) -> bytes:
    """Return a row of a session as it is kept in a fork: with the session that it was first added to."""
    row = _unpacked(raw)
    if row.seq < 0 or "session_id" in row.extra:
        return raw
    return _packed([row._replace(extra={"session_id": session_id, **row.extra})])[0]
