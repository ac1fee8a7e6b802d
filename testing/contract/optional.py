"""The contracts of a store that is `Searchable`, that `KeepsVectors`, or that is `Checkable`."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.hashing import text_digest
from amplifier_context_core.stores import Checkable, KeepsVectors, KeptVector, Searchable, Store
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.searchable import searchable_text

from .fixtures import MakeStore, StoreFixtures, assert_same, whole
from .samples import entries, entry, odd_entries

ODD_QUERIES = [
    *("", " ", "\n\t", "\0", "a\0b", "\ud83d", "\\", "%", "_", "-", "*", "(((", "読"),
    *('"', '""', '"unclosed', 'a" OR "b', "a AND", "OR", "NOT x", "NEAR(", "a NEAR/2 b", "word*", "^start", "-word"),
    *("- a", "(a", "a)", "a + b", "col:word", "text: a", "search : a", "{a b}: c", "{text}: a"),
    *("'", "' | 'x", "a':*", "a:*", "!a", "a & !b", "a <-> b", "!&|<->:*", "q1qa", "; drop table entries; --"),
    *("x" * 20_000, "many words " * 2_000, "a/" * 2_000),
]


class SearchContract(StoreFixtures):
    """Finding messages by words of the current history. Inherit it for a store that is `Searchable`."""

    async def test_it_is_searchable(self, store: Store) -> None:
        assert isinstance(store, Searchable)

    async def test_an_unknown_session_holds_no_words(self, store: Any) -> None:
        assert await store.search("never seen", "word", 10) == []
        assert await store.sessions() == []

    async def test_a_word_is_found_in_the_messages_that_say_it(self, store: Any) -> None:
        texts = ["the heron is grey", "a goose", "HERON, again", "herring", "nothing"]
        await store.append("s", [entry(seq, text) for seq, text in enumerate(texts, 1)])
        await store.append("other", [entry(9, "a heron of another session", session_id="other")])
        assert sorted(await store.search("s", "heron", 10)) == [1, 3]
        assert await store.search("s", "goose", 10) == [2]
        assert await store.search("s", "albatross", 10) == []

    async def test_what_holds_more_of_the_words_comes_first(self, store: Any) -> None:
        texts = ["grey sky", "heron", "a grey heron", "nothing", "heron in the sky"]
        await store.append("s", [entry(seq, text) for seq, text in enumerate(texts, 1)])
        assert (await store.search("s", "grey heron", 10))[0] == 3

    async def test_no_more_are_found_than_asked_for(self, store: Any) -> None:
        await store.append("s", [entry(seq, f"heron {seq}") for seq in range(1, 31)])
        for limit in (1, 7, 30):
            found = await store.search("s", "heron", limit)
            assert len(set(found)) == len(found) == limit
        assert await store.search("s", "heron", 0) == []
        assert len(await store.search("s", "heron", 10**6)) == 30

    async def test_what_was_appended_after_a_search_is_found(self, store: Any) -> None:
        for seq in range(1, 6):
            await store.append("s", [entry(seq, f"heron {seq}")])
            assert sorted(await store.search("s", "heron", 10)) == list(range(1, seq + 1))

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
    async def test_words_of_any_script_and_identifiers_are_found(self, store: Any, text: str, query: str) -> None:
        await store.append("s", [entry(1, "something else 別の 다른"), entry(2, text), entry(3, "and more")])
        assert await store.search("s", query, 10) == [2]

    async def test_what_left_the_history_is_not_found(self, store: Any) -> None:
        await store.append("s", [entry(seq, f"heron {seq}") for seq in range(1, 6)])
        assert len(await store.search("s", "heron", 10)) == 5
        await store.replace("s", 2, [entry(6, "heron 6"), entry(5, "heron 5")])
        assert sorted(await store.search("s", "heron", 10)) == [1, 2, 5, 6]
        await store.replace("s", 0, [])
        assert await store.search("s", "heron", 10) == []

    async def test_what_was_rewritten_is_found_by_its_new_words_only(self, store: Any) -> None:
        await store.append("s", [entry(1, "heron"), entry(2, "secret_9f31"), entry(3, "heron")])
        assert await store.search("s", "secret_9f31", 10) == [2]
        await store.rewrite("s", [entry(2, "(removed)")])
        assert await store.search("s", "secret_9f31", 10) == []
        assert await store.search("s", "removed", 10) == [2]
        assert sorted(await store.search("s", "heron", 10)) == [1, 3]

    async def test_forks_are_searched_apart(self, store: Any) -> None:
        await store.append("s", [entry(1, "heron"), entry(2, "heron"), entry(3, "goose")])
        await store.search("s", "heron", 10)
        await store.fork("s", "child", 2)
        await store.append("child", [entry(4, "heron", session_id="child")])
        assert sorted(await store.search("child", "heron", 10)) == [1, 2, 4]
        assert sorted(await store.search("s", "heron", 10)) == [1, 2]
        assert await store.search("child", "goose", 10) == []

    async def test_a_deleted_session_holds_no_words(self, store: Any) -> None:
        await store.append("s", [entry(1, "heron")])
        await store.search("s", "heron", 10)
        await store.delete("s")
        assert await store.search("s", "heron", 10) == []
        await store.append("s", [entry(1, "goose")])
        assert await store.search("s", "heron", 10) == []
        assert await store.search("s", "goose", 10) == [1]

    async def test_odd_queries_are_no_commands(self, store: Any) -> None:
        history = [*odd_entries(), entry(1_000, "a and b")]
        await store.append("s", history)
        for query in ODD_QUERIES:
            found = await store.search("s", query, 5)
            assert len(found) <= 5, query
            assert {one.seq for one in history}.issuperset(found), query
        assert_same(await store.read("s"), history)

    async def test_another_store_object_finds_the_same(self, store: Any, make_store: MakeStore) -> None:
        await store.append("s", [entry(seq, f"heron {seq}") for seq in range(1, 6)])
        other = await make_store()
        assert isinstance(other, Searchable)
        assert sorted(await other.search("s", "heron", 10)) == [1, 2, 3, 4, 5]  # while the first one writes
        await store.append("s", [entry(6, "heron 6")])
        assert sorted(await other.search("s", "heron", 10)) == [1, 2, 3, 4, 5, 6]
        await other.close()


def vector_of(one: Entry, fill: bytes = b"\0\0\x80\x3f") -> KeptVector:
    return KeptVector(one.seq, text_digest(searchable_text(one)), fill * 2)


class VectorContract(StoreFixtures):
    """Vectors are kept, and go with their messages. Inherit it for a store that `KeepsVectors`."""

    async def test_it_keeps_vectors(self, store: Store) -> None:
        assert isinstance(store, KeepsVectors)

    async def test_an_unknown_session_has_no_vectors(self, store: Any) -> None:
        await store.save_vectors("never seen", "m", [vector_of(entry(1, "x"))])
        assert await store.vectors("never seen", "m") == []
        assert await store.sessions() == []

    async def test_vectors_are_returned_as_they_were_saved(self, store: Any, make_store: MakeStore) -> None:
        history = [*odd_entries()]
        await store.append("s", history)
        await store.append("other", history)
        saved = [vector_of(one, number.to_bytes(2) * 2) for number, one in enumerate(history)]
        await store.save_vectors("s", "m", saved)
        assert sorted(await store.vectors("s", "m")) == sorted(saved)
        assert await store.vectors("other", "m") == []
        again = vector_of(history[0], b"abcd")
        await store.save_vectors("s", "m", [again])
        other = await make_store()
        assert isinstance(other, KeepsVectors)
        assert sorted(await other.vectors("s", "m")) == sorted([again, *saved[1:]])
        await other.close()

    async def test_vectors_of_another_model_are_replaced(self, store: Any) -> None:
        history = [entry(1, "heron"), entry(2, "goose")]
        await store.append("s", history)
        await store.save_vectors("s", "m", [vector_of(one) for one in history])
        assert await store.vectors("s", "n") == []
        await store.save_vectors("s", "n", [vector_of(history[0])])
        assert await store.vectors("s", "n") == [vector_of(history[0])]
        assert await store.vectors("s", "m") == []

    async def test_vectors_of_what_the_history_does_not_hold_are_skipped(self, store: Any) -> None:
        await store.append("s", [entry(1, "heron")])
        await store.save_vectors("s", "m", [vector_of(entry(2, "goose")), vector_of(entry(1, "an erased text"))])
        assert await store.vectors("s", "m") == []

    async def test_a_rewritten_message_loses_its_vector(self, store: Any) -> None:
        history = [entry(1, "heron"), entry(2, "secret"), entry(3, "swan")]
        await store.append("s", history)
        await store.save_vectors("s", "m", [vector_of(one) for one in history])
        await store.rewrite("s", [entry(2, "(removed)")])
        assert sorted(await store.vectors("s", "m")) == [vector_of(history[0]), vector_of(history[2])]

    async def test_what_leaves_the_history_loses_its_vector(self, store: Any) -> None:
        history = [entry(seq, f"heron {seq}") for seq in range(1, 6)]
        await store.append("s", history)
        await store.save_vectors("s", "m", [vector_of(one) for one in history])
        await store.replace("s", 2, [entry(6, "goose")])
        assert sorted(await store.vectors("s", "m")) == [vector_of(one) for one in history[:2]]
        await store.replace("s", 0, [])
        assert await store.vectors("s", "m") == []

    async def test_a_deleted_session_and_a_fork_have_no_vectors(self, store: Any) -> None:
        await store.append("s", [entry(1, "heron")])
        await store.save_vectors("s", "m", [vector_of(entry(1, "heron"))])
        await store.fork("s", "child")
        assert await store.vectors("child", "m") == []
        await store.delete("s")
        await store.append("s", [entry(1, "heron")])
        assert await store.vectors("s", "m") == []


class CheckContract(StoreFixtures):
    """An undamaged session has no damage reported, after any change. Inherit it for a store that is `Checkable`."""

    async def test_it_is_checkable(self, store: Store) -> None:
        assert isinstance(store, Checkable)

    async def test_an_unknown_session_has_nothing_wrong_with_it(self, store: Any) -> None:
        assert await store.verify("never seen") == []
        assert await store.sessions() == []

    async def test_a_sound_session_has_nothing_wrong_with_it_after_every_kind_of_change(self, store: Any) -> None:
        odd = odd_entries()
        await store.append("s", odd)
        assert await store.verify("s") == []
        await store.replace("s", 9, [entry(900), odd[20], odd[15], entry(901)])
        assert await store.verify("s") == []
        await store.rewrite("s", [entry(3, "rewritten"), entry(12, "rewritten"), entry(901, "rewritten")])
        assert await store.verify("s") == []
        await store.save_checkpoint("s", 7, bytes(range(256)))
        assert await store.verify("s") == []
        await store.fork("s", "child", 8)
        assert await store.verify("child") == []
        await store.replace("s", 0, [])
        assert await store.verify("s") == []
        await store.close()
        assert await store.verify("s") == []
        assert await store.verify("child") == []

    async def test_checking_changes_nothing_and_locks_nothing(self, store: Any, further: MakeStore) -> None:
        await store.append("s", odd_entries())
        before = await whole(store)
        other = await further()
        assert isinstance(other, Checkable)
        assert await other.verify("s") == []  # while the first one writes
        await store.append("s", entries(900, 900))
        await store.replace("s", before.extent.length, [])
        await store.release("s")
        assert await other.verify("s") == []
        await store.open("s")
        assert not await store.verify("s")
        assert_same(await store.read("s"), before.history)
