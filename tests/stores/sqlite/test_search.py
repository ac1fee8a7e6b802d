"""The search index in a SQLite database: what it finds, in which order, and that it keeps up."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_context_core.stores.sqlite import schema, search
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_core.transcript.search import ScanIndex
from amplifier_context_testing.contract.samples import entry, odd_entries
from tests.stores.searched import append_texts, order_of_append_and_search


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, durability="none")
    yield store
    await store.close()


async def test_an_unknown_session_and_an_empty_query_find_nothing(store: SqliteStore) -> None:
    assert await store.search("never seen", "x", 5) == []
    await append_texts(store, "some words")
    for query in ("", "  ", "-- !! ()", '"', "__", "🚀", "\0", "\ud83d"):
        assert await store.search("s", query, 5) == []
    assert await store.search("s", "words", 0) == []
    assert await store.search("s", "words", -1) == []
    assert await store.sessions()


async def test_an_index_that_was_just_filled_answers_alone_also_that_nothing_matches(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append_texts(store, "some words")
    monkeypatch.setattr(search, "scan", lambda *_: pytest.fail("the whole history was read"))
    assert await store.search("s", "absent", 5) == []


async def test_words_are_found_whatever_their_case_newest_first(store: SqliteStore) -> None:
    await append_texts(store, "The Parser failed", "nothing", "the PARSER again", "parsers, many")
    assert await store.search("s", "parser", 9) == [3, 1, 4]
    assert await store.search("s", "PARSER", 2) == [3, 1]


async def test_any_query_is_answered(store: SqliteStore) -> None:
    await store.append("s", odd_entries())

    @settings(max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.text(max_size=30) | st.text('"*()^:{}+-_.a登 ', max_size=12))
    def ask(query: str) -> None:
        found = asyncio.run(store.search("s", query, 3))
        assert len(found) <= 3

    await asyncio.to_thread(ask)


WORDS = ["alpha", "src/beta.py", "gamma_7", "登录", "DELTA", "epsilon"]


async def test_one_word_finds_what_a_scan_finds_in_the_same_order(store: SqliteStore) -> None:
    """Words that begin no other word; of several words, both find the same entries."""

    @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(st.sampled_from(WORDS), max_size=4), min_size=1, max_size=12))
    def agree(talks: list[list[str]]) -> None:
        history = [entry(seq, " ".join(talk) or "-") for seq, talk in enumerate(talks, 1)]

        async def compare() -> None:
            await store.replace("s", 0, history)
            for word in WORDS:
                scanned = [one.seq for one in ScanIndex().search(history, word, 5)]
                assert await store.search("s", word, 5) == scanned
            scanned = [one.seq for one in ScanIndex().search(history, "alpha epsilon", 99)]
            assert sorted(await store.search("s", "alpha epsilon", 99)) == sorted(scanned)

        asyncio.run(compare())

    await asyncio.to_thread(agree)


# -- updating the index -----------------------------------------------------------------------------------------------


async def test_a_search_of_a_filled_index_waits_for_no_writer(store: SqliteStore, path: Path) -> None:
    await append_texts(store, "some words", "other words")
    await store.search("s", "words", 5)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    try:
        async with asyncio.timeout(2):
            assert await store.search("s", "words", 5) == [2, 1]
    finally:
        writer.close()


@pytest.mark.parametrize("session_id", ["s", "other"])
async def test_while_an_index_is_filled_messages_are_appended(store: SqliteStore, session_id: str) -> None:
    assert await order_of_append_and_search(store, session_id) == ["append", "search"]


async def test_the_index_outlives_the_store(path: Path, store: SqliteStore) -> None:
    await append_texts(store, "needle", "x")
    await store.search("s", "x", 1)
    await store.close()
    db = sqlite3.connect(path)
    assert db.execute("SELECT indexed FROM sessions").fetchall() == [(2,)]
    db.close()
    assert await store.search("s", "needle", 5) == [1]


async def test_without_fts5_the_history_is_scanned(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(db: sqlite3.Connection) -> bool:
        return False

    await append_texts(store, "needle one", "two", "needle three")
    monkeypatch.setattr("amplifier_context_core.stores.sqlite.search.can_index", without)
    assert await store.search("s", "needle", 5) == [3, 1]
    assert await store.search("s", "登", 5) == []


async def test_what_was_indexed_before_fts5_was_missing_goes_stale_unseen(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append_texts(store, "needle one", "needle two", "needle three")
    assert await store.search("s", "needle", 5) == [3, 2, 1]
    with monkeypatch.context() as patch:
        patch.setattr("amplifier_context_core.stores.sqlite.changes.can_index", lambda db: False)  # type: ignore[misc]
        await store.replace("s", 1, [entry(4, "other")])
    assert await store.search("s", "needle", 5) == [1]
    assert await store.search("s", "other", 5) == [4]


async def test_a_damaged_index_is_rebuilt(path: Path, store: SqliteStore) -> None:
    reported: list[object] = []
    await store.open("s", reported.append)
    await append_texts(store, "needle one", "two", "needle three")
    assert await store.search("s", "needle", 5) == [3, 1]
    await store.close()
    db = sqlite3.connect(path)
    db.execute("DELETE FROM words_data WHERE id > 10")
    db.commit()
    db.close()
    await store.open("s", reported.append)
    assert await store.search("s", "needle", 5) == [3, 1]
    assert "search index was damaged" in str(reported)


def test_the_first_search_creates_the_table(path: Path) -> None:
    schema.make_file(path)
    db = schema.open_database(path, "none", 1.0, lambda _: None)
    assert not schema.has_search_table(db)
    assert not search.index_next_batch(db, "s")
    assert not schema.has_search_table(db)
    db.close()


async def test_no_word_of_a_deleted_session_stays_in_the_file(path: Path, store: SqliteStore) -> None:
    await append_texts(store, "secretword in getSecretName77", "two")
    await store.append("other", [entry(1, "needle", session_id="other")])
    for session_id in ("s", "other"):
        await store.search(session_id, "x", 1)
    await store.delete("s")
    assert await store.search("other", "needle", 5) == [1]
    await store.close()
    assert b"secret" not in path.read_bytes().lower()


FORMER_INDEX = (
    "DROP TABLE words",
    "DROP TABLE names",
    "CREATE VIRTUAL TABLE search USING fts5(text, grams, tokenize = 'porter unicode61 remove_diacritics 2')",
    "INSERT INTO search(rowid, text, grams) SELECT id, message, '' FROM entries",
)


@pytest.mark.parametrize("edit", [None, "replace", "rewrite", "delete"])
async def test_the_index_of_a_former_version_is_dropped_by_the_first_search_and_the_first_edit(
    path: Path, store: SqliteStore, edit: str | None
) -> None:
    await append_texts(store, "secretword one", "needle two")
    await store.append("other", [entry(1, "needle", session_id="other")])
    for session_id in ("s", "other"):
        await store.search(session_id, "x", 1)  # the former index holds both
    await store.close()
    with sqlite3.connect(path) as db:
        for statement in FORMER_INDEX:
            db.execute(statement)
    db.close()
    if edit == "replace":
        await store.replace("s", 0, [entry(3, "needle three")])
    elif edit == "rewrite":
        await store.rewrite("s", [entry(1, "gone"), entry(2, "needle")])
    elif edit == "delete":
        await store.delete("s")
    else:
        assert await store.search("s", "secretword", 5) == [1]
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM sqlite_master WHERE name = 'search'").fetchall() == []
    db.close()
    assert await store.search("other", "needles", 5) == [1]
    assert await store.search("s", "needle", 5) == {None: [2], "replace": [3], "rewrite": [2], "delete": []}[edit]
