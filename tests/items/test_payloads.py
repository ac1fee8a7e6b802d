"""Items of any payload: none of them keeps a session from what it has to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.items import ContextItem
from amplifier_context_core.stores.jsonl.store import JsonlStore
from tests.managers import ask, feed

SECRET = "the password is hunter2"


class Mute:
    """An object that cannot be written as text."""

    def __str__(self) -> str:
        raise ConnectionError("not connected")

    __repr__ = __str__


class Unsure(Mute):
    """An object that also is neither true nor false, as an array of several numbers."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def nested(levels: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(levels):
        inner = [inner]
    return inner


UNREADABLE = pytest.mark.parametrize("payload", [nested(3_000), Mute(), Unsure(), 10**5_000], ids=type)


def opened(folder: Path) -> ContextManager:
    return ContextManager(load_config({"token_counter": "heuristic"}), session_id="s", store=JsonlStore(folder))


def on_disk(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.rglob("*") if path.is_file())


@UNREADABLE
async def test_a_payload_without_a_text_stops_no_method_of_its_session(tmp_path: Path, payload: object) -> None:
    manager = await feed(opened(tmp_path), [{"role": "user", "content": SECRET}])
    await ask(manager)
    await manager.queue.append(ContextItem(payload))
    await manager.pool.add(ContextItem(payload, "a tree", "t"))
    view = await ask(manager)
    assert f"queue, newest last:\n- {type(payload).__name__}" in view[-1]["content"]
    assert manager.queue.history() == type(payload).__name__
    await manager.set_messages([{"role": "user", "content": SECRET}, {"role": "assistant", "content": "yes"}])
    assert await manager.forget(["m1"]) == ["m1"]
    assert "hunter2" not in on_disk(tmp_path)
    await manager.close()
    again = opened(tmp_path)
    await again.ready()
    assert again.pool.get("t").content == type(payload).__name__
    await again.close()


@UNREADABLE
async def test_an_item_that_cannot_be_read_is_erased_with_the_text_that_it_may_hold(
    tmp_path: Path, payload: object
) -> None:
    manager = await feed(opened(tmp_path), [{"role": "user", "content": SECRET}])
    await manager.pool.add(ContextItem(payload, "a tree", "t"))
    await manager.pool.add(ContextItem("harmless", "a text", "x"))
    await manager.queue.append(ContextItem(payload), ContextItem("harmless"))
    await manager.forget(containing="hunter2")
    assert ([item.id for item in manager.pool], manager.queue.history()) == (["x"], "harmless")
    await manager.close()


async def test_a_description_without_a_text_stops_nothing_either(tmp_path: Path) -> None:
    manager = await feed(opened(tmp_path), [{"role": "user", "content": SECRET}])
    description: Any = Mute()
    await manager.pool.add(ContextItem("body", description, "t"))
    assert "- [t] Mute" in (await ask(manager))[-1]["content"]
    await manager.forget(containing="hunter2")
    await manager.close()


@pytest.mark.parametrize("payload", [set[int](), "\ud800", ["\ud800"], 2**70, {"a": 2**70}], ids=repr)
async def test_a_payload_at_the_edge_of_json_is_saved(tmp_path: Path, payload: object) -> None:
    manager = await feed(opened(tmp_path), [{"role": "user", "content": "hello"}])
    await manager.pool.add(ContextItem(payload, "odd", "t"))
    await ask(manager)
    await manager.close()
    again = opened(tmp_path)
    await again.ready()
    assert again.pool.get("t").id == "t"
    assert json.dumps(again.pool.get("t").content)
    await again.close()
