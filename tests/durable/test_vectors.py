"""Vectors of messages that a store keeps: made once, made again for another model, and gone with their messages."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from amplifier_context_core import ConfigError, ContextManager, StoreError
from tests.embedders import CORPUS, Deterministic, Fitted, add, searching
from tests.places import Place


@asynccontextmanager
async def opened(embedder: object, place: Place) -> AsyncGenerator[ContextManager]:
    manager = searching(embedder, place.store(), place.session_id())
    yield manager
    await manager.close()


@pytest.mark.stores("sqlite", "postgresql", only=True)
async def test_a_resumed_session_embeds_only_what_is_new(place: Place) -> None:
    async with opened(Deterministic(), place) as manager:
        await add(manager, "grey heron", "goose")
        await manager.search("heron")
    embedder = Deterministic()
    async with opened(embedder, place) as manager:
        await add(manager, "swan")
        assert (await manager.search("grey heron"))[0] == "m1"
    assert embedder.asked == [["grey heron", "goose"], ["swan"], ["grey heron"]]


@pytest.mark.stores("sqlite", "postgresql", only=True)
async def test_forgetting_and_deleting_leave_no_vector_without_the_package_that_makes_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(Deterministic(), place) as manager:
        await add(manager, "the password is hunter2", "goose")
        await manager.search("hunter2")
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


@pytest.mark.stores("sqlite", "postgresql", only=True)
async def test_vectors_of_another_model_of_the_same_name_are_made_again(place: Place) -> None:
    other, alone = Fitted(CORPUS), searching(Fitted(CORPUS))
    other.name = Deterministic.name  # of as many dimensions, too
    await add(alone, *CORPUS)
    async with opened(Deterministic(3), place) as manager:
        await add(manager, *CORPUS)
        await manager.search("doctor")
    async with opened(other, place) as manager:
        assert await manager.search("doctor", 30) == await alone.search("doctor", 30)
        assert "are not those of this embedder" in str((await manager.explain())["warnings"])


@pytest.mark.stores("sqlite")
async def test_where_vectors_cannot_be_read_none_are_made_and_where_they_cannot_be_kept_that_is_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = AsyncMock(side_effect=StoreError("the disk is full"))
    async with opened(embedder := Deterministic(), place) as manager:
        await add(manager, "grey heron", "goose")
        with monkeypatch.context() as patch:
            patch.setattr(manager.store, "vectors", refuse)
            assert await manager.search("heron") == ["m1"]
        assert embedder.asked == [], "the store may have them"
        monkeypatch.setattr(manager.store, "save_vectors", refuse)
        assert (await manager.search("grey heron"))[0] == "m1"
        unread, unkept = (await manager.explain())["warnings"]
        assert ("words alone are searched" in unread, "vectors are not kept" in unkept) == (True, True)
