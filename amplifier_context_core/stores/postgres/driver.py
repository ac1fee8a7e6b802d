"""The driver of a PostgreSQL server: each request of a store as statements.

A change is one statement if possible, and otherwise one transaction, guarded by the session's row (see
`..leased.protocol`). The holder of the lease counts the indices of entries, and a unique index checks them. So no two
writers can interleave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from functools import cached_property
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import sql
from psycopg.errors import Diagnostic

from ...errors import NotErased, StoreError
from ..codec import decode_entry, decode_extra, message_json
from ..leased.batching import MicroBatcher
from ..leased.protocol import (
    ConnectionLost,
    EntryRow,
    Lease,
    LeaseGrant,
    LeaseState,
    RewriteResult,
    Unreachable,
)
from ..protocol import Extent, SessionInfo
from .pool import PooledConnection, PostgresPool
from .search import PostgresSearch
from .statements import Statements, array
from .url import PostgresSettings
from .vectors import PostgresVectors

_MAX_ROWS, _MAX_BYTES = 500, 8_000_000  # of one statement
_MAX_BATCHED_ROWS, _MAX_BATCHED_BYTES = 100, 256_000  # of an append that is sent together with others
_ERASE_LIMIT = 3_600  # seconds that a vacuum may take


class _Append(NamedTuple):
    lease: Lease
    revision: int
    rows: Sequence[EntryRow]
    ttl: float

    def last_seq(self) -> int:
        return max(self.lease.extent.last_seq, *(row.seq for row in self.rows))

    def values(self) -> dict[str, Any]:
        return _guard(self.lease, self.revision, self.ttl) | {
            "count": str(len(self.rows)),
            "size": str(_size(self.rows)),
            "last_seq": str(self.last_seq()),
            "start": str(self.lease.extent.length),
        }


class PostgresDriver:
    """Implements `..leased.protocol.Driver`."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._pool = PostgresPool(settings)
        self._schema = settings.schema
        self.loop_thread = self._pool.loop_thread
        self.display_name = settings.display_name
        self.stop = self._pool.stop
        self._appends: MicroBatcher[_Append, bool] = MicroBatcher(self._append_all)
        self._ask, self._count, self._run = self._pool.ask, self._pool.count, self._pool.run

    @cached_property
    def _sql(self) -> Statements:
        # First used on the background loop: to build the statements takes milliseconds.
        return Statements(self._schema)

    @cached_property
    def search(self) -> PostgresSearch:
        """The search index of this server's sessions; for the background loop."""
        return PostgresSearch(self._pool, self._sql)

    @cached_property
    def vectors(self) -> PostgresVectors:
        """The vectors of this server's sessions; for the background loop."""
        return PostgresVectors(self._pool, self._sql)

    # -- leases ---------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str, token: str, holder: str, ttl: float, former: str = "") -> LeaseGrant | str:
        values = {"id": session_id, "fence": token, "holder": holder, "ttl": ttl, "former": former or token}
        rows = await self._ask(self._sql.acquire, values)
        if rows:
            key, length, last_seq, revision, created = rows[0]
            return LeaseGrant(key, Extent(length, last_seq), revision, created)
        found = await self._ask(self._sql.holder, {"id": session_id})
        return (found[0][0] or "") if found else ""

    async def renew(self, leases: Sequence[Lease], ttl: float) -> None:
        keys = array([lease.grant.key for lease in leases])
        tokens = array([lease.token for lease in leases])
        await self._count(self._sql.renew, {"keys": keys, "fences": tokens, "ttl": ttl})

    async def release(self, lease: Lease) -> None:
        await self._count(self._sql.release, {"key": lease.grant.key, "fence": lease.token})

    async def state(self, session_id: str) -> LeaseState | None:
        rows = await self._ask(self._sql.state, {"id": session_id})
        if not rows:
            return None
        token, holder, revision, length, last_seq = rows[0]
        return LeaseState(token.hex if token else "", holder or "", revision, Extent(length, last_seq))

    # -- changes --------------------------------------------------------------------------------------------------

    async def append(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> bool:
        size = _size(rows)
        if len(rows) > _MAX_ROWS or size > _MAX_BYTES:
            return await self._append_long(lease, revision, rows, ttl)
        one = _Append(lease, revision, rows, ttl)
        if len(rows) > _MAX_BATCHED_ROWS or size > _MAX_BATCHED_BYTES:  # alone: it would delay the others
            return bool((await self._append_all([one]))[0])
        return await self._appends.add(one)

    async def _append_all(self, batch: Sequence[_Append]) -> Sequence[bool | Exception]:
        if len(batch) == 1:
            one = batch[0]
            if len(one.rows) == 1:
                return [await self._count(*self._single(one)) == 1]
            return [await self._count(self._sql.append, one.values() | _columns(one.rows)) == len(one.rows)]
        try:
            applied = {key for (key,) in await self._pool.ask_few(self._sql.append_many, _batch_values(batch))}
        except (ConnectionLost, Unreachable):
            raise
        except StoreError:  # one of them cannot be stored; the others can
            return [await self._append_alone(one) for one in batch]
        return [one.lease.grant.key in applied for one in batch]

    def _single(self, one: _Append) -> tuple[bytes, dict[str, Any]]:
        """Return the statement and the values of an append of one row."""
        row = one.rows[0]
        values = _guard(one.lease, one.revision, one.ttl)
        values["seq"], values["turn"], values["token"] = str(row.seq), str(row.turn), str(row.tokens)
        values["size"] = str(len(row.message))
        if not row.extra:
            values["message"] = cast(bytes, row.message).decode()
            return self._sql.append_one, values
        values["message"], values["origin"], values["extra"] = _texts(row)
        return self._sql.append_one_with_extra, values

    async def _append_alone(self, one: _Append) -> bool | Exception:
        try:
            return bool((await self._append_all([one]))[0])
        except StoreError as problem:
            return problem

    async def _append_long(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> bool:
        """Append more rows than one statement takes."""
        chunks = list(_chunks(rows))
        first = _Append(lease, revision, rows, ttl).values() | _columns(chunks[0])

        async def work(connection: PooledConnection) -> bool:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.append, first)).rowcount != len(chunks[0]):
                    raise psycopg.Rollback(transaction)
                await self._insert(connection, lease, lease.extent.length + len(chunks[0]), chunks[1:])
                return True
            return False

        return await self._run(work)

    async def replace(
        self, lease: Lease, revision: int, keep: int, rows: Sequence[EntryRow], archive: bool, ttl: float
    ) -> bool:
        values = _guard(lease, revision, ttl) | {
            "keep": keep,
            "length": keep + len(rows),
            "last_seq": max((lease.extent.last_seq, *(row.seq for row in rows))),
            "staying": array([row.seq for row in rows]),
        }

        async def work(connection: PooledConnection) -> bool:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.replace, values)).rowcount != 1:
                    raise psycopg.Rollback(transaction)
                if archive:
                    await connection.execute(self._sql.archive, values)
                removed = await (await connection.execute(self._sql.tail_size, values)).fetchone()
                await connection.execute(self._sql.delete_tail, values)
                await self._insert(connection, lease, keep, list(_chunks(rows)))
                size = _size(rows) - (removed[0] if removed else 0)
                await connection.execute(self._sql.add_size, {"key": lease.grant.key, "size": size})
                return True
            return False

        return await self._run(work)

    async def _insert(
        self, connection: PooledConnection, lease: Lease, start: int, chunks: list[Sequence[EntryRow]]
    ) -> None:
        for chunk in chunks:
            if chunk:
                values = {"key": lease.grant.key, "start": start} | _columns(chunk)
                await connection.execute(self._sql.insert, values)
                start += len(chunk)

    async def rewrite(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> RewriteResult:
        guard = _guard(lease, revision, ttl)

        async def work(connection: PooledConnection) -> RewriteResult:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.guard, guard)).rowcount != 1:
                    raise psycopg.Rollback(transaction)
                different = unknown = 0
                for chunk in _chunks(rows):
                    values = {"key": lease.grant.key} | _columns(chunk)
                    for differing in (self._sql.differing, self._sql.differing_archived):
                        (found,) = await (await connection.execute(differing, values)).fetchall()
                        different += found[0]
                        if found[1]:
                            await connection.execute(self._sql.add_size, {"key": lease.grant.key, "size": found[1]})
                    ((missing,),) = await (await connection.execute(self._sql.unknown, values)).fetchall()
                    unknown += missing
                    await connection.execute(self._sql.rewrite_entries, values)
                    await connection.execute(self._sql.rewrite_archive, values)
                if unknown or not rows:
                    different += (await connection.execute(self._sql.discard_quarantine, guard)).rowcount
                if different:
                    await connection.execute(self._sql.discard_derived, guard)
                return RewriteResult.OTHER_MESSAGES if different else RewriteResult.SAME_MESSAGES
            return RewriteResult.REFUSED

        return await self._run(work)

    async def erase(self, lease: Lease) -> None:
        async def work(connection: PooledConnection) -> None:
            found = await (await connection.execute(self._sql.partitions, {"key": lease.grant.key})).fetchall()
            tables = [
                sql.Identifier(self._schema, name) for name in ("archive", "damaged", "search", "sessions", "vectors")
            ]
            tables += [sql.Identifier(self._schema, row[0]) for row in found]
            warnings: list[str] = []

            def collect(notice: Diagnostic) -> None:
                if notice.severity_nonlocalized == "WARNING":
                    warnings.append(notice.message_primary or "")

            connection.add_notice_handler(collect)
            try:
                await connection.execute(sql.SQL("VACUUM {}").format(sql.SQL(", ").join(tables)))
            finally:
                connection.remove_notice_handler(collect)
            if warnings:  # a table that this role does not own is skipped, which is no error
                raise StoreError(warnings[0])

        try:
            await self._pool.run_without_timeout(work, limit=_ERASE_LIMIT)
        except StoreError as problem:
            raise NotErased(
                f"session {lease.session_id!r}: the messages were replaced, but their former text stays in the tables "
                f"until they are vacuumed ({problem}); make the same call again"
            ) from problem

    async def save_checkpoint(self, lease: Lease, revision: int, covered: int, data: bytes, ttl: float) -> bool:
        values = _guard(lease, revision, ttl) | {"covered": covered, "data": data}
        return await self._count(self._sql.save_checkpoint, values) == 1

    async def fork(self, lease: Lease, revision: int, parent: str, length: int, ttl: float) -> bool:
        ((found_parent, applied),) = await self._ask(
            self._sql.fork, _guard(lease, revision, ttl) | {"parent": parent, "count": length}
        )
        if not found_parent:
            raise StoreError(f"session {parent!r} was shortened or deleted while it was forked; try again")
        return bool(applied)

    async def delete(self, lease: Lease) -> bool:
        return bool(await self._ask(self._sql.delete, {"key": lease.grant.key, "fence": lease.token}))

    async def repair(self, lease: Lease, revision: int, damaged: Sequence[int], ttl: float) -> bool:
        guard = _guard(lease, revision, ttl) | {"seqs": array(damaged)}

        async def work(connection: PooledConnection) -> bool:
            async with connection.transaction() as transaction:
                if (await connection.execute(self._sql.guard, guard)).rowcount != 1:
                    raise psycopg.Rollback(transaction)
                for step in (self._sql.quarantine, self._sql.renumber, self._sql.renumber_back, self._sql.recount):
                    await connection.execute(step, guard)
                return True
            return False

        return await self._run(work)

    # -- reading --------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent | None:
        rows = await self._ask(self._sql.extent, {"id": session_id})
        return Extent(*rows[0]) if rows else None

    async def read(self, session_id: str, start: int, stop: int | None) -> list[EntryRow]:
        values = {"id": session_id, "start": _as_bigint(start)}
        if stop is None:
            return _rows(await self._ask(self._sql.read_from, values))
        return _rows(await self._ask(self._sql.read, values | {"stop": _as_bigint(stop)}))

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[EntryRow]:
        return _rows(await self._ask(self._sql.find, {"id": session_id, "seqs": array(seqs)}))

    async def archived(self, session_id: str) -> list[EntryRow]:
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
        problems: list[str] = []
        if count != length:
            problems.append(f"it has {count:,} entries, and its row says {length:,}")
        if count and (first != 0 or last != count - 1):
            problems.append(f"indices go from {first:,} to {last:,}, and should go from 0 to {count - 1:,}")
        if highest > last_seq:
            problems.append(f"it holds m{highest}, and its row says that no seq above {last_seq:,} was ever given")
        if covered is not None and not 0 <= covered <= length:
            problems.append(f"its checkpoint covers {covered:,} entries of {length:,}")
        for row in [*await self.read(session_id, 0, None), *await self.archived(session_id)]:
            try:
                decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra)
            except StoreError as problem:
                problems.append(str(problem))
        return problems


