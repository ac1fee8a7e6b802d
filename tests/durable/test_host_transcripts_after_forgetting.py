"""What was erased does not come back from a transcript that a host still has.

The law is in tests/laws/test_forgetting_laws.py; here is what it does not draw.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.durable.host import Host
from tests.durable.pasted_password import SECRET, everything, pasted, stripped
from tests.durable.sessions import again, manager_on
from tests.managers import feed
from tests.messages import Message
from tests.places import BACKENDS, Place

pytestmark = pytest.mark.stores("jsonl")  # and SQLite with a model: what differs by store is the contract's


def texts(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages if isinstance(message.get("content"), str)]


@pytest.mark.stores(*BACKENDS)
async def test_a_host_that_resumes_with_its_own_transcript_does_not_bring_back_what_was_forgotten(
    place: Place, tmp_path: Path
) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    before = await manager.get_messages()
    assert await manager.forget(["m2"]) == ["m2"]
    manager = await again(manager, place)
    await host.resume(manager, "Be brief.")
    await manager.add_message({"role": "user", "content": "go on"})
    assert SECRET not in await everything(manager)
    messages = await manager.get_messages()
    assert messages[1]["content"] == "(erased)"
    assert [m for m in messages[:-1] if m["content"] != "(erased)"] == [before[0], *before[2:]]
    await host.save(manager)
    assert SECRET not in host.transcript.read_text()  # the host's own copy heals, too
    await manager.close()


async def test_it_is_recognised_in_a_fork_whose_checkpoint_is_lost(place: Place, tmp_path: Path) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    await manager.forget(["m2"])
    await manager.close()
    store, name = place.store(), place.session_id("fork")
    await store.fork(place.session_id(), name)
    await store.save_checkpoint(name, 0, b"damaged")
    await store.close()
    fork = manager_on(place.store(), name)
    await fork.set_messages([stripped(message) for message in host.saved()])
    assert SECRET not in await everything(fork)
    await fork.close()


async def test_new_messages_of_a_host_are_never_taken_for_what_was_erased(place: Place, tmp_path: Path) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    await manager.forget(["m2"])
    added = [
        {"role": "user", "content": "a new one"},
        {"role": "user", "content": "of the same time", "metadata": host.saved()[1]["metadata"]},
        {"role": "user", "content": "of another time", "metadata": {"timestamp": "2031-01-01T00:00:00.123+00:00"}},
    ]
    await manager.set_messages([*host.saved(), *added])
    assert texts(await manager.get_messages())[-3:] == ["a new one", "of the same time", "of another time"]
    assert SECRET not in await everything(manager)
    await manager.add_message({"role": "user", "content": SECRET})  # typed once more: that is a new message
    assert (await manager.get_messages())[-1]["content"] == SECRET
    await manager.close()


async def test_a_result_that_the_host_cut_short_is_recognised_by_its_call(place: Place) -> None:
    """What was cut has another hash."""
    call = {"id": "call_IuR7Jj3zNfGq5x0b", "tool": "login", "arguments": {"password": SECRET}}
    talk: list[Message] = [
        {"role": "user", "content": "log in"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"logged in with {SECRET}"},
    ]
    manager = await feed(manager_on(place.store(), place.session_id()), talk)
    assert await manager.forget(containing=SECRET) == ["m2", "m3"]
    await manager.set_messages([*talk[:2], {**talk[2], "content": talk[2]["content"][:30]}])
    assert "hunter2" not in await everything(manager)
    assert [entry.seq for entry in manager.snapshot()] == [1, 2, 3]
    await manager.close()


async def test_an_erased_instruction_in_the_middle_keeps_its_entry(place: Place) -> None:
    hint = {"role": "system", "content": SECRET, "metadata": {"source": "hook", "hook_name": "secrets"}}
    manager = await feed(
        manager_on(place.store(), place.session_id()),
        [{"role": "user", "content": "go"}, hint, {"role": "user", "content": "on"}],
    )
    history = await manager.get_messages()
    await manager.forget(["m2"])
    for given in (history, [stripped(message) for message in history], [history[0], history[2]]):
        await manager.set_messages(given)
        assert [entry.mark for entry in manager.snapshot()] == ["m1", "m2", "m3"]
        assert SECRET not in await everything(manager)
    await manager.close()
