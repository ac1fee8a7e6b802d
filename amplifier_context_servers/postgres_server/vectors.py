"""Vectors of messages in PostgreSQL: a table beside the entries.

Statements that take a message out of the history, or change it, take its vector out as well. Vectors are compared with
the messages and kept while the session's row is locked, so none is kept of an earlier text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amplifier_context_core.errors import StoreError
from amplifier_context_core.messages.hashing import text_digest
from amplifier_context_core.stores.codec import decode_entry, decode_extra
from amplifier_context_core.stores.protocol import KeptVector
from amplifier_context_core.transcript.search import searchable_text

from . import queries
from .pool import Connection, PostgresPool


async def read_vectors(pool: PostgresPool, session_id: str, model: str) -> list[KeptVector]:
    found = await pool.ask(queries.VECTORS, {"id": session_id, "model": model})
    return [KeptVector(seq, bytes(made_of), bytes(vector)) for seq, made_of, vector in found]


async def save_vectors(pool: PostgresPool, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
    """Keep vectors, but for those of another text than the history has now."""
    by_seq = {one.seq: one for one in vectors}

    async def work(connection: Connection) -> None:
        async with connection.transaction():
            values: dict[str, Any] = {"id": session_id, "model": model, "seqs": list(by_seq)}
            await pool.execute(connection, queries.LOCK, values)
            cursor = await pool.execute(connection, queries.FIND, values)
            kept = [
                by_seq[row[0]]
                for row in await cursor.fetchall()
                if text_digest(text_of_message(session_id, row[3])) == by_seq[row[0]].digest
            ]
            if kept:
                await pool.execute(connection, queries.DROP_OTHER_VECTORS, values)
                columns = {
                    "seqs": [one.seq for one in kept],
                    "digests": [one.digest for one in kept],
                    "vectors": [one.vector for one in kept],
                }
                await pool.execute(connection, queries.SAVE_VECTORS, values | columns)

    await pool.run(work)


def text_of_message(session_id: str, message: str) -> str:
    """Return the text of a message; empty if it is damaged, which the next read reports."""
    try:
        return searchable_text(decode_entry(session_id, 0, 0, 0, message, decode_extra(None, None)))
    except StoreError:
        return ""
