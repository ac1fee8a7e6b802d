"""Histories in Redis: many machines, one writer a session.

``redis://user:password@host:6379/0?prefix=NAME&lease_ttl=30``. What a change does is one script, atomic on the server
and guarded by the session's fence and last change (see `leases` and `scripts`). A directory, a sorted set of its
own, names the sessions; it is written before a session is, so it may name too many, never too few.

What is acknowledged is as durable as the server makes it: ``appendonly yes`` with ``appendfsync always`` is what
`durability: fsync` asks for. `rewrite` (to forget a pasted secret) replaces the rows and asks the server to write its
append-only file anew; older dumps, replicas' files and backups keep the former text until they are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from ...errors import NotErased, SessionLost, StoreError
from ...locks import Gate
from ..codec import decode_entry, loads, message_json
from ..protocol import Durability, Extent, OnRepair, Repair, SessionInfo
from ..redis import scripts
from ..servers.changes import repeated
from ..servers.leased_store import Change, LeasedStore
from ..servers.leases import Claim, Held, Line, Rewritten, Row, State
from ..servers.owner import Shared
from .cluster import ClusterConnections
from .line import RedisAddress, RedisConnections, read_address
from .scripts import Script
from .sizes import Said, Sizes

log = logging.getLogger(__name__)

_UNUSED = 3_600.0  # seconds an unused claim is remembered after its last renewal
_STALE = 86_400.0  # seconds until the directory forgets a name nothing came of; longer than clocks differ
_PATIENCE = 200  # tenths of a second for a rewrite of the append-only file that is under way to end
_WINDOW = 200  # rows of one read, seqs of one search, sessions asked for at once
_MOST_ROWS, _MOST_BYTES = 5_000, 16_000_000  # of one script; what is more is staged


class Unsound(StoreError):
    """What is asked for stands on something that was lost, or is damaged: it must be mended first."""


class RedisLine:
    """See `leases.Line`."""

    def __init__(self, address: RedisAddress) -> None:
        self._connections = (ClusterConnections if address.cluster else RedisConnections)(address)
        self._prefix = _quoted(address.prefix)
        self._directory = f"{self._prefix}:sessions"
        self.owner = self._connections.owner
        self.where = address.where
        self.stop = self._connections.stop
        self._run, self._call = self._connections.run, self._connections.call

    def _keys(self, session_id: str) -> list[str]:
        tag = f"{{{self._prefix}:{_quoted(session_id)}}}"
        return [f"{tag}:{name}" for name in scripts.KEYS]

    # -- claims ---------------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, fence: str, holder: str, ttl: float) -> Held | str:
        keys = self._keys(session_id)
        made, *said = await self._run(scripts.CLAIM, keys, fence, holder, _millis(ttl), _millis(ttl + _UNUSED))
        if not made:
            return said[0].decode()
        last_seq, change, reply = said
        sizes = Sizes._make(reply)
        created = sizes.updated is not None
        if created or sizes.orphaned:
            await self._list(session_id)
        return Held(keys, Extent(sizes.entries, int(last_seq)), int(change), created, not sizes.problems())

    async def renew(self, claims: Sequence[Claim], ttl: float) -> None:
        for claim in claims:
            await self._run(scripts.RENEW, claim.held.key, claim.fence, _millis(ttl), _millis(ttl + _UNUSED))

    async def release(self, claim: Claim) -> None:
        await self._run(scripts.RELEASE, claim.held.key, claim.fence)

    async def state(self, session_id: str) -> State | None:
        said = await self._said(session_id)
        if not said.there:
            return None
        return State(said.fence.decode(), said.holder.decode(), int(said.change), said.extent)

    async def _said(self, session_id: str) -> Said:
        return Said.of(await self._run(scripts.STATE, self._keys(session_id)))

    async def settle(self, claim: Claim, change: int, ttl: float) -> bool:
        return bool(await self._run(scripts.SETTLE, claim.held.key, *_guard(claim, change, ttl)))

    async def undo(self, claim: Claim, undone: int, change: int) -> bool:
        extent = claim.extent
        values = (claim.fence, undone, change, extent.length, extent.last_seq, int(claim.held.created))
        return bool(await self._connections.change(scripts.UNDO, claim.held.key, *values))

    # -- changes --------------------------------------------------------------------------------------------------

    async def append(self, claim: Claim, change: int, rows: Sequence[Row], ttl: float) -> bool:
        last_seq = max(claim.extent.last_seq, *(row.seq for row in rows))
        return await self._change(scripts.APPEND, claim, change, ttl, (last_seq,), rows) == scripts.MADE

    def append_here(self, claim: Claim, change: int, row: Row, ttl: float) -> None:
        """Not here: the client's connections belong to the loop they were made on."""

    async def replace(
        self, claim: Claim, change: int, keep: int, rows: Sequence[Row], archive: bool, ttl: float
    ) -> bool:
        last_seq = max((claim.extent.last_seq, *(row.seq for row in rows)))
        values = (last_seq, keep, int(archive))
        return await self._change(scripts.REPLACE, claim, change, ttl, values, rows) == scripts.MADE

    async def rewrite(self, claim: Claim, change: int, rows: Sequence[Row], ttl: float) -> Rewritten:
        made = await self._change(scripts.REWRITE, claim, change, ttl, (), rows)
        return {
            scripts.REFUSED: Rewritten.REFUSED,
            scripts.MADE: Rewritten.SAME_MESSAGES,
            scripts.MADE_OTHER: Rewritten.OTHER_MESSAGES,
        }[made]

    async def _change(
        self, script: Script, claim: Claim, change: int, ttl: float, values: Sequence[Any], rows: Sequence[Row]
    ) -> int:
        await self._first(claim)
        packed = [_packed(row) for row in rows]
        keys = claim.held.key
        if len(packed) > _MOST_ROWS or sum(map(len, packed)) > _MOST_BYTES:
            await self._stage(keys, packed)
            brought: tuple[Any, ...] = ("staged", len(packed))
        else:
            brought = ("here", *packed)
        made = await self._connections.change(script, keys, *_guard(claim, change, ttl), *values, *brought)
        if made == scripts.TAKEN:
            raise StoreError(f"session {claim.session_id!r} holds one of these seqs already; nothing was changed")
        if made == scripts.NOT_WHOLE:
            raise StoreError(f"{self.where} lost rows that were put aside for a change; try again")
        if made == scripts.UNSOUND:
            raise Unsound(f"{self.where} lost a part of session {claim.session_id!r}; nothing was changed, try again")
        return made

    async def _stage(self, keys: Sequence[str], packed: Sequence[bytes]) -> None:
        await self._call("DEL", keys[-1])
        staged = 0
        for piece in _pieces(packed):
            staged += len(piece)
            if await self._run(scripts.STAGE, keys, "here", *piece) != staged:
                raise StoreError(f"{self.where} lost rows that were put aside for a change; try again")

    async def erase(self, claim: Claim) -> None:
        if not self._connections.appends:
            return
        # A rewrite that is under way may have begun before the change. One that begins later leaves it out.
        is_under_way = await self._aof_is_rewritten()
        for _ in range(_PATIENCE):
            if not is_under_way:
                break
            await asyncio.sleep(0.1)
            is_under_way = await self._aof_is_rewritten()
        try:
            await self._call("BGREWRITEAOF")
        except StoreError as problem:
            if not is_under_way and await self._aof_is_rewritten():
                return
            raise NotErased(
                f"session {claim.session_id!r}: the messages were replaced, but what they said stays in the server's "
                f"append-only file until BGREWRITEAOF ({problem}); make the same call again"
            ) from problem

    async def _aof_is_rewritten(self) -> bool:
        """True if the server is writing its append-only file again. False where it may not be asked."""
        try:
            return b"aof_rewrite_in_progress:1" in await self._call("INFO", "persistence")
        except StoreError:
            return False

    async def save_checkpoint(self, claim: Claim, change: int, covered: int, data: bytes, ttl: float) -> bool:
        await self._first(claim)
        values = (*_guard(claim, change, ttl), covered, zlib.crc32(data), data)
        return bool(await self._connections.change(scripts.SAVE_CHECKPOINT, claim.held.key, *values))

    async def fork(self, claim: Claim, change: int, parent: str, length: int, ttl: float) -> bool:
        await self._first(claim)
        keys = claim.held.key
        await self._call("DEL", keys[-1])
        before = await self._said(parent)
        rows = await self._raw(parent, 0, length)
        data, covered, sound = await self._checkpoint(parent)
        extent = await self.extent(parent)
        # What was read in several steps is of one history only if that was not replaced meanwhile, by whoever holds it.
        after = await self._said(parent)
        if extent is None or len(rows) != length or before.shape != after.shape:
            raise StoreError(f"session {parent!r} was changed or deleted while it was forked; try again")
        await self._stage(keys, [_with_origin(row, parent) for row in rows])
        copied: tuple[Any, ...] = ("", "", b"")
        if data is not None and sound and covered <= length:
            copied = (covered, zlib.crc32(data), data)
        values = (extent.last_seq, length, *copied)
        return bool(await self._connections.change(scripts.CREATE, keys, *_guard(claim, change, ttl), *values))

    async def delete(self, claim: Claim) -> bool:
        made = await self._connections.change(scripts.DELETE, claim.held.key, claim.fence)
        await self._call("ZREM", self._directory, claim.session_id)
        return bool(made)

    async def mend(self, claim: Claim, change: int, damaged: Sequence[int], ttl: float) -> bool:
        await self._first(claim)
        raw = [row for row in await self._raw(claim.session_id, 0, None) if _problem(claim.session_id, row)]
        _, _, sound = await self._checkpoint(claim.session_id)
        values = (*_guard(claim, change, ttl), int(not sound), "here", *raw)
        return bool(await self._connections.change(scripts.MEND, claim.held.key, *values))

    async def _first(self, claim: Claim) -> None:
        """Before a session is made: name it in the directory."""
        if not claim.held.created:
            await self._list(claim.session_id)

    async def _list(self, session_id: str) -> None:
        await self._call("ZADD", self._directory, f"{time.time():.3f}", session_id)

    # -- reading --------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent | None:
        said = await self._said(session_id)
        sizes = said.sizes
        if sizes.orphaned or sizes.entries != sizes.wanted:
            log.warning("session %r: %s; opening it mends that", session_id, "; ".join(sizes.problems()))
        return said.extent if said.updated or sizes.orphaned else None

    async def read(self, session_id: str, start: int, stop: int | None) -> list[Row]:
        return [_unpacked(row) for row in await self._raw(session_id, start, stop)]

    async def _raw(self, session_id: str, start: int, stop: int | None) -> list[bytes]:
        """Rows as they are kept, in windows; begun again if the history was replaced between two of them."""
        entries = self._keys(session_id)[scripts.KEYS.index("entries")]
        for _ in range(5):
            said = await self._said(session_id)
            wanted = range(*slice(start, stop).indices(said.sizes.entries))
            rows: list[bytes] = []
            for first in range(wanted.start, wanted.stop, _WINDOW):
                last = min(first + _WINDOW, wanted.stop) - 1
                rows += await self._call("LRANGE", entries, first, last)
            if len(wanted) <= _WINDOW:
                return rows
            if (await self._said(session_id)).shape == said.shape:
                return rows
        raise StoreError(f"session {session_id!r} is being changed all the time; try again")

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Row]:
        found: list[tuple[int, bytes]] = []
        for first in range(0, len(seqs), _WINDOW):
            said = await self._run(scripts.FIND, self._keys(session_id), *seqs[first : first + _WINDOW])
            found += zip(map(int, said[::2]), said[1::2], strict=True)
        return [_unpacked(row) for _, row in sorted(found)]

    async def archived(self, session_id: str) -> list[Row]:
        archive = self._keys(session_id)[scripts.KEYS.index("archive")]
        rows: list[bytes] = []
        while True:
            window = await self._call("LRANGE", archive, len(rows), len(rows) + _WINDOW - 1)
            rows += window
            if len(window) < _WINDOW:
                return [_unpacked(row) for row in rows]

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        data, _, sound = await self._checkpoint(session_id)
        if not sound:
            raise Unsound(f"the checkpoint of session {session_id!r} is damaged")
        return data

    async def _checkpoint(self, session_id: str) -> tuple[bytes | None, int, bool]:
        """The checkpoint, how much it covers, and whether its bytes are those that were saved."""
        data, covered, crc = await self._run(scripts.LOAD_CHECKPOINT, self._keys(session_id))
        return data, int(covered), data is None or crc is None or zlib.crc32(data) == int(crc)

    async def damage(self, session_id: str) -> tuple[Sizes, list[str]]:
        """The sizes of a session's keys, and what is wrong with it, its rows aside."""
        sizes = (await self._said(session_id)).sizes
        _, _, sound = await self._checkpoint(session_id)
        return sizes, [*sizes.problems(), *([] if sound else ["the checkpoint is damaged"])]

    async def sessions(self) -> list[SessionInfo]:
        named = await self._call("ZRANGE", self._directory, 0, -1, "WITHSCORES")
        listed = {bytes(name).decode(): float(score) for name, score in zip(named[::2], named[1::2], strict=True)}
        if not listed:
            listed = await self._searched()
        ids = list(listed)
        found: list[tuple[int, SessionInfo]] = []
        for first in range(0, len(ids), _WINDOW):
            window = ids[first : first + _WINDOW]
            said = await self._connections.run_all(scripts.STATE, [self._keys(one) for one in window])
            for session_id, one in zip(window, map(Said.of, said), strict=True):
                if one.updated or one.sizes.orphaned:
                    micros = int(one.updated or 0)
                    when = datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat() if micros else ""
                    who = one.holder.decode() if one.live else ""
                    found.append((micros, SessionInfo(session_id, one.sizes.entries, when, int(one.size), who)))
                elif listed[session_id] < time.time() - _STALE:
                    await self._call("ZREM", self._directory, session_id)
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]

    async def _searched(self) -> dict[str, float]:
        """Sessions found among all keys, where the directory is empty or lost; they are in it again then."""
        found: dict[str, float] = {}
        start, end = f"{{{self._prefix}:", "}:meta"
        for key in await self._connections.scan(f"{_globbed(start)}*{end}"):
            found[_unquoted(bytes(key).decode()[len(start) : -len(end)])] = time.time()
        for session_id in found:
            await self._list(session_id)
        return found

    async def verify(self, session_id: str) -> list[str]:
        said = await self._said(session_id)
        _, wrong = await self.damage(session_id)
        noted = await self._places(session_id)
        seq_at = {place: seq for seq, place in noted.items()}
        elsewhere: list[int] = []
        highest = 0
        for place, raw in enumerate(await self._raw(session_id, 0, None)):
            seq = _unpacked(raw).seq
            if _problem(session_id, raw):
                known = seq if seq > 0 else seq_at.get(place, 0)
                wrong.append(f"the message at place {place:,}{f' (m{known})' if known else ''} is damaged")
            elif noted.get(seq) != place:
                elsewhere.append(seq)
            highest = max(highest, seq)
        if elsewhere and noted:
            wrong.append(f"{len(elsewhere):,} messages stand elsewhere than is noted, m{elsewhere[0]} the first")
        if highest > int(said.last_seq):
            wrong.append(f"m{highest} is there, and no seq above {int(said.last_seq):,} is said to have been given")
        return wrong

    async def _places(self, session_id: str) -> dict[int, int]:
        """What is noted of where each seq stands."""
        told = await self._call("HGETALL", self._keys(session_id)[scripts.KEYS.index("places")])
        noted = zip(told[::2], told[1::2], strict=True)
        return {int(seq): int(place) for seq, place in noted if seq.isdigit() and place.isdigit()}


