"""The contract of a store that `KeepsVectors`: a vector goes with the message that it was made of."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pytest

from amplifier_context_core.messages.hashing import text_digest
from amplifier_context_core.stores import KeepsVectors, KeptVector, Store
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.searchable import searchable_text

from .fixtures import MakeStore, StoreFixtures
from .samples import entry, odd_entries


@runtime_checkable
class VectorStore(Store, KeepsVectors, Protocol):
    """A store that keeps vectors."""


def vector_of(one: Entry, fill: bytes = b"\0\0\x80\x3f") -> KeptVector:
    return KeptVector(one.seq, text_digest(searchable_text(one)), fill * 2)


class KeepingVectors(StoreFixtures):
    """Vectors are kept, and go with their messages."""

    @pytest.fixture
    async def keeping(self, store: Store) -> VectorStore:
        assert isinstance(store, VectorStore)
        return store

    async def test_an_unknown_session_has_no_vectors(self, keeping: VectorStore) -> None:
        await keeping.save_vectors("never seen", "m", [vector_of(entry(1, "x"))])
        assert await keeping.vectors("never seen", "m") == []
        assert await keeping.sessions() == []

    async def test_vectors_are_returned_as_they_were_saved(self, keeping: VectorStore, make_store: MakeStore) -> None:
        history = [*odd_entries()]
        await keeping.append("s", history)
        await keeping.append("other", history)
        saved = [vector_of(one, number.to_bytes(2) * 2) for number, one in enumerate(history)]
        await keeping.save_vectors("s", "m", saved)
        assert sorted(await keeping.vectors("s", "m")) == sorted(saved)
        assert await keeping.vectors("other", "m") == []
        again = vector_of(history[0], b"abcd")
        await keeping.save_vectors("s", "m", [again])
        other = await make_store()
        assert isinstance(other, KeepsVectors)
        assert sorted(await other.vectors("s", "m")) == sorted([again, *saved[1:]])
        await other.close()

    async def test_vectors_of_another_model_are_replaced(self, keeping: VectorStore) -> None:
        history = [entry(1, "heron"), entry(2, "goose")]
        await keeping.append("s", history)
        await keeping.save_vectors("s", "m", [vector_of(one) for one in history])
        assert await keeping.vectors("s", "n") == []
        await keeping.save_vectors("s", "n", [vector_of(history[0])])
        assert await keeping.vectors("s", "n") == [vector_of(history[0])]
        assert await keeping.vectors("s", "m") == []

    async def test_vectors_of_what_the_history_does_not_hold_are_skipped(self, keeping: VectorStore) -> None:
        await keeping.append("s", [entry(1, "heron")])
        await keeping.save_vectors("s", "m", [vector_of(entry(2, "goose")), vector_of(entry(1, "an erased text"))])
        assert await keeping.vectors("s", "m") == []

    async def test_a_rewritten_message_loses_its_vector(self, keeping: VectorStore) -> None:
        history = [entry(1, "heron"), entry(2, "secret"), entry(3, "swan")]
        await keeping.append("s", history)
        await keeping.save_vectors("s", "m", [vector_of(one) for one in history])
        await keeping.rewrite("s", [entry(2, "(removed)")])
        assert sorted(await keeping.vectors("s", "m")) == [vector_of(history[0]), vector_of(history[2])]

    async def test_what_leaves_the_history_loses_its_vector(self, keeping: VectorStore) -> None:
        history = [entry(seq, f"heron {seq}") for seq in range(1, 6)]
        await keeping.append("s", history)
        await keeping.save_vectors("s", "m", [vector_of(one) for one in history])
        await keeping.replace("s", 2, [entry(6, "goose")])
        assert sorted(await keeping.vectors("s", "m")) == [vector_of(one) for one in history[:2]]
        await keeping.replace("s", 0, [])
        assert await keeping.vectors("s", "m") == []

    async def test_a_deleted_session_and_a_fork_have_no_vectors(self, keeping: VectorStore) -> None:
        await keeping.append("s", [entry(1, "heron")])
        await keeping.save_vectors("s", "m", [vector_of(entry(1, "heron"))])
        await keeping.fork("s", "child")
        assert await keeping.vectors("child", "m") == []
        await keeping.delete("s")
        await keeping.append("s", [entry(1, "heron")])
        assert await keeping.vectors("s", "m") == []
