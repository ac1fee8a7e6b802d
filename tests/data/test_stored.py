"""Stored sessions open as they were recorded, in every persistent store; see `tests.data.stored`."""

import json
import lzma
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.stores import Checkable, Store, open_store
from tests.data.stored import BACKENDS, FORK, PROVIDER, SECRET, SESSION, SESSIONS, VIEWS, manager_of, restored, shown
from tests.places import SERVERS, parameters, server

RECORDED: dict[str, Any] = json.loads(lzma.decompress(VIEWS.read_bytes()))


@pytest.fixture(params=parameters(*BACKENDS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    if request.param in SERVERS:
        server(request.param)
    async with AsyncExitStack() as stack:
        store = open_store(await stack.enter_async_context(restored(request.param, tmp_path)), durability="none")
        stack.push_async_callback(store.close)
        yield store


def figures(report: Any) -> Any:
    """Return a report without its texts for people."""
    if isinstance(report, dict):
        return {key: figures(value) for key, value in report.items() if key not in ("why", "rule", "warnings")}
    return [figures(item) for item in report] if isinstance(report, list) else report


@pytest.mark.parametrize("session_id", SESSIONS)
async def test_a_stored_session_opens_as_it_was_recorded(store: Store, session_id: str) -> None:
    found, recorded = json.loads(json.dumps(await shown(manager_of(store, session_id)))), RECORDED[session_id]
    assert json.dumps(found["first"]) == json.dumps(recorded["first"])
    assert json.dumps(found["messages"]) == json.dumps(recorded["messages"])
    assert figures(found.pop("report")) == figures(recorded["report"])
    assert found == {name: value for name, value in recorded.items() if name != "report"}


async def test_a_stored_session_is_sound_and_resumes_from_its_checkpoint(store: Store) -> None:
    assert isinstance(store, Checkable)
    assert [await store.verify(session_id) for session_id in SESSIONS] == [[], [], []]
    manager = manager_of(store)
    await manager.get_messages_for_request(provider=PROVIDER)
    assert manager.warnings.texts == []
    assert manager.history.snapshot().gap
    assert await store.archived(SESSION) != []


async def test_a_stored_session_and_its_fork_continue_independently(store: Store) -> None:
    before = RECORDED[SESSION]["messages"]
    for session_id in (SESSION, FORK):
        manager = manager_of(store, session_id)
        await manager.add_message({"role": "user", "content": f"Go on, {session_id}."})
        *others, newest = await manager.get_messages()
        assert others == before
        assert newest["content"] == f"Go on, {session_id}."
        assert manager.snapshot()[-1].seq == manager.snapshot()[-2].seq + 1


async def test_the_erased_text_is_nowhere_and_cannot_come_back(store: Store) -> None:
    manager = manager_of(store)
    messages = await manager.get_messages()
    (place,) = (place for place, message in enumerate(messages) if message["content"] == "(erased)")
    echo = [{"role": m["role"], "content": m["content"]} for m in messages[place : place + 2]]
    echo[0]["content"] = f"The password is {SECRET}."
    await manager.set_messages([*messages[:place], *echo, *messages[place + 2 :]])
    assert SECRET not in json.dumps(await manager.get_messages())
    assert SECRET not in json.dumps(await manager.get_messages_for_request(provider=PROVIDER))
    assert SECRET not in json.dumps([entry.message for entry in await store.archived(SESSION)])