def _guard(lease: Lease, revision: int, ttl: float) -> dict[str, Any]:
    # Numbers are sent as text: psycopg would choose a type by their size, and the server plan again for each type.
    grant = lease.grant
    return {
        "key": str(grant.key),
        "fence": lease.token,
        "last": str(grant.revision),
        "change": str(revision),
        "ttl": str(ttl),
    }


def _as_bigint(index: int) -> int:
    return max(-(2**62), min(index, 2**62))


def _size(rows: Sequence[EntryRow]) -> int:
    return sum(len(row.message) for row in rows)


def _columns(rows: Sequence[EntryRow]) -> dict[str, Any]:
    texts = [_texts(row) for row in rows]
    return {
        "seqs": array([row.seq for row in rows]),
        "turns": array([row.turn for row in rows]),
        "tokens": array([row.tokens for row in rows]),
        "messages": [text[0] for text in texts],
        "origins": [text[1] for text in texts],
        "extras": [text[2] for text in texts],
    }


def _batch_values(batch: Sequence[_Append]) -> dict[str, Any]:
    """Return the values of one statement for appends to several sessions."""
    slots = [
        (one.lease.grant.key, index)
        for one in batch
        for index in range(one.lease.extent.length, one.lease.extent.length + len(one.rows))
    ]
    return _columns([row for one in batch for row in one.rows]) | {
        "keys": array([one.lease.grant.key for one in batch]),
        "fences": array([one.lease.token for one in batch]),
        "lasts": array([one.lease.grant.revision for one in batch]),
        "changes": array([one.revision for one in batch]),
        "ttls": array([one.ttl for one in batch]),
        "counts": array([len(one.rows) for one in batch]),
        "last_seqs": array([one.last_seq() for one in batch]),
        "sizes": array([_size(one.rows) for one in batch]),
        "sessions": array([key for key, _ in slots]),
        "places": array([index for _, index in slots]),
    }


def _texts(row: EntryRow) -> tuple[str, str, str]:
    """Return message, origin and the rest of the row's extra; empty text for what it lacks."""
    message = cast(bytes, row.message).decode()
    if not row.extra:
        return message, "", ""
    extra = dict(row.extra)
    origin = extra.pop("session_id", "")
    if not isinstance(origin, str) or not origin.isprintable():  # JSON can hold it, text cannot
        extra["session_id"], origin = origin, ""
    return message, origin, message_json(extra).decode() if extra else ""


def _rows(found: Sequence[tuple[Any, ...]]) -> list[EntryRow]:
    return [
        EntryRow(seq, turn, tokens, message, decode_extra(origin, extra))
        for seq, turn, tokens, message, origin, extra in found
    ]


def _chunks(rows: Sequence[EntryRow]) -> Iterator[Sequence[EntryRow]]:
    """Split rows into chunks that one statement can take."""
    start = size = 0
    for index, row in enumerate(rows):
        size += len(row.message)
        if index > start and (index - start >= _MAX_ROWS or size > _MAX_BYTES):
            yield rows[start:index]
            start, size = index, len(row.message)
    if start < len(rows):
        yield rows[start:]
