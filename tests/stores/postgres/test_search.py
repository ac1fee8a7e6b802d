"""The search index in PostgreSQL: what it finds, that it keeps up, what it forgets, and how an older schema gets it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_context_core.stores.word_index import WordIndex
from amplifier_context_core.transcript.ranking import GRAM
from amplifier_context_core.transcript.search import ScanIndex
from amplifier_context_servers.postgres_server import search as search_module
from amplifier_context_servers.postgres_server.pool import PostgresPool
from amplifier_context_servers.postgres_server.search import pieces
from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.contract.samples import entry
from tests.stores.searched import append_texts, order_of_append_and_search
from tests.stores.servers import POSTGRES, with_parameters

from .tables import ask

pytestmark = pytest.mark.postgres


WORDS = [
    "alpha",
    "src/beta.py",
    "gamma_7",
    "登录",
    "DELTA",
    "epsilon",
    "naïve",
    "2e5",
    "it's",
    "getUserName",
    "a49f31bc",
]


async def test_words_find_what_a_scan_finds_in_the_same_order(store: PostgresStore) -> None:
    @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(st.sampled_from(WORDS), max_size=4), min_size=1, max_size=12))
    def agree(talks: list[list[str]]) -> None:
        history = [entry(seq, " ".join(talk) or "-") for seq, talk in enumerate(talks, 1)]

        async def compare() -> None:
            await store.replace("s", 0, history)
            for query in (*WORDS, "alpha epsilon", "delta 登录 gamma", "username", "49f31"):
                scanned = [one.seq for one in ScanIndex().search(history, query, 5)]
                assert await store.search("s", query, 5) == scanned, query

        asyncio.run(compare())

    await asyncio.to_thread(agree)


async def test_a_session_finds_no_word_of_another(store: PostgresStore) -> None:
    for number in range(12):
        await store.append(f"s{number}", [entry(1, f"needle{number}", session_id=f"s{number}")])
        await store.search(f"s{number}", "x", 1)
    for number in range(12):
        assert await store.search("s1", f"needle{number}", 5) == ([1] if number == 1 else [])
    assert await store.search("s1", "needl", 5) == [1]


async def test_every_word_of_a_long_message_is_found(store: PostgresStore) -> None:
    """PostgreSQL keeps 16,383 positions of a text, 1 MB of words, and no word above 2,046 bytes."""
    long = " ".join(f"ẃord{number}" for number in range(60_000))
    await append_texts(store, "heron", f"{long} {'x' * 5_000} end_of_it", "goose")
    for query in ("word0", '"word14999 word15000"', '"word59998 word59999"', "x" * 5_000, "end_of_it"):
        assert await store.search("s", query, 5) == [2], query[:20]


def test_pieces_hold_all_words_and_each_phrase() -> None:
    words = [f"w{number}" for number in range(40_000)]
    found = [piece.split() for piece in pieces(7, " ".join(words))]
    assert {word for piece in found for word in piece if GRAM not in word} == {f"q7q{word}" for word in words}
    assert all(len(piece) <= 15_000 for piece in found)
    for before, after in pairwise(found):
        assert before[-64:] == after[:64]


LARGE = " ".join(map(str, range(120_000)))


async def test_an_index_is_filled_by_statements_of_bounded_size(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    execute = PostgresPool.execute

    async def watched(pool: PostgresPool, connection: Any, statement: str, values: dict[str, Any]) -> Any:
        sent.extend([sum(map(len, values["texts"]))] if "texts" in values else [])
        return await execute(pool, connection, statement, values)

    monkeypatch.setattr(PostgresPool, "execute", watched)
    await append_texts(store, "heron", LARGE, f"{LARGE} {LARGE} {LARGE}", "goose")
    assert await store.search("s", "goose", 5) == [4]
    assert len(sent) > 4
    assert max(sent) < 1_250_000
    assert await store.search("s", '"59999 60000"', 5) == [3, 2]


async def test_no_append_waits_until_a_large_message_is_indexed(store: PostgresStore, schema: str) -> None:
    """Nor an append of another process: the session's row is locked only at the end."""
    await append_texts(store, "heron", f"{LARGE} {LARGE} {LARGE}", "goose")
    searching = asyncio.create_task(store.search("s", "goose", 5))
    while not ask("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted", schema):
        await asyncio.sleep(0.01)
    await store.append("s", [entry(4, "swan")])
    await store.release("s")
    other = PostgresStore.from_url(with_parameters(POSTGRES, schema=schema, pool_size=2))
    await other.append("s", [entry(5, "goose")])
    assert not searching.done()
    assert set(await searching) >= {3}
    assert await other.search("s", "goose", 5) == [5, 3]
    assert ask("SELECT indexed FROM sessions", schema) == [(5,)]
    await other.close()


async def test_nothing_of_a_session_that_is_deleted_while_it_is_indexed_stays_in_the_index(
    store: PostgresStore, schema: str
) -> None:
    await append_texts(store, "heron", f"{LARGE} {LARGE}")
    searching = asyncio.create_task(store.search("s", "heron", 5))
    while not ask("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted", schema):
        await asyncio.sleep(0.01)
    await store.delete("s")
    assert await searching == []
    assert ask("SELECT count(*) FROM search", schema) == [(0,)]


async def test_pieces_that_a_former_version_left_of_a_message_are_completed(store: PostgresStore, schema: str) -> None:
    await append_texts(store, LARGE, "goose")
    assert await store.search("s", "119999", 5) == [1]
    ask("UPDATE sessions SET indexed = 0", schema)
    ask("DELETE FROM search WHERE place > 0 OR part > 1", schema)
    assert await store.search("s", "119999", 5) == [1]
    parts = [part for (part,) in ask("SELECT part FROM search WHERE place = 0 ORDER BY part", schema)]
    assert parts == list(range(len(list(pieces(1, LARGE)))))