_LINES: Shared[RedisAddress, RedisLine] = Shared(RedisLine)


class RedisStore(LeasedStore):
    """A store in a Redis database. Stores of one process with the same address share its connections.

    Args:
        address: where.
        lease_ttl: seconds until a claim that is not renewed expires.
        archive: keep what edits and interrupts take out of a history.
    """

    def __init__(self, address: RedisAddress, *, lease_ttl: float = 30.0, archive: bool = True) -> None:
        super().__init__(_LINES, address, ttl=lease_ttl, archive=archive)

    @classmethod
    def from_address(cls, address: str, *, durability: Durability = "fsync", archive: bool = True) -> RedisStore:
        """The store of a ``redis://`` or ``rediss://`` address.

        Parameters of ours: prefix, cluster=true (the server is a node of a cluster), lease_ttl (seconds), pool_size,
        socket_timeout and socket_connect_timeout (seconds). All others are redis-py's.

        Raises:
            ConfigError: it cannot be used.
        """
        read, lease_ttl = read_address(address, durability)
        return cls(read, lease_ttl=lease_ttl, archive=archive)

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        extent = await super().open(session_id, on_repair)
        claim = self._claims.get(session_id)
        if claim is None or claim.held.sound:
            return extent
        await self._changing(session_id, _nothing)  # what is changed is mended first
        return claim.extent

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        try:
            return await super().load_checkpoint(session_id)
        except Unsound as problem:
            if session_id in self._claims:
                with contextlib.suppress(SessionLost):  # then it is another's to mend
                    await self._changing(session_id, self._mend_all)
            else:
                log.warning("%s; it is left out", problem)
            return None

    async def _change(self, line: Line, session_id: str, turn: Gate, change: Change) -> None:
        async def soundly(line: Line, claim: Claim) -> None:
            if not claim.held.sound:
                await self._mend_all(line, claim)
            try:
                await change(line, claim)
            except Unsound:  # lost while it was open here
                await self._settle(line, session_id)
                await self._mend_all(line, claim)
                await change(line, claim)

        await super()._change(line, session_id, turn, soundly)

    async def _mend_all(self, line: Line, claim: Claim) -> None:
        await self._mend(line, claim, [])

    async def _mend(self, line: Line, claim: Claim, damaged: list[int]) -> None:
        """Mend all that is wrong with a session, lost keys too, and tell it."""
        redis = cast(RedisLine, line)
        before, wrong = await repeated(lambda: redis.damage(claim.session_id))
        await self._make(line, claim, lambda change: line.mend(claim, change, damaged, self._ttl))
        after, _ = await repeated(lambda: redis.damage(claim.session_id))
        state = await repeated(lambda: line.state(claim.session_id))
        claim.moved(claim.held.change, state.extent if state else None)
        aside = after.damaged - before.damaged
        if aside:
            wrong.append(f"{aside:,} messages could not be read and were taken out")
        if wrong:
            gone = max(0, before.wanted - after.entries)
            if gone or before.orphaned:
                wrong.append(f"the session goes on with {after.entries:,} messages")
            lost = gone + before.wanted_archive - before.archive
            kept = f"the damaged rows on {line.where}" if aside else ""
            self._tell(claim, Repair(claim.session_id, "; ".join(wrong), lost, kept))


