"""What is forgotten, and a manager that is dropped, is no more in the memory of this process either."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.transcript.entry import Entry
from tests.embedders import Deterministic, searching
from tests.managers import ask, feed, new_manager
from tests.messages import block, says, user, work

SECRET = "said-in-this-module-alone"


def holding(text: str) -> list[Entry]:
    """Entries of this process whose message has a text."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Entry) and text in str(one.message)]


@pytest.mark.digest
@pytest.mark.parametrize("make", [new_manager, lambda: searching(Deterministic())], ids=["words", "words and vectors"])
async def test_no_object_of_this_process_holds_a_message_that_was_forgotten(make: Any) -> None:
    manager: ContextManager = make()
    for message in (user([block(f"the password is {SECRET}")]), says(), user([block("a goose")])):
        await manager.add_message(message)
    await ask(manager)
    assert (await manager.search(SECRET))[0] == "m1"
    assert len(holding(SECRET)) == 1
    await manager.forget(["m1"])
    await ask(manager)  # until then the request is known to which an answer may still come
    assert holding("a goose")
    assert holding(SECRET) == []


@pytest.mark.digest
async def test_the_index_of_words_in_this_process_is_dropped_with_what_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*arguments: Any, **more: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **more))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    manager = new_manager()
    await manager.add_message(user(f"the password is {SECRET}"))
    assert await manager.search(SECRET) == ["m1"]
    await manager.forget(["m1"])
    (index,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        index.execute("SELECT 1")


async def test_a_manager_that_is_dropped_is_freed_with_its_last_reference() -> None:
    """Its views take much memory, and the garbage collector may come late."""
    manager = ContextManager(load_config({"token_counter": "heuristic"}))
    await ask(await feed(manager, work(20)), 4_000)
    await manager.close()
    parts = [weakref.ref(part) for part in (manager, manager.session, manager.compactor)]
    gc.disable()
    try:
        del manager
        assert [part() for part in parts] == [None] * 3
    finally:
        gc.enable()
