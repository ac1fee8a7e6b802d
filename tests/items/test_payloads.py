"""Items of any payload: none of them keeps a session from what it has to do."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.items import ContextItem
from amplifier_context_core.stores.jsonl.store import JsonlStore
from tests.items.sessions import opened
from tests.managers import ask, feed, new_manager
from tests.messages import nested, says, user

SECRET = "the password is hunter2"


class Unsure:
    """An object without a text, neither true nor false, as an array of several numbers."""

    def __str__(self) -> str:
        raise ConnectionError("not connected")

    __repr__ = __bool__ = __str__  # type: ignore[assignment]


UNREADABLE = pytest.mark.parametrize("payload", [nested(3_000, []), Unsure(), 10**5_000], ids=type)


def on_disk(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@UNREADABLE
async def test_a_payload_without_a_text_stops_no_method_of_its_session(tmp_path: Path, payload: object) -> None:
    manager = await feed(opened(JsonlStore(tmp_path)), [user(SECRET)])
    await ask(manager)
    await manager.queue.append(ContextItem(payload))
    await manager.pool.add(ContextItem(payload, "a tree", "t"))
    view = await ask(manager)
    assert f"queue, newest last:\n- {type(payload).__name__}" in view[-1]["content"]
    assert manager.queue.history() == type(payload).__name__
    await manager.set_messages([user(SECRET), says("yes")])
    assert await manager.forget(["m1"]) == ["m1"]
    assert b"hunter2" not in on_disk(tmp_path)
    await manager.close()
    again = opened(JsonlStore(tmp_path))
    await again.ready()
    assert again.pool.get("t").content == type(payload).__name__
    await again.close()


@UNREADABLE
async def test_an_item_that_cannot_be_read_is_erased_with_the_text_that_it_may_hold(payload: object) -> None:
    manager = await feed(new_manager(), [user(SECRET)])
    await manager.pool.add(ContextItem(payload, "a tree", "t"))
    await manager.queue.append(ContextItem(payload), ContextItem("harmless"))
    await manager.forget(containing="hunter2")
    assert ([item.id for item in manager.pool], manager.queue.history()) == ([], "harmless")


@dataclass
class Note:
    text: str


class Spaced(list[Any]):
    """A list that writes itself in a way of its own."""

    def __init__(self, text: str) -> None:
        super().__init__([text])

    def __repr__(self) -> str:
        return " ".join(self[0])


def cycle(text: str) -> object:
    made: list[Any] = [text]
    made.append(made)
    return made


SECRETS = ["it's\u00a0here", "it's\x00here", 'it\'s "hunter2"', "hunter\\2", "hunter\n2", "j\u00e4ger2"]
SHAPES: list[Any] = [
    *(lambda text: {"note": text}, lambda text: {(text, 1): 1}, lambda text: [(text,)], lambda text: {text}),
    *(cycle, lambda text: [Note(text)], Spaced),
]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_text_is_found_in_a_payload_however_python_writes_it(shape: Any) -> None:
    for secret in SECRETS:
        manager = await feed(new_manager(), [user("hello")])
        await manager.pool.add(ContextItem(shape(f'the "code" is {secret}'), "a note", "n"))
        await manager.queue.append(ContextItem(shape(f"the code is {secret}")), ContextItem(shape("harmless")))
        await manager.forget(containing=secret)
        assert (len(manager.pool), len(manager.queue)) == (0, 1)


NO_JSON = [math.nan, {"loss": math.nan, "best": -math.inf}, [Note("x")], {1: 2}, set[int](), nested(100, [])]
JSON = [{"\ud800": 1}, [{"a": {"b\udc00": [2**70]}}], 2**70, [], "", 0, nested(99, [])]


async def test_a_payload_is_saved_as_it_is_if_it_is_wholly_json_else_as_its_text(tmp_path: Path) -> None:
    manager = await feed(opened(JsonlStore(tmp_path)), [user("hello")])
    for number, payload in enumerate((*NO_JSON, *JSON)):
        await manager.pool.add(ContextItem(payload, "odd", str(number)))
    await ask(manager)
    await manager.close()
    again = opened(JsonlStore(tmp_path))
    await again.ready()
    await again.close()
    assert [item.content for item in again.pool] == [*map(str, NO_JSON), *JSON]
