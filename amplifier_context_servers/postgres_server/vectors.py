"""Vectors of messages in PostgreSQL: a table beside the entries.

Statements that take a message out of the history, or change it, take its vector out as well. They also count
`sessions.edits`, so that a vector which was made of an earlier text is not kept after them.
"""

from __future__ import annotations

from collections.abc import Sequence

from amplifier_context_core.errors import StoreError
from amplifier_context_core.messages.hashing import text_digest
from amplifier_context_core.stores.codec import decode_entry
from amplifier_context_core.stores.protocol import KeptVector
from amplifier_context_core.transcript.searchable import searchable_text

from . import queries
from .pool import PostgresPool


async def read_vectors(pool: PostgresPool, session_id: str, model: str) -> list[KeptVector]:
    found = await pool.ask(queries.VECTORS, {"id": session_id, "model": model})
    return [KeptVector(seq, bytes(made_of), bytes(vector)) for seq, made_of, vector in found]


async def save_vectors(pool: PostgresPool, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
    """Keep vectors, but for those of another text than the history has now."""
    by_seq = {one.seq: one for one in vectors}
    found = await pool.ask(queries.EMBEDDED_MESSAGES, {"id": session_id, "seqs": list(by_seq)})
    kept = [
        by_seq[seq]
        for _, _, seq, message in found
        if text_digest(text_of_message(session_id, message)) == by_seq[seq].digest
    ]
    if not kept:
        return
    key, edits = found[0][:2]
    await pool.count(queries.DROP_OTHER_VECTORS, {"key": key, "model": model})
    values = {
        "key": key,
        "edits": edits,
        "model": model,
        "seqs": [one.seq for one in kept],
        "digests": [one.digest for one in kept],
        "vectors": [one.vector for one in kept],
    }
    await pool.count(queries.SAVE_VECTORS, values)


def text_of_message(session_id: str, message: str) -> str:
    """Return the text of a message; empty if it is damaged, which the next read reports."""
    try:
        return searchable_text(decode_entry(session_id, 0, 0, 0, message))
    except StoreError:
        return ""
