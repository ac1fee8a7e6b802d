"""Histories in PostgreSQL: many machines, one writer a session.

``postgresql://user@host:5432/database?schema=NAME&lease_ttl=30``. What a change does is one statement where that can
be, and otherwise one transaction, guarded by the session's row (see `leases`). Places are counted by the row's writer
and checked by a unique index, so no two writers can interleave.

`rewrite` (to forget a pasted secret) replaces the rows and then vacuums the tables they stood in, so that no query can
find the old ones. Bytes may outlive that where no query looks: in the free room of a page until it is used again
(``VACUUM FULL`` writes tables anew), in the write-ahead log until it is recycled, in replicas for a moment, and in
archived logs and backups for as long as those are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator, Sequence
from datetime import UTC
from functools import cached_property
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import sql

from ...errors import NotErased, StoreError
from ..codec import decode_entry, loads, message_json
from ..protocol import Durability, Extent, SessionInfo
from ..servers.batches import Batches
from ..servers.leased_store import LeasedStore
from ..servers.leases import Claim, Cut, Held, Rewritten, Row, State, Unreachable
from ..servers.owner import Shared
from .address import PostgresAddress, read_address
from .line import Connection, PostgresConnections
from .statements import Statements

log = logging.getLogger(__name__)

_MOST_ROWS, _MOST_BYTES = 500, 8_000_000  # of one statement
_FEW_ROWS, _FEW_BYTES = 100, 256_000  # of an append that goes together with others


class _Append(NamedTuple):
    claim: Claim
    change: int
    rows: Sequence[Row]
    ttl: float

    def last_seq(self) -> int:
        return max(self.claim.extent.last_seq, *(row.seq for row in self.rows))

    def values(self) -> dict[str, Any]:
        return _guard(self.claim, self.change, self.ttl) | {
            "count": str(len(self.rows)),
            "size": str(_size(self.rows)),
            "last_seq": str(self.last_seq()),
            "start": str(self.claim.extent.length),
        }


class PostgresLine:
    """See `leases.Line`."""

    def __init__(self, address: PostgresAddress) -> None:
        self._connections = PostgresConnections(address)
        self._schema = address.schema
        self.owner = self._connections.owner
        self.where = address.where
        self.stop = self._connections.stop
        self._appends: Batches[_Append, bool] = Batches(self._append_all)
        self._ask, self._count, self._do = self._connections.ask, self._connections.count, self._connections.do

    @cached_property
    def _sql(self) -> Statements:
        # First used on the background loop: to put them together takes milliseconds.
        return Statements(self._schema)

    # -- claims ---------------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, fence: str, holder: str, ttl: float) -> Held | str:
        values = {"id": session_id, "fence": fence, "holder": holder, "ttl": ttl}
        rows = await self._ask(self._sql.claim, values)
        if rows:
            key, length, last_seq, change, created = rows[0]
            return Held(key, Extent(length, last_seq), change, created)
        held_by = await self._ask(self._sql.holder, {"id": session_id})
        return (held_by[0][0] or "") if held_by else ""

    async def renew(self, claims: Sequence[Claim], ttl: float) -> None:
        keys = _array([claim.held.key for claim in claims])
        fences = _array([claim.fence for claim in claims])
        await self._count(self._sql.renew, {"keys": keys, "fences": fences, "ttl": ttl})

    async def release(self, claim: Claim) -> None:
        await self._count(self._sql.release, {"key": claim.held.key, "fence": claim.fence})

    async def state(self, session_id: str) -> State | None:
        rows = await self._ask(self._sql.state, {"id": session_id})
        if not rows:
            return None
        fence, holder, change, length, last_seq = rows[0]
        return State(fence.hex if fence else "", holder or "", change, Extent(length, last_seq))

    async def settle(self, claim: Claim, change: int, ttl: float) -> bool:
        return await self._count(self._sql.settle, _guard(claim, change, ttl)) == 1

    async def undo(self, claim: Claim, undone: int, change: int) -> bool:
        extent = claim.extent
        values = _guard(claim, change, 0) | {
            "last": undone,
            "length": extent.length,
            "last_seq": extent.last_seq,
            "created": claim.held.created,
        }

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                rows = await (await connection.execute(self._sql.undo, values)).fetchall()
                for key, size in rows:
                    await connection.execute(self._sql.add_size, {"key": key, "size": -size})
                return bool(rows)

        return await self._do(work)

    # -- changes --------------------------------------------------------------------------------------------------

    async def append(self, claim: Claim, change: int, rows: Sequence[Row], ttl: float) -> bool:
        size = _size(rows)
        if len(rows) > _MOST_ROWS or size > _MOST_BYTES:
            return await self._append_long(claim, change, rows, ttl)
        one = _Append(claim, change, rows, ttl)
        if len(rows) > _FEW_ROWS or size > _FEW_BYTES:  # it keeps nobody else waiting
            return bool((await self._append_all([one]))[0])
        return await self._appends.add(one)

    def append_here(self, claim: Claim, change: int, row: Row, ttl: float) -> Coroutine[Any, Any, bool] | None:
        statement, values = self._one(_Append(claim, change, (row,), ttl))
        connection = self._connections.lend()
        return None if connection is None else self._send_here(connection, statement, values)

    async def _send_here(self, connection: Connection, statement: bytes, values: dict[str, Any]) -> bool:
        return await self._connections.use(connection, statement, values) == 1

    async def _append_all(self, batch: Sequence[_Append]) -> Sequence[bool | Exception]:
        if len(batch) == 1:
            one = batch[0]
            if len(one.rows) == 1:
                return [await self._count(*self._one(one)) == 1]
            return [await self._count(self._sql.append, one.values() | _columns(one.rows)) == len(one.rows)]
        try:
            made = {key for (key,) in await self._connections.ask_few(self._sql.append_many, _together(batch))}
        except (Cut, Unreachable):
            raise
        except StoreError:  # one of them cannot be stored: the others can
            return [await self._alone(one) for one in batch]
        return [one.claim.held.key in made for one in batch]

    def _one(self, one: _Append) -> tuple[bytes, dict[str, Any]]:
        row = one.rows[0]
        values = _guard(one.claim, one.change, one.ttl)
        values["seq"], values["turn"], values["token"] = str(row.seq), str(row.turn), str(row.tokens)
        values["size"] = str(len(row.message))
        if not row.extra:
            values["message"] = cast(bytes, row.message).decode()
            return self._sql.append_one, values
        values["message"], values["origin"], values["extra"] = _texts(row)
        return self._sql.append_one_knowing, values

    async def _alone(self, one: _Append) -> bool | Exception:
        try:
            return bool((await self._append_all([one]))[0])
        except StoreError as problem:
            return problem

    async def _append_long(self, claim: Claim, change: int, rows: Sequence[Row], ttl: float) -> bool:
        """An append too long for one statement."""
        pieces = list(_pieces(rows))
        first = _Append(claim, change, rows, ttl).values() | _columns(pieces[0])

        async def work(connection: Connection) -> bool:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.append, first)).rowcount != len(pieces[0]):
                    raise psycopg.Rollback(transaction)
                await self._insert(connection, claim, claim.extent.length + len(pieces[0]), pieces[1:])
                return True
            return False

        return await self._do(work)

    async def replace(
        self, claim: Claim, change: int, keep: int, rows: Sequence[Row], archive: bool, ttl: float
    ) -> bool:
        values = _guard(claim, change, ttl) | {
            "keep": keep,
            "length": keep + len(rows),
            "last_seq": max((claim.extent.last_seq, *(row.seq for row in rows))),
            "staying": _array([row.seq for row in rows]),
        }

        async def work(connection: Connection) -> bool:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.replace, values)).rowcount != 1:
                    raise psycopg.Rollback(transaction)
                if archive:
                    await connection.execute(self._sql.archive, values)
                gone = await (await connection.execute(self._sql.tail_size, values)).fetchone()
                await connection.execute(self._sql.cut, values)
                await self._insert(connection, claim, keep, list(_pieces(rows)))
                size = _size(rows) - (gone[0] if gone else 0)
                await connection.execute(self._sql.add_size, {"key": claim.held.key, "size": size})
                return True
            return False

        return await self._do(work)

    async def _insert(self, connection: Connection, claim: Claim, start: int, pieces: list[Sequence[Row]]) -> None:
        for piece in pieces:
            if piece:
                values = {"key": claim.held.key, "start": start} | _columns(piece)
                await connection.execute(self._sql.insert, values)
                start += len(piece)

    async def rewrite(self, claim: Claim, change: int, rows: Sequence[Row], ttl: float) -> Rewritten:
        guard = _guard(claim, change, ttl)

        async def work(connection: Connection) -> Rewritten:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.guard, guard)).rowcount != 1:
                    raise psycopg.Rollback(transaction)
                different = unknown = 0
                for piece in _pieces(rows):
                    values = {"key": claim.held.key} | _columns(piece)
                    for differing in (self._sql.differing, self._sql.differing_archived):
                        (found,) = await (await connection.execute(differing, values)).fetchall()
                        different += found[0]
                        if found[1]:
                            await connection.execute(self._sql.add_size, {"key": claim.held.key, "size": found[1]})
                    ((missing,),) = await (await connection.execute(self._sql.unknown, values)).fetchall()
                    unknown += missing
                    await connection.execute(self._sql.rewrite_entries, values)
                    await connection.execute(self._sql.rewrite_archive, values)
                if unknown or not rows:
                    different += (await connection.execute(self._sql.discard_damaged, guard)).rowcount
                if different:
                    await connection.execute(self._sql.forget, guard)
                return Rewritten.OTHER_MESSAGES if different else Rewritten.SAME_MESSAGES
            return Rewritten.REFUSED

        return await self._do(work)

    async def erase(self, claim: Claim) -> None:
        async def work(connection: Connection) -> None:
            found = await (await connection.execute(self._sql.partitions, {"key": claim.held.key})).fetchall()
            tables = [sql.Identifier(self._schema, name) for name in ("archive", "damaged", "sessions")]
            tables += [sql.Identifier(self._schema, row[0]) for row in found]
            await connection.execute(sql.SQL("VACUUM {}").format(sql.SQL(", ").join(tables)))

        try:
            await self._connections.do_slowly(work, limit=3_600)
        except StoreError as problem:
            raise NotErased(
                f"session {claim.session_id!r}: the messages were replaced, but what they said stays in the tables "
                f"until they are vacuumed ({problem}); make the same call again"
            ) from problem

    async def save_checkpoint(self, claim: Claim, change: int, covered: int, data: bytes, ttl: float) -> bool:
        values = _guard(claim, change, ttl) | {"covered": covered, "data": data}
        return await self._count(self._sql.save_checkpoint, values) == 1

    async def fork(self, claim: Claim, change: int, parent: str, length: int, ttl: float) -> bool:
        ((there, made),) = await self._ask(
            self._sql.fork, _guard(claim, change, ttl) | {"parent": parent, "count": length}
        )
        if not there:
            raise StoreError(f"session {parent!r} was shortened or deleted while it was forked; try again")
        return bool(made)

    async def delete(self, claim: Claim) -> bool:
        return bool(await self._ask(self._sql.delete, {"key": claim.held.key, "fence": claim.fence}))

    async def mend(self, claim: Claim, change: int, damaged: Sequence[int], ttl: float) -> bool:
        guard = _guard(claim, change, ttl) | {"seqs": _array(damaged)}

        async def work(connection: Connection) -> bool:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.guard, guard)).rowcount != 1:
                    raise psycopg.Rollback(transaction)
                for step in (self._sql.set_aside, self._sql.renumber, self._sql.renumber_back, self._sql.recount):
                    await connection.execute(step, guard)
                return True
            return False

        return await self._do(work)

    # -- reading --------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent | None:
        rows = await self._ask(self._sql.extent, {"id": session_id})
        return Extent(*rows[0]) if rows else None

    async def read(self, session_id: str, start: int, stop: int | None) -> list[Row]:
        values = {"id": session_id, "start": _within(start)}
        if stop is None:
            return _rows(await self._ask(self._sql.read_from, values))
        return _rows(await self._ask(self._sql.read, values | {"stop": _within(stop)}))

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Row]:
        return _rows(await self._ask(self._sql.find, {"id": session_id, "seqs": _array(seqs)}))

    async def archived(self, session_id: str) -> list[Row]:
        return _rows(await self._ask(self._sql.archived, {"id": session_id}))

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        rows = await self._ask(self._sql.load_checkpoint, {"id": session_id})
        return rows[0][0] if rows else None

    async def sessions(self) -> list[SessionInfo]:
        return [
            SessionInfo(name, length, updated.astimezone(UTC).isoformat(), size, holder or "")
            for name, length, updated, size, holder in await self._ask(self._sql.sessions, {})
        ]

    async def verify(self, session_id: str) -> list[str]:
        rows = await self._ask(self._sql.counts, {"id": session_id})
        if not rows:
            return []
        length, last_seq, covered, count, first, last, highest = rows[0]
        wrong: list[str] = []
        if count != length:
            wrong.append(f"{count:,} entries are there, and its row says {length:,}")
        if count and (first != 0 or last != count - 1):
            wrong.append(f"places go from {first:,} to {last:,}, and should from 0 to {count - 1:,}")
        if highest > last_seq:
            wrong.append(f"m{highest} is there, and its row says that no seq above {last_seq:,} was ever given")
        if covered is not None and not 0 <= covered <= length:
            wrong.append(f"its checkpoint stands for {covered:,} entries of {length:,}")
        for row in [*await self.read(session_id, 0, None), *await self.archived(session_id)]:
            try:
                decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra)
            except StoreError as problem:
                wrong.append(str(problem))
        return wrong


_LINES: Shared[PostgresAddress, PostgresLine] = Shared(PostgresLine)


class PostgresStore(LeasedStore):
    """A store in a PostgreSQL database. Stores of one process with the same address share a pool of connections.

    Args:
        address: where.
        lease_ttl: seconds until a claim that is not renewed expires.
        archive: keep what edits and interrupts take out of a history.
    """

    def __init__(self, address: PostgresAddress, *, lease_ttl: float = 30.0, archive: bool = True) -> None:
        super().__init__(_LINES, address, ttl=lease_ttl, archive=archive)

    @classmethod
    def from_address(cls, address: str, *, durability: Durability = "fsync", archive: bool = True) -> PostgresStore:
        """The store of a ``postgresql://`` address; parameters of ours: schema, lease_ttl (seconds), statement_timeout
        (seconds), pool_size. All others, connect_timeout (seconds) among them, are libpq's.

        Raises:
            ConfigError: it cannot be used.
        """
        read, lease_ttl = read_address(address, durability)
        return cls(read, lease_ttl=lease_ttl, archive=archive)


def _guard(claim: Claim, change: int, ttl: float) -> dict[str, Any]:
    # Numbers go as text: psycopg would choose a type by their size, and the server plan anew for each.
    held = claim.held
    return {
        "key": str(held.key),
        "fence": claim.fence,
        "last": str(held.change),
        "change": str(change),
        "ttl": str(ttl),
    }


def _within(place: int) -> int:
    return max(-(2**62), min(place, 2**62))


def _array(numbers: Sequence[object]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _size(rows: Sequence[Row]) -> int:
    return sum(len(row.message) for row in rows)


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    texts = [_texts(row) for row in rows]
    return {
        "seqs": _array([row.seq for row in rows]),
        "turns": _array([row.turn for row in rows]),
        "tokens": _array([row.tokens for row in rows]),
        "messages": [text[0] for text in texts],
        "origins": [text[1] for text in texts],
        "extras": [text[2] for text in texts],
    }


def _together(batch: Sequence[_Append]) -> dict[str, Any]:
    """Appends to several sessions as one."""
    places = [
        (one.claim.held.key, place)
        for one in batch
        for place in range(one.claim.extent.length, one.claim.extent.length + len(one.rows))
    ]
    return _columns([row for one in batch for row in one.rows]) | {
        "keys": _array([one.claim.held.key for one in batch]),
        "fences": _array([one.claim.fence for one in batch]),
        "lasts": _array([one.claim.held.change for one in batch]),
        "changes": _array([one.change for one in batch]),
        "ttls": _array([one.ttl for one in batch]),
        "counts": _array([len(one.rows) for one in batch]),
        "last_seqs": _array([one.last_seq() for one in batch]),
        "sizes": _array([_size(one.rows) for one in batch]),
        "sessions": _array([key for key, _ in places]),
        "places": _array([place for _, place in places]),
    }


def _texts(row: Row) -> tuple[str, str, str]:
    """Message, origin and the rest of what the entry knows; empty where there is nothing."""
    message = cast(bytes, row.message).decode()
    if not row.extra:
        return message, "", ""
    extra = dict(row.extra)
    origin = extra.pop("session_id", "")
    if not isinstance(origin, str) or not origin.isprintable():  # JSON can hold it, text cannot
        extra["session_id"], origin = origin, ""
    return message, origin, message_json(extra).decode() if extra else ""


def _rows(found: Sequence[tuple[Any, ...]]) -> list[Row]:
    return [
        Row(seq, turn, tokens, message, _extra(origin, extra)) for seq, turn, tokens, message, origin, extra in found
    ]


def _extra(origin: str | None, extra: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {"session_id": origin} if origin else {}
    if extra:
        try:
            read = loads(extra)
        except (ValueError, RecursionError):
            read = None  # damaged; the message is worth more
        if isinstance(read, dict):
            told |= cast("dict[str, Any]", read)
    return told


def _pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows in pieces that a statement can take."""
    start = size = 0
    for index, row in enumerate(rows):
        size += len(row.message)
        if index > start and (index - start >= _MOST_ROWS or size > _MOST_BYTES):
            yield rows[start:index]
            start, size = index, len(row.message)
    if start < len(rows):
        yield rows[start:]
