"""The contract of a store that is `Searchable`: finding messages by words."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pytest

from amplifier_context_core.stores import Searchable, Store

from .fixtures import MakeStore, StoreFixtures, assert_same
from .samples import entry, odd_entries

ODD_QUERIES = [
    *("", " ", "\n\t", "\0", "a\0b", "\ud83d", "\\", "%", "_", "-", "*", "(((", "読"),
    *('"', '""', '"unclosed', 'a" OR "b', "a AND", "OR", "NOT x", "NEAR(", "a NEAR/2 b", "word*", "^start", "-word"),
    *("- a", "(a", "a)", "a + b", "col:word", "text: a", "search : a", "{a b}: c", "{text}: a"),
    *("'", "' | 'x", "a':*", "a:*", "!a", "a & !b", "a <-> b", "!&|<->:*", "q1qa", "; drop table entries; --"),
    *("x" * 20_000, "many words " * 2_000, "a/" * 2_000),
]


@runtime_checkable
class SearchingStore(Store, Searchable, Protocol):
    """A store that is searchable."""


class SearchFixtures(StoreFixtures):
    """The store under test, as one that is searchable."""

    @pytest.fixture
    async def searching(self, store: Store) -> SearchingStore:
        assert isinstance(store, SearchingStore)
        return store


class Searching(SearchFixtures):
    """Search finds words in the current history."""

    async def test_an_unknown_session_holds_no_words(self, searching: SearchingStore) -> None:
        assert await searching.search("never seen", "word", 10) == []
        assert await searching.sessions() == []

    async def test_a_word_is_found_in_the_messages_that_say_it(self, searching: SearchingStore) -> None:
        texts = ["the heron is grey", "a goose", "HERON, again", "herring", "nothing"]
        await searching.append("s", [entry(seq, text) for seq, text in enumerate(texts, 1)])
        await searching.append("other", [entry(9, "a heron of another session", session_id="other")])
        assert sorted(await searching.search("s", "heron", 10)) == [1, 3]
        assert await searching.search("s", "goose", 10) == [2]
        assert await searching.search("s", "albatross", 10) == []

    async def test_what_holds_more_of_the_words_comes_first(self, searching: SearchingStore) -> None:
        texts = ["grey sky", "heron", "a grey heron", "nothing", "heron in the sky"]
        await searching.append("s", [entry(seq, text) for seq, text in enumerate(texts, 1)])
        assert (await searching.search("s", "grey heron", 10))[0] == 3

    async def test_no_more_are_found_than_asked_for(self, searching: SearchingStore) -> None:
        await searching.append("s", [entry(seq, f"heron {seq}") for seq in range(1, 31)])
        for limit in (1, 7, 30):
            found = await searching.search("s", "heron", limit)
            assert len(set(found)) == len(found) == limit
        assert await searching.search("s", "heron", 0) == []
        assert len(await searching.search("s", "heron", 10**6)) == 30

    async def test_what_was_appended_after_a_search_is_found(self, searching: SearchingStore) -> None:
        for seq in range(1, 6):
            await searching.append("s", [entry(seq, f"heron {seq}")])
            assert sorted(await searching.search("s", "heron", 10)) == list(range(1, seq + 1))

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("ファイルを読んでください。", "ファイル"),
            ("ファイルを読んでください。", "読んで"),
            ("설정 파일을 고쳐 주세요", "파일"),
            ("请读取配置文件", "配置"),
            ("请读取配置文件", "配"),
            ("naïve café", "café"),
            ("see src/loader/cache_core.py:41", "cache_core"),
            ("ValueError: bad_token_9f31", "bad_token_9f31"),
            ("call_abc-123 failed", "call_abc-123"),
            ("getUserName() failed", "username"),
            ("getUserName() failed", "UserNa"),
            ("getUserName() failed", "user_name"),
            ("commit a49f31bc", "49f31b"),
        ],
    )
    async def test_words_of_any_script_and_identifiers_are_found(
        self, searching: SearchingStore, text: str, query: str
    ) -> None:
        await searching.append("s", [entry(1, "something else 別の 다른"), entry(2, text), entry(3, "and more")])
        assert await searching.search("s", query, 10) == [2]

    async def test_what_left_the_history_is_not_found(self, searching: SearchingStore) -> None:
        await searching.append("s", [entry(seq, f"heron {seq}") for seq in range(1, 6)])
        assert len(await searching.search("s", "heron", 10)) == 5
        await searching.replace("s", 2, [entry(6, "heron 6"), entry(5, "heron 5")])
        assert sorted(await searching.search("s", "heron", 10)) == [1, 2, 5, 6]
        await searching.replace("s", 0, [])
        assert await searching.search("s", "heron", 10) == []

    async def test_what_was_rewritten_is_found_by_its_new_words_only(self, searching: SearchingStore) -> None:
        await searching.append("s", [entry(1, "heron"), entry(2, "secret_9f31"), entry(3, "heron")])
        assert await searching.search("s", "secret_9f31", 10) == [2]
        await searching.rewrite("s", [entry(2, "(removed)")])
        assert await searching.search("s", "secret_9f31", 10) == []
        assert await searching.search("s", "removed", 10) == [2]
        assert sorted(await searching.search("s", "heron", 10)) == [1, 3]

    async def test_forks_are_searched_apart(self, searching: SearchingStore) -> None:
        await searching.append("s", [entry(1, "heron"), entry(2, "heron"), entry(3, "goose")])
        await searching.search("s", "heron", 10)
        await searching.fork("s", "child", 2)
        await searching.append("child", [entry(4, "heron", session_id="child")])
        assert sorted(await searching.search("child", "heron", 10)) == [1, 2, 4]
        assert sorted(await searching.search("s", "heron", 10)) == [1, 2]
        assert await searching.search("child", "goose", 10) == []

    async def test_a_deleted_session_holds_no_words(self, searching: SearchingStore) -> None:
        await searching.append("s", [entry(1, "heron")])
        await searching.search("s", "heron", 10)
        await searching.delete("s")
        assert await searching.search("s", "heron", 10) == []
        await searching.append("s", [entry(1, "goose")])
        assert await searching.search("s", "heron", 10) == []
        assert await searching.search("s", "goose", 10) == [1]

    async def test_odd_queries_are_no_commands(self, searching: SearchingStore) -> None:
        history = [*odd_entries(), entry(1_000, "a and b")]
        await searching.append("s", history)
        for query in ODD_QUERIES:
            found = await searching.search("s", query, 5)
            assert len(found) <= 5, query
            assert {one.seq for one in history}.issuperset(found), query
        assert_same(await searching.read("s"), history)

    async def test_another_store_object_finds_the_same(self, searching: SearchingStore, make_store: MakeStore) -> None:
        await searching.append("s", [entry(seq, f"heron {seq}") for seq in range(1, 6)])
        other = await make_store()
        assert isinstance(other, Searchable)
        assert sorted(await other.search("s", "heron", 10)) == [1, 2, 3, 4, 5]  # while the first one writes
        await searching.append("s", [entry(6, "heron 6")])
        assert sorted(await other.search("s", "heron", 10)) == [1, 2, 3, 4, 5, 6]
        await other.close()
