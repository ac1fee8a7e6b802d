"""ANALYZE copies no text of a message into statistics."""

from __future__ import annotations

import pytest

from amplifier_context_core.stores import Store
from amplifier_context_testing.contract.samples import entry

from .tables import ask

pytestmark = pytest.mark.postgres

SECRET = "hunter2 is the password"


def texts_in_statistics(schema: str) -> list[tuple[str, str]]:
    """Columns whose statistics hold the secret, as text or as the bytes of a checkpoint."""
    query = "SELECT tablename, attname, most_common_vals::text, histogram_bounds::text FROM pg_stats s"
    found = ask(f"{query} WHERE schemaname = %s", schema, schema)
    return [row[:2] for row in found if SECRET in repr(row) or SECRET.encode().hex() in repr(row)]


async def test_no_text_of_a_message_is_in_statistics(store: Store, schema: str) -> None:
    for name in ("s", "t", "u"):
        await store.append(name, [entry(seq, SECRET) for seq in range(1, 41)])
        await store.replace(name, 20, [])
        await store.save_checkpoint(name, 20, SECRET.encode())
    ask("UPDATE entries SET extra = message; UPDATE archive SET extra = message", schema)
    ask("INSERT INTO damaged (session, seq, message, extra) SELECT session, seq, message, extra FROM entries", schema)
    for table in ("sessions", "entries", "archive", "damaged"):
        ask(f"ANALYZE {table}", schema)
    assert texts_in_statistics(schema) == []
