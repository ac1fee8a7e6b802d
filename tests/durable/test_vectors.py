"""Vectors of messages that a store keeps: made once, made again for another model, and gone with their messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import KeptVector
from amplifier_context_core.stores.sqlite.store import SqliteStore
from tests.embedders import CORPUS, Deterministic, Fitted, add, searching
from tests.places import Place


@pytest.mark.stores("sqlite", "postgresql", only=True)
async def test_a_resumed_session_embeds_only_what_is_new(place: Place) -> None:
    manager = searching(Deterministic(), place.store(), place.session_id())
    await add(manager, "grey heron", "goose")
    await manager.search("heron")
    await manager.close()
    embedder = Deterministic()
    resumed = searching(embedder, place.store(), place.session_id())
    await add(resumed, "swan")
    assert (await resumed.search("grey heron"))[0] == "m1"
    assert embedder.asked == [["grey heron", "goose"], ["swan"], ["grey heron"]]
    await resumed.close()


class Renamed(Fitted):
    """Another model under the name and with the length of `Deterministic(3)`."""

    name = Deterministic.name

    def __init__(self, fails_after: int = 1_000) -> None:
        super().__init__(CORPUS)
        self.left = fails_after

    def embed(self, texts: Sequence[str]) -> Any:
        self.left -= 1
        if self.left < 0:
            raise TimeoutError
        return super().embed(texts)


@pytest.mark.stores("sqlite", "postgresql", only=True)
async def test_vectors_of_another_model_of_the_same_name_are_made_again(place: Place) -> None:
    texts = [f"{text} Part {number}." for number in range(10) for text in CORPUS]

    async def found(embedder: Any) -> tuple[list[str], str]:
        manager = searching(embedder, place.store(), place.session_id())
        try:
            return await manager.search("doctor", 30), str((await manager.explain())["warnings"])
        finally:
            await manager.close()

    manager = searching(Deterministic(3), place.store(), place.session_id())
    await add(manager, *texts)
    await manager.close()
    alone = searching(Renamed())
    await add(alone, *texts)
    by_hash, _ = await found(Deterministic(3))
    _, warnings = await found(Renamed(fails_after=2))  # the first batch is made again, and the second fails
    assert "are not those of this embedder" in warnings
    assert (await found(Deterministic(3)))[0] == by_hash
    assert (await found(Renamed()))[0] == await alone.search("doctor", 30)
    _, warnings = await found(Renamed())
    assert warnings == "[]"


@pytest.mark.stores("sqlite", "postgresql", only=True)
async def test_forgetting_and_deleting_leave_no_vector_without_the_package_that_makes_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = searching(Deterministic(), place.store(), place.session_id())
    await add(manager, "the password is hunter2", "goose")
    await manager.search("hunter2")
    await manager.close()
    monkeypatch.setitem(sys.modules, "amplifier_context_recall.vectors", None)
    alone = ContextManager(store=place.store(), session_id=place.session_id())
    await alone.forget(containing="hunter2")
    store = cast(Any, alone.store)
    assert {one.seq for one in await store.vectors(place.session_id(), "hashed words/64")} == {2}
    await alone.close()
    await store.delete(place.session_id())
    assert await store.vectors(place.session_id(), "hashed words/64") == []
    await store.close()
    with pytest.raises(
        ConfigError, match=r"^embedder: needs a package .* install 'amplifier-context-recall\[vectors\]'$"
    ):
        searching(Deterministic())


@pytest.mark.stores("sqlite")
async def test_where_vectors_cannot_be_read_words_alone_are_searched_until_they_can_be_kept_or_not(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(SqliteStore):
        reads, takes = False, True

        async def vectors(self, session_id: str, model: str) -> list[KeptVector]:
            if not self.reads:
                raise StoreError("the disk does not answer")
            return await super().vectors(session_id, model)

        async def save_vectors(self, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
            if not self.takes:
                raise StoreError("the disk is full")
            await super().save_vectors(session_id, model, vectors)

    store = Failing(place.folder / "failing.db")
    embedder = Deterministic()
    manager = searching(embedder, store)
    await add(manager, "grey heron", "goose")
    for _ in range(3):
        assert await manager.search("heron") == ["m1"]
    assert embedder.asked == [], "no vectors are made in place of those that the store may have"
    (warning,) = (await manager.explain())["warnings"]
    assert warning == "vectors cannot be read, words alone are searched: the disk does not answer"
    assert caplog.text.count("words alone are searched") == 1
    assert "heron" not in caplog.text
    store.reads, store.takes = True, False
    for _ in range(2):
        assert (await manager.search("grey heron"))[0] == "m1"
    assert embedder.asked[:2] == [["grey heron", "goose"], ["grey heron"]]
    assert "vectors are not kept" in (await manager.explain())["warnings"][-1]
    await manager.close()
