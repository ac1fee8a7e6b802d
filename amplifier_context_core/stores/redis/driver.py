"""The driver of a Redis server: each request of a store as commands and scripts.

A change is one script, atomic on the server and guarded by the session's lease token and last revision (see
`..leased.protocol` and `scripts`). A sorted set, the *directory*, lists the sessions. A session is added to it before
its first change, so it may list too many sessions, never too few.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from ...errors import NotErased, StoreError
from ..codec import decode_entry, loads, message_json
from ..leased.protocol import EntryRow, Lease, LeaseGrant, LeaseState, RewriteResult
from ..protocol import Extent, SessionInfo
from ..redis import scripts
from .client import RedisClient
from .cluster import ClusterClient
from .integrity import IntegrityError, KeyCounts, StateReply
from .scripts import Script
from .url import RedisSettings

log = logging.getLogger(__name__)

_UNUSED_TTL = 3_600.0  # seconds that an unused lease is kept after its last renewal
_STALE_AFTER = 86_400.0  # seconds until the directory drops a name without a session; longer than clocks differ
_AOF_POLLS = 200  # how often to ask, every tenth of a second, whether a rewrite of the append-only file has ended
_WINDOW = 200  # rows of one read, seqs of one search, sessions of one listing
_MAX_ROWS, _MAX_BYTES = 5_000, 16_000_000  # of one script; more rows are staged first


class RedisDriver:
    """Implements `..leased.protocol.Driver`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._client = (ClusterClient if settings.cluster else RedisClient)(settings)
        self._prefix = _quoted(settings.prefix)
        self._directory = f"{self._prefix}:sessions"
        self.loop_thread = self._client.loop_thread
        self.display_name = settings.display_name
        self.stop = self._client.stop
        self._run, self._call = self._client.run, self._client.call

    def _keys(self, session_id: str) -> list[str]:
        tag = f"{{{self._prefix}:{_quoted(session_id)}}}"
        return [f"{tag}:{name}" for name in scripts.KEYS]

    # -- leases ---------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str, token: str, holder: str, ttl: float, former: str = "") -> LeaseGrant | str:
        keys = self._keys(session_id)
        granted, *reply = await self._run(
            scripts.ACQUIRE, keys, token, holder, _millis(ttl), _millis(ttl + _UNUSED_TTL), former
        )
        if not granted:
            return reply[0].decode()
        last_seq, revision, count_fields = reply
        counts = KeyCounts._make(count_fields)
        created = counts.updated is not None
        if created or counts.has_no_meta:
            await self._add_to_directory(session_id)
        return LeaseGrant(keys, Extent(counts.entries, int(last_seq)), int(revision), created, not counts.problems())

    async def renew(self, leases: Sequence[Lease], ttl: float) -> None:
        for lease in leases:
            await self._run(scripts.RENEW, lease.grant.key, lease.token, _millis(ttl), _millis(ttl + _UNUSED_TTL))

    async def release(self, lease: Lease) -> None:
        await self._run(scripts.RELEASE, lease.grant.key, lease.token)

    async def state(self, session_id: str) -> LeaseState | None:
        reply = await self._state(session_id)
        if not reply.exists and not reply.counts.has_no_meta:
            return None
        counts = reply.counts
        created = bool(reply.updated) or counts.has_no_meta
        if counts.has_no_meta or counts.entries != counts.expected:
            log.warning("session %r: %s; opening it repairs that", session_id, "; ".join(counts.problems()))
        return LeaseState(reply.token.decode(), reply.holder.decode(), int(reply.revision), reply.extent, created)

    async def _state(self, session_id: str) -> StateReply:
        return StateReply.parse(await self._run(scripts.STATE, self._keys(session_id)))

    # -- changes --------------------------------------------------------------------------------------------------

    async def append(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> bool:
        last_seq = max(lease.extent.last_seq, *(row.seq for row in rows))
        return await self._change(scripts.APPEND, lease, revision, ttl, (last_seq,), rows) == scripts.APPLIED

    async def replace(
        self, lease: Lease, revision: int, keep: int, rows: Sequence[EntryRow], archive: bool, ttl: float
    ) -> bool:
        last_seq = max((lease.extent.last_seq, *(row.seq for row in rows)))
        values = (last_seq, keep, int(archive))
        return await self._change(scripts.REPLACE, lease, revision, ttl, values, rows) == scripts.APPLIED

    async def rewrite(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> RewriteResult:
        result = await self._change(scripts.REWRITE, lease, revision, ttl, (), rows)
        return {
            scripts.REFUSED: RewriteResult.REFUSED,
            scripts.APPLIED: RewriteResult.SAME_MESSAGES,
            scripts.APPLIED_OTHER: RewriteResult.OTHER_MESSAGES,
        }[result]

    async def _change(
        self, script: Script, lease: Lease, revision: int, ttl: float, values: Sequence[Any], rows: Sequence[EntryRow]
    ) -> int:
        await self._before_first_change(lease)
        packed = [_packed(row) for row in rows]
        keys = lease.grant.key
        if len(packed) > _MAX_ROWS or sum(map(len, packed)) > _MAX_BYTES:
            await self._stage(keys, packed)
            passed: tuple[Any, ...] = ("staged", len(packed))
        else:
            passed = ("here", *packed)
        result = await self._client.change(script, keys, *_guard(lease, revision, ttl), *values, *passed)
        if result == scripts.DUPLICATE_SEQ:
            raise StoreError(f"session {lease.session_id!r} holds one of these seqs already; nothing was changed")
        if result == scripts.INCOMPLETE:
            raise self._lost_staged_rows()
        if result == scripts.DAMAGED:
            raise IntegrityError(
                f"{self.display_name} lost a part of session {lease.session_id!r}; nothing was changed, try again"
            )
        return result

    async def _stage(self, keys: Sequence[str], packed: Sequence[bytes]) -> None:
        await self._call("DEL", keys[-1])
        staged = 0
        for chunk in _chunks(packed):
            staged += len(chunk)
            if await self._run(scripts.STAGE, keys, "here", *chunk) != staged:
                raise self._lost_staged_rows()

    def _lost_staged_rows(self) -> StoreError:
        return StoreError(f"{self.display_name} lost rows that were uploaded for a change; try again")

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
            return b"aof_rewrite_in_progress:1" in await self._call("INFO", "persistence")
        except StoreError:
            return False

    async def save_checkpoint(self, lease: Lease, revision: int, covered: int, data: bytes, ttl: float) -> bool:
        await self._before_first_change(lease)
        values = (*_guard(lease, revision, ttl), covered, zlib.crc32(data), data)
        return bool(await self._client.change(scripts.SAVE_CHECKPOINT, lease.grant.key, *values))

    async def fork(self, lease: Lease, revision: int, parent: str, length: int, ttl: float) -> bool:
        await self._before_first_change(lease)
        keys = lease.grant.key
        await self._call("DEL", keys[-1])
        before = await self._state(parent)
        rows = await self._raw(parent, 0, length)
        data, covered, is_intact = await self._checkpoint(parent)
        extent = await self.extent(parent)
        # Several reads return one history only if the parent's writer did not replace it between them.
        after = await self._state(parent)
        if extent is None or len(rows) != length or before.shape != after.shape:
            raise StoreError(f"session {parent!r} was changed or deleted while it was forked; try again")
        await self._stage(keys, [_with_origin(row, parent) for row in rows])
        copied: tuple[Any, ...] = ("", "", b"")
        if data is not None and is_intact and covered <= length:
            copied = (covered, zlib.crc32(data), data)
        values = (extent.last_seq, length, *copied)
        return bool(await self._client.change(scripts.CREATE, keys, *_guard(lease, revision, ttl), *values))

    async def delete(self, lease: Lease) -> bool:
        deleted = await self._client.change(scripts.DELETE, lease.grant.key, lease.token)
        await self._call("ZREM", self._directory, lease.session_id)
        return bool(deleted)

    async def repair(self, lease: Lease, revision: int, damaged: Sequence[int], ttl: float) -> bool:
        await self._before_first_change(lease)
        raw = [row for row in await self._raw(lease.session_id, 0, None) if _is_damaged(lease.session_id, row)]
        _, _, is_intact = await self._checkpoint(lease.session_id)
        values = (*_guard(lease, revision, ttl), int(not is_intact), "here", *raw)
        return bool(await self._client.change(scripts.REPAIR, lease.grant.key, *values))

    async def _before_first_change(self, lease: Lease) -> None:
        """Add a session to the directory before its first change."""
        if not lease.grant.created:
            await self._add_to_directory(lease.session_id)

    async def _add_to_directory(self, session_id: str) -> None:
        await self._call("ZADD", self._directory, f"{time.time():.3f}", session_id)

    # -- reading --------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent | None:
        state = await self._state(session_id)
        counts = state.counts
        if counts.has_no_meta or counts.entries != counts.expected:
            log.warning("session %r: %s; opening it repairs that", session_id, "; ".join(counts.problems()))
        return state.extent if state.updated or counts.has_no_meta else None

    async def read(self, session_id: str, start: int, stop: int | None) -> list[EntryRow]:
        return [_unpacked(row) for row in await self._raw(session_id, start, stop)]

    async def _raw(self, session_id: str, start: int, stop: int | None) -> list[bytes]:
        """Return packed rows, read in windows; begin again if the history was replaced between two of them."""
        entries = self._keys(session_id)[scripts.KEYS.index("entries")]
        for _ in range(5):
            state = await self._state(session_id)
            wanted = range(*slice(start, stop).indices(state.counts.entries))
            rows: list[bytes] = []
            for first in range(wanted.start, wanted.stop, _WINDOW):
                last = min(first + _WINDOW, wanted.stop) - 1
                rows += await self._call("LRANGE", entries, first, last)
            if len(wanted) <= _WINDOW:
                return rows
            if (await self._state(session_id)).shape == state.shape:
                return rows
        raise StoreError(f"session {session_id!r} is being changed all the time; try again")

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[EntryRow]:
        found: list[tuple[int, bytes]] = []
        for first in range(0, len(seqs), _WINDOW):
            reply = await self._run(scripts.FIND, self._keys(session_id), *seqs[first : first + _WINDOW])
            found += zip(map(int, reply[::2]), reply[1::2], strict=True)
        return [_unpacked(row) for _, row in sorted(found)]

    async def archived(self, session_id: str) -> list[EntryRow]:
        archive = self._keys(session_id)[scripts.KEYS.index("archive")]
        rows: list[bytes] = []
        while True:
            window = await self._call("LRANGE", archive, len(rows), len(rows) + _WINDOW - 1)
            rows += window
            if len(window) < _WINDOW:
                return [_unpacked(row) for row in rows]

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        data, _, is_intact = await self._checkpoint(session_id)
        if not is_intact:
            raise IntegrityError(f"the checkpoint of session {session_id!r} is damaged")
        return data

    async def _checkpoint(self, session_id: str) -> tuple[bytes | None, int, bool]:
        """Return the checkpoint, how many entries it covers, and whether its checksum is right."""
        data, covered, crc = await self._run(scripts.LOAD_CHECKPOINT, self._keys(session_id))
        return data, int(covered), data is None or crc is None or zlib.crc32(data) == int(crc)

    async def damage(self, session_id: str) -> tuple[KeyCounts, list[str]]:
        """Return the counts of a session's keys, and what is wrong with it apart from its rows."""
        counts = (await self._state(session_id)).counts
        _, _, is_intact = await self._checkpoint(session_id)
        return counts, [*counts.problems(), *([] if is_intact else ["the checkpoint is damaged"])]

    async def sessions(self) -> list[SessionInfo]:
        named = await self._call("ZRANGE", self._directory, 0, -1, "WITHSCORES")
        listed = {bytes(name).decode(): float(score) for name, score in zip(named[::2], named[1::2], strict=True)}
        if not listed:
            listed = await self._rebuild_directory()
        ids = list(listed)
        found: list[tuple[int, SessionInfo]] = []
        for first in range(0, len(ids), _WINDOW):
            window = ids[first : first + _WINDOW]
            replies = await self._client.run_all(scripts.STATE, [self._keys(one) for one in window])
            for session_id, state in zip(window, map(StateReply.parse, replies), strict=True):
                if state.updated or state.counts.has_no_meta:
                    micros = int(state.updated or 0)
                    when = datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat() if micros else ""
                    holder = state.holder.decode() if state.is_leased else ""
                    info = SessionInfo(session_id, state.counts.entries, when, int(state.size), holder)
                    found.append((micros, info))
                elif listed[session_id] < time.time() - _STALE_AFTER:
                    await self._call("ZREM", self._directory, session_id)
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]

    async def _rebuild_directory(self) -> dict[str, float]:
        """Find the sessions among all keys, and add them to the directory, which is empty or lost."""
        found: dict[str, float] = {}
        start, end = f"{{{self._prefix}:", "}:meta"
        for key in await self._client.scan(f"{_globbed(start)}*{end}"):
            found[_unquoted(bytes(key).decode()[len(start) : -len(end)])] = time.time()
        for session_id in found:
            await self._add_to_directory(session_id)
        return found

    async def verify(self, session_id: str) -> list[str]:
        state = await self._state(session_id)
        _, problems = await self.damage(session_id)
        recorded = await self._recorded_indices(session_id)
        seq_at = {index: seq for seq, index in recorded.items()}
        elsewhere: list[int] = []
        highest = 0
        for index, raw in enumerate(await self._raw(session_id, 0, None)):
            seq = _unpacked(raw).seq
            if _is_damaged(session_id, raw):
                known = seq if seq > 0 else seq_at.get(index, 0)
                problems.append(f"the message at index {index:,}{f' (m{known})' if known else ''} is damaged")
            elif recorded.get(seq) != index:
                elsewhere.append(seq)
            highest = max(highest, seq)
        if elsewhere and recorded:
            problems.append(f"{len(elsewhere):,} messages are not at their recorded index, m{elsewhere[0]} the first")
        if highest > int(state.last_seq):
            problems.append(
                f"it holds m{highest}, and its record says that no seq above {int(state.last_seq):,} was ever given"
            )
        return problems

    async def _recorded_indices(self, session_id: str) -> dict[int, int]:
        """Return the recorded index of each seq."""
        reply = await self._call("HGETALL", self._keys(session_id)[scripts.KEYS.index("places")])
        recorded = zip(reply[::2], reply[1::2], strict=True)
        return {int(seq): int(index) for seq, index in recorded if seq.isdigit() and index.isdigit()}


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


def _packed(row: EntryRow) -> bytes:
    extra = message_json(row.extra) if row.extra else b""
    return b"%d %d %d %b\n%b" % (row.seq, row.turn, row.tokens, extra, row.message)


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
    return _packed(row._replace(extra={"session_id": session_id, **row.extra}))


def _chunks(packed: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Split packed rows into chunks that one script can take."""
    start = size = 0
    for index, row in enumerate(packed):
        size += len(row)
        if index > start and (index - start >= _MAX_ROWS or size > _MAX_BYTES):
            yield packed[start:index]
            start, size = index, len(row)
    if start < len(packed):
        yield packed[start:]
