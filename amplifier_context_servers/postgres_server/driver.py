"""The driver of a PostgreSQL server: each request of a store as statements.

A change is one statement if possible, and otherwise one transaction, guarded by the session's row (see
`..leased.protocol`). The holder of the lease counts the indices of entries, and a unique index checks them. So no two
writers can interleave.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC
from typing import Any, NamedTuple, cast

from psycopg import sql
from psycopg.errors import Diagnostic

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores.codec import decode_extra, message_json
from amplifier_context_core.stores.protocol import Extent, SessionInfo

from ..leased.batching import MicroBatcher
from ..leased.protocol import (
    Change,
    ConnectionLost,
    EntryRow,
    Lease,
    SessionRow,
    Unreachable,
    holder_name,
)
from . import queries
from .pool import Connection, PostgresPool
from .url import PostgresSettings

_MAX_ROWS, _MAX_BYTES = 500, 8_000_000  # of one statement
_MAX_BATCHED_ROWS, _MAX_BATCHED_BYTES = 100, 256_000  # of an append that is sent together with others
_ERASED = ("archive", "sessions", "vectors")  # tables that are vacuumed, with those of entries
_ERASE_LIMIT = 3_600  # seconds that a vacuum may take
_FAR = 2**62  # an index beyond every history


class _Append(NamedTuple):
    lease: Lease
    rows: Sequence[EntryRow]
    change: Change


class PostgresDriver:
    """Implements `..leased.protocol.Driver`."""

    def __init__(self, settings: PostgresSettings) -> None:
        self.pool = PostgresPool(settings)
        self._schema = settings.schema
        self.loop_thread = self.pool.loop_thread
        self.display_name = settings.display_name
        self.stop = self.pool.stop
        self._appends: MicroBatcher[_Append, bool] = MicroBatcher(self._append_all)
        self._ask, self._count, self._execute = self.pool.ask, self.pool.count, self.pool.execute

    # -- leases ---------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str, token: str, ttl: float, former: str = "") -> SessionRow | None:
        values = {"id": session_id, "fence": token, "holder": holder_name(), "ttl": ttl, "former": former or token}
        rows = await self._ask(queries.ACQUIRE, values)
        return _session(rows[0]) if rows else await self.state(session_id)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> None:
        rows = [lease.row for lease in leases]
        values = {"keys": [row.key for row in rows], "fences": [row.token for row in rows], "ttl": ttl}
        await self._count(queries.RENEW, values)

    async def release(self, lease: Lease) -> None:
        await self._count(queries.RELEASE, {"key": lease.row.key, "fence": lease.row.token})

    async def state(self, session_id: str) -> SessionRow | None:
        rows = await self._ask(queries.STATE, {"id": session_id})
        return _session(rows[0]) if rows else None

    # -- changes --------------------------------------------------------------------------------------------------

    async def replace(self, lease: Lease, keep: int, rows: Sequence[EntryRow], archive: bool, change: Change) -> bool:
        is_small = len(rows) <= _MAX_BATCHED_ROWS and _size(rows) <= _MAX_BATCHED_BYTES
        if keep == lease.length and is_small:  # a larger append would delay the others
            return await self._appends.add(_Append(lease, rows, change))
        extent = lease.extent_with(rows, keep)
        values = _guard(lease, change) | {
            "keep": keep,
            "length": extent.length,
            "last_seq": extent.last_seq,
            "staying": [row.seq for row in rows],
            "size": _size(rows),
        }

        async def work(connection: Connection) -> None:
            if archive:
                await self._execute(connection, queries.ARCHIVE, values)
            await self._execute(connection, queries.DELETE_TAIL, values)
            start = keep
            for chunk in _chunks(rows):
                place = {"key": lease.row.key, "start": start}
                await self._execute(connection, queries.INSERT, place | _columns(chunk))
                start += len(chunk)

        return await self._guarded(queries.REPLACE, values, work)

    async def _append_all(self, batch: Sequence[_Append]) -> Sequence[bool | Exception]:
        try:
            applied = {key for (key,) in await self._ask(queries.APPEND, _batch_values(batch))}
        except StoreError as problem:
            if isinstance(problem, (ConnectionLost, Unreachable)):
                raise
            if len(batch) == 1:
                return [problem]
            return [(await self._append_all([one]))[0] for one in batch]  # one of them cannot be stored
        return [one.lease.row.key in applied for one in batch]

    async def _guarded(self, guard: str, values: dict[str, Any], work: Callable[[Connection], Awaitable[None]]) -> bool:
        """Make a change of several statements in one transaction. Return False if its first one, the guard, fails."""

        async def guarded(connection: Connection) -> bool:
            async with connection.transaction():
                if (await self._execute(connection, guard, values)).rowcount != 1:
                    return False
                await work(connection)
                return True

        return await self.pool.run(guarded)

    async def rewrite(self, lease: Lease, rows: Sequence[EntryRow], change: Change) -> bool:
        key = lease.row.key

        async def work(connection: Connection) -> None:
            changed: list[int] = []
            size = 0
            for chunk in _chunks(rows):
                for statement in (queries.REWRITE_ENTRIES, queries.REWRITE_ARCHIVE):
                    cursor = await self._execute(connection, statement, {"key": key} | _columns(chunk))
                    for seq, is_other, grown in await cursor.fetchall():
                        changed += [seq] * is_other
                        size += grown * (statement is queries.REWRITE_ENTRIES)
            if changed:
                await self._execute(connection, queries.DISCARD_DERIVED, {"key": key, "seqs": changed, "size": size})

        return await self._guarded(queries.GUARD, _guard(lease, change), work)

    async def erase(self, lease: Lease) -> None:
        warnings: list[str] = []

        def collect(notice: Diagnostic) -> None:
            if notice.severity_nonlocalized == "WARNING":  # a table that this role does not own is skipped
                warnings.append(notice.message_primary or "")

        async def work(connection: Connection) -> None:
            found = await self._execute(connection, queries.PARTITIONS, {"key": lease.row.key})
            names = [*_ERASED, *(name for (name,) in await found.fetchall())]
            tables = sql.SQL(", ").join(sql.Identifier(self._schema, name) for name in names)
            connection.add_notice_handler(collect)
            await connection.execute(sql.SQL("VACUUM {}").format(tables))
            if warnings:
                raise StoreError(warnings[0])

        try:
            await self.pool.run_alone(work, _ERASE_LIMIT)
        except StoreError as problem:
            raise NotErased(
                f"session {lease.session_id!r}: the messages were replaced, but their former text stays in the tables "
                f"until they are vacuumed ({problem}); make the same call again"
            ) from problem

    async def save_checkpoint(self, lease: Lease, covered: int, data: bytes, change: Change) -> bool:
        values = _guard(lease, change) | {"covered": covered, "data": data}
        return await self._count(queries.SAVE_CHECKPOINT, values) == 1

    async def fork(self, lease: Lease, parent: str, length: int, change: Change) -> bool:
        values = _guard(lease, change) | {"parent": parent, "count": length}
        ((found_parent, applied),) = await self._ask(queries.FORK, values)
        if not found_parent:
            raise StoreError(f"session {parent!r} was shortened or deleted while it was forked; try again")
        return bool(applied)

    async def delete(self, lease: Lease) -> bool:
        values = {"key": lease.row.key, "fence": lease.row.token}

        async def work(connection: Connection) -> None:
            await self._execute(connection, queries.DELETE_ROWS, values)

        return await self._guarded(queries.DELETE, values, work)

    # -- reading --------------------------------------------------------------------------------------------------

    async def read(self, session_id: str, start: int, stop: int | None) -> list[EntryRow]:
        first, last = (max(-_FAR, min(index, _FAR)) for index in (start, _FAR if stop is None else stop))
        return _rows(await self._ask(queries.READ, {"id": session_id, "start": first, "stop": last}))

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[EntryRow]:
        return _rows(await self._ask(queries.FIND, {"id": session_id, "seqs": list(seqs)}))

    async def archived(self, session_id: str) -> list[EntryRow]:
        return _rows(await self._ask(queries.ARCHIVED, {"id": session_id}))

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        rows = await self._ask(queries.LOAD_CHECKPOINT, {"id": session_id})
        return rows[0][0] if rows else None

    async def sessions(self) -> list[SessionInfo]:
        return [
            SessionInfo(name, length, updated.astimezone(UTC).isoformat(), size, holder or "")
            for name, length, updated, size, holder in await self._ask(queries.SESSIONS, {})
        ]


def _guard(lease: Lease, change: Change) -> dict[str, Any]:
    row = lease.row
    return {"key": row.key, "fence": row.token, "last": row.revision, "change": change.revision, "ttl": change.ttl}


def _session(found: Sequence[Any]) -> SessionRow:
    key, token, holder, length, last_seq, revision, created = found
    return SessionRow(key, token.hex if token else "", holder or "", Extent(length, last_seq), revision, created)


def _size(rows: Sequence[EntryRow]) -> int:
    return sum(len(row.message) for row in rows)


def _columns(rows: Sequence[EntryRow]) -> dict[str, Any]:
    messages, origins, extras = zip(*map(_texts, rows), strict=True)
    return {
        "seqs": [row.seq for row in rows],
        "turns": [row.turn for row in rows],
        "tokens": [row.tokens for row in rows],
        "messages": list(messages),
        "origins": list(origins),
        "extras": list(extras),
    }


def _batch_values(batch: Sequence[_Append]) -> dict[str, Any]:
    """Return the values of one statement for appends to several sessions."""
    sent = [(one.lease, row, index) for one in batch for index, row in enumerate(one.rows)]
    return _columns([row for _, row, _ in sent]) | {
        "keys": [one.lease.row.key for one in batch],
        "fences": [one.lease.row.token for one in batch],
        "lasts": [one.lease.row.revision for one in batch],
        "changes": [one.change.revision for one in batch],
        "ttls": [one.change.ttl for one in batch],
        "counts": [len(one.rows) for one in batch],
        "last_seqs": [one.lease.extent_with(one.rows, 0).last_seq for one in batch],
        "sizes": [_size(one.rows) for one in batch],
        "sessions": [lease.row.key for lease, _, _ in sent],
        "places": [lease.length + index for lease, _, index in sent],
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