async def test_processes_that_index_a_large_output_at_once_index_it_once(store: PostgresStore, schema: str) -> None:
    await append_texts(store, LARGE, "heron")
    others = [PostgresStore.from_url(with_parameters(POSTGRES, schema=schema, pool_size=size)) for size in (2, 3)]
    found = await asyncio.gather(*(each.search("s", "119999", 1) for each in (store, *others)))
    assert found == [[1]] * 3
    assert ask("SELECT count(*) FROM search WHERE place = 0", schema) == [(len(list(pieces(1, LARGE))),)]
    for each in others:
        await each.close()


async def test_an_index_whose_rows_are_gone_is_filled_again(store: PostgresStore, schema: str) -> None:
    await append_texts(store, "heron", "goose")
    assert await store.search("s", "heron", 5) == [1]
    ask("TRUNCATE search", schema)
    await store.append("s", [entry(3, "heron")])
    assert await store.search("s", "heron", 5) == [3, 1]


async def test_erased_words_are_in_no_row_of_the_index_and_in_no_statistics(store: PostgresStore, schema: str) -> None:
    await append_texts(store, "secretword one", "secretword two", "three")
    assert await store.search("s", "secretword", 5) == [2, 1]
    ask("ANALYZE search", schema)
    assert ask("SELECT count(*) FROM search WHERE words::text LIKE %s", schema, "%secretword%") == [(2,)]
    await store.rewrite("s", [entry(1, "gone"), entry(2, "gone")])
    assert ask("SELECT count(*) FROM search WHERE words::text LIKE %s", schema, "%secretword%") == [(0,)]
    assert ask("SELECT 1 FROM pg_stats WHERE schemaname = %s AND attname = 'words'", schema, schema) == []
    assert await store.search("s", "gone", 5) == [2, 1]
    assert await store.search("s", "secretword", 5) == []


async def test_messages_read_before_an_edit_are_not_indexed_after_it(
    store: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process edits the history while this one makes rows of it."""
    await append_texts(store, "heron", "goose", "heron")
    await store.release("s")
    other = PostgresStore.from_url(with_parameters(POSTGRES, schema=schema, pool_size=2))
    read = asyncio.Event()
    edited = asyncio.Event()
    loop = asyncio.get_running_loop()
    text_of = search_module.text_of_message

    def slow(session_id: str, message: str) -> str:
        loop.call_soon_threadsafe(read.set)
        asyncio.run_coroutine_threadsafe(edited.wait(), loop).result(30)
        return text_of(session_id, message)

    monkeypatch.setattr(search_module, "text_of_message", slow)
    searching = asyncio.create_task(store.search("s", "heron", 5))
    await read.wait()
    monkeypatch.setattr(search_module, "text_of_message", text_of)
    # Another URL, so another loop thread: that of the first store waits for this edit.
    await other.replace("s", 1, [entry(4, "swan")])
    edited.set()
    assert await searching == [1]
    assert await store.search("s", "swan", 5) == [4]
    await other.close()


async def test_processes_that_fill_an_index_at_once_fill_it_once(store: PostgresStore, schema: str) -> None:
    await store.append("s", [entry(seq, f"heron {seq}") for seq in range(1, 1_201)])
    others = [PostgresStore.from_url(with_parameters(POSTGRES, schema=schema, pool_size=size)) for size in (2, 3)]
    found = await asyncio.gather(*(each.search("s", "heron 777", 1) for each in (store, *others)))
    assert found == [[777]] * 3
    assert ask("SELECT count(*), max(indexed) FROM search, sessions", schema) == [(1_200, 1_200)]
    for each in others:
        await each.close()


@pytest.mark.parametrize("session_id", ["s", "other"])
async def test_while_an_index_is_filled_messages_are_appended(store: PostgresStore, session_id: str) -> None:
    assert await order_of_append_and_search(store, session_id) == ["append", "search"]


async def test_where_the_index_cannot_be_filled_the_history_is_scanned(store: PostgresStore, schema: str) -> None:
    await append_texts(store, "heron", "goose", "grey heron")
    await store.release("s")
    reading = with_parameters(POSTGRES, schema=schema, options=quote("-c default_transaction_read_only=on"))
    reader = PostgresStore.from_url(reading)
    assert await reader.search("s", "heron", 5) == [3, 1]
    assert await reader.search("s", "albatross", 5) == []
    assert ask("SELECT count(*) FROM search", schema) == [(0,)]
    await store.search("s", "x", 1)
    assert await reader.search("s", "grey heron", 1) == [3]
    await reader.close()


async def test_frequent_words_find_old_texts_that_have_all_of_them(store: PostgresStore) -> None:
    texts = ["grey heron", *("grey goose" if number % 2 else "white heron" for number in range(1_200))]
    await append_texts(store, *texts)
    assert (await store.search("s", "grey heron", 3))[0] == 1
    memory = WordIndex().search([entry(seq, text) for seq, text in enumerate(texts, 1)], "grey heron", 5)
    assert await store.search("s", "grey heron", 5) == [one.seq for one in memory]


async def test_no_message_waits_in_the_pending_list_after_a_search(store: PostgresStore, schema: str) -> None:
    await store.append("s", [entry(seq, f"heron {seq} and word{seq}") for seq in range(1, 2_001)])
    assert await store.search("s", "word1234", 5) == [1_234]
    (merged,) = ask("SELECT gin_clean_pending_list('search_words'::regclass)", schema)
    assert merged == (0,)
    (options,) = ask("SELECT reloptions FROM pg_class WHERE oid = 'search_words'::regclass", schema)
    assert options == (["gin_pending_list_limit=1024"],)
