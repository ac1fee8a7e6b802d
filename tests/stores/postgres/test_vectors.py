"""Vectors in PostgreSQL: none is kept of a message that is erased meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from amplifier_context_servers.postgres_server import vectors as vectors_module
from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.contract.samples import entry
from amplifier_context_testing.contract.vectors import vector_of
from tests.stores.servers import POSTGRES, with_parameters

from .tables import ask

pytestmark = pytest.mark.postgres


async def test_a_vector_of_a_message_that_is_erased_meanwhile_is_not_kept(
    store: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [entry(1, "heron"), entry(2, "secret")]
    await store.append("s", history)
    await store.release("s")
    other = PostgresStore.from_url(with_parameters(POSTGRES, schema=schema, pool_size=2))
    compared, erased = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    text_of = vectors_module.text_of_message

    def slow(session_id: str, message: str) -> str:
        loop.call_soon_threadsafe(compared.set)
        asyncio.run_coroutine_threadsafe(erased.wait(), loop).result(30)
        return text_of(session_id, message)

    monkeypatch.setattr(vectors_module, "text_of_message", slow)
    saving = asyncio.create_task(store.save_vectors("s", "m", [vector_of(one) for one in history]))
    await compared.wait()
    await other.rewrite("s", [entry(2, "(erased)")])
    erased.set()
    await saving
    assert await store.vectors("s", "m") == []
    monkeypatch.setattr(vectors_module, "text_of_message", text_of)
    await store.save_vectors("s", "m", [vector_of(one) for one in history])
    assert await store.vectors("s", "m") == [vector_of(history[0])]
    await other.close()


async def test_no_vector_and_no_digest_is_in_the_statistics_of_the_server(store: PostgresStore, schema: str) -> None:
    history = [entry(seq, f"heron {seq}") for seq in range(1, 4)]
    await store.append("s", history)
    await store.save_vectors("s", "m", [vector_of(one) for one in history])
    ask("ANALYZE vectors", schema)
    names = ask("SELECT attname FROM pg_stats WHERE schemaname = %s AND tablename = 'vectors'", schema, schema)
    assert {name for (name,) in names} == {"session", "seq", "model"}
