"""The reference store, and how a store is found by its address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from amplifier_context_core import ConfigError, MemoryStore, PluginError, Plugins, Store, hookimpl, open_store
from amplifier_context_core.transcript import Entry

from .support import says, transcript, user

ENTRIES = list(transcript([user("one"), says("two"), user("three")]).snapshot())


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_an_unknown_session_has_no_history(store: MemoryStore) -> None:
    assert await store.read("never seen") == []


async def test_what_was_appended_is_read_in_order(store: MemoryStore) -> None:
    await store.append("s", ENTRIES[:1])
    await store.append("s", ENTRIES[1:])
    assert await store.read("s") == ENTRIES


async def test_appending_nothing_is_a_no_op(store: MemoryStore) -> None:
    await store.append("s", ENTRIES)
    await store.append("s", ())
    assert await store.read("s") == ENTRIES


async def test_replacing_makes_another_history(store: MemoryStore) -> None:
    await store.append("s", ENTRIES)
    await store.replace("s", ENTRIES[:1])
    assert await store.read("s") == ENTRIES[:1]
    await store.replace("s", ())
    assert await store.read("s") == []


async def test_sessions_are_apart(store: MemoryStore) -> None:
    await store.append("a", ENTRIES[:1])
    await store.append("b", ENTRIES[1:])
    assert await store.read("a") == ENTRIES[:1]
    await store.replace("a", ())
    assert await store.read("b") == ENTRIES[1:]


async def test_lists_that_went_in_or_came_out_can_be_changed(store: MemoryStore) -> None:
    given = list(ENTRIES)
    await store.replace("s", given)
    given.clear()
    (await store.read("s")).clear()
    assert await store.read("s") == ENTRIES


async def test_closing_twice_is_a_no_op(store: MemoryStore) -> None:
    await store.close()
    await store.close()


def test_the_memory_store_keeps_the_protocol_and_answers_to_its_scheme() -> None:
    assert isinstance(MemoryStore(), Store)
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store("memory:") is not open_store("memory:")


# -- addresses --------------------------------------------------------------------------------------------------------


class Made:
    def __init__(self, address: str) -> None:
        self.address = address

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None: ...
    async def replace(self, session_id: str, entries: Sequence[Entry]) -> None: ...
    async def read(self, session_id: str) -> list[Entry]:
        return []

    async def close(self) -> None: ...


def plugins(offers: dict[str, Any]) -> Plugins:
    class Plugin:
        @hookimpl
        def amplifier_context_stores(self) -> dict[str, Any]:
            return offers

    made = Plugins()
    made.register(Plugin(), "my-stores")
    return made


def test_a_plug_ins_store_is_made_with_the_whole_address() -> None:
    made = open_store("fancy://host/path?x=1", plugins({"fancy": Made}))
    assert isinstance(made, Made)
    assert made.address == "fancy://host/path?x=1"


@pytest.mark.parametrize("address", ["", "memory", "/tmp/x"])
def test_an_address_without_a_scheme_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="scheme"):
        open_store(address, Plugins())


def test_a_scheme_nobody_answers_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nosuch' is not known"):
        open_store("nosuch://x", Plugins())


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="no store"):
        open_store("odd://x", plugins({"odd": lambda address: object()}))


def test_a_store_that_cannot_be_made_names_its_plug_in() -> None:
    def broken(address: str) -> Any:
        raise RuntimeError("disk on fire")

    with pytest.raises(PluginError, match=r"my-stores.*disk on fire"):
        open_store("broken://x", plugins({"broken": broken}))