async def _nothing(line: Line, claim: Claim) -> None:
    """A change that changes nothing."""


def _quoted(name: str) -> str:
    """A name as it stands inside a hash tag, which ends at the first closing brace."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def _unquoted(name: str) -> str:
    return name.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")


def _globbed(text: str) -> str:
    return "".join(f"\\{one}" if one in "\\*?[]^" else one for one in text)


def _millis(seconds: float) -> int:
    return round(seconds * 1000)


def _guard(claim: Claim, change: int, ttl: float) -> tuple[Any, ...]:
    return claim.fence, claim.held.change, change, _millis(ttl)


def _packed(row: Row) -> bytes:
    extra = message_json(row.extra) if row.extra else b""
    return b"%d %d %d %b\n%b" % (row.seq, row.turn, row.tokens, extra, row.message)


def _unpacked(raw: bytes) -> Row:
    """A row as it was packed. One that is damaged so far that it has no seq has the seq -1 and no message."""
    head, _, message = raw.partition(b"\n")
    try:
        seq, turn, tokens, extra = head.split(b" ", 3)
        told = cast("dict[str, Any]", loads(extra) if extra else {})
        return Row(int(seq), int(turn), int(tokens), message, told)
    except (ValueError, RecursionError):
        return Row(-1, 0, 0, b"", {})


def _problem(session_id: str, raw: bytes) -> str:
    """What is wrong with a row; empty when nothing is."""
    row = _unpacked(raw)
    try:
        decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra)
    except StoreError as problem:
        return str(problem)
    return ""


def _with_origin(raw: bytes, session_id: str) -> bytes:
    """A row of a session as it stands in another: with the session it was first added to."""
    row = _unpacked(raw)
    if row.seq < 0 or "session_id" in row.extra:
        return raw
    return _packed(row._replace(extra={"session_id": session_id, **row.extra}))


def _pieces(packed: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for index, row in enumerate(packed):
        size += len(row)
        if index > start and (index - start >= _MOST_ROWS or size > _MOST_BYTES):
            yield packed[start:index]
            start, size = index, len(row)
    if start < len(packed):
        yield packed[start:]
