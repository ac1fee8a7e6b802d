"""What was erased does not come back from a transcript that a host still has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.durable.host import Host
from tests.durable.pasted_password import SECRET, everything, pasted, stripped
from tests.durable.sessions import again, manager_on
from tests.managers import ask, feed
from tests.messages import Message
from tests.places import Place


def texts(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages if isinstance(message.get("content"), str)]


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


def restamped(message: Message) -> Message:
    return {**stripped(message), "timestamp": "2031-01-01T00:00:00.123+00:00"}


@pytest.mark.parametrize("given", [stripped, restamped])
async def test_where_the_host_strips_timestamps_the_text_is_recognised_by_its_hash(
    place: Place, tmp_path: Path, given: Callable[[Message], Message]
) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    count = len(await manager.get_messages())
    await manager.forget(["m2"])
    manager = await again(manager, place)
    await manager.set_messages([given(message) for message in host.saved()])
    assert SECRET not in await everything(manager)
    assert len(await manager.get_messages()) == count
    await manager.close()


async def test_a_transcript_that_is_replayed_message_by_message_does_not_bring_it_back(
    place: Place, tmp_path: Path
) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    history = await manager.get_messages()
    await manager.forget(["m2"])
    erased = await manager.get_messages()
    manager = await again(manager, place)
    await feed(manager, history)
    assert await manager.get_messages() == erased
    await ask(manager)
    await feed(manager, history[1:2])  # once it is at work it is new, and still erased
    assert SECRET not in await everything(manager)
    await manager.close()


async def test_what_left_the_history_before_is_still_recognised(place: Place, tmp_path: Path) -> None:
    """Cut off, cleared, resumed, with an archive or without: the host's list is the whole old one."""
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    await manager.forget(["m2"])
    await manager.set_messages((await manager.get_messages())[3:])
    await manager.set_messages(host.saved())
    assert SECRET not in await everything(manager)
    await manager.clear()
    manager = await again(manager, place)
    await manager.set_messages([stripped(message) for message in host.saved()])
    assert SECRET not in await everything(manager)
    assert "go on" in texts(await manager.get_messages())
    await manager.close()


async def test_it_is_recognised_when_the_checkpoint_is_lost(place: Place, tmp_path: Path) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    await manager.forget(["m2"])
    await manager.set_messages([{"role": "user", "content": "something else"}])
    await manager.store.save_checkpoint(manager.session_id, 0, b"damaged")
    await manager.store.close()
    manager = manager_on(place.store(), place.session_id())
    await manager.set_messages([stripped(message) for message in host.saved()])
    assert SECRET not in await everything(manager)
    await manager.close()


async def test_it_is_recognised_in_a_fork_as_well(place: Place, tmp_path: Path) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    await manager.forget(["m2"])
    await manager.close()
    store = place.store()
    await store.fork(place.session_id(), place.session_id("fork"))
    await store.close()
    fork = manager_on(place.store(), place.session_id("fork"))
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


async def test_messages_of_one_coarse_time_are_distinguished_by_their_text(place: Place) -> None:
    stamp = {"metadata": {"timestamp": "2026-01-01T00:00:00Z"}}
    talk = [{"role": "user", "content": text, **stamp} for text in ("one", SECRET, "three")]
    manager = await feed(manager_on(place.store(), place.session_id()), talk)
    await manager.forget(["m2"])
    await manager.set_messages([*talk, {"role": "user", "content": "four", **stamp}])
    assert texts(await manager.get_messages()) == ["one", "(erased)", "three", "four"]
    await manager.set_messages([{"role": "user", "content": "five", **stamp}])
    assert texts(await manager.get_messages()) == ["five"]
    await manager.close()


def login(call_id: str, secret: str = SECRET) -> list[Message]:
    call = {"id": call_id, "type": "function", "function": {"name": "login", "arguments": json.dumps({"p": secret})}}
    return [
        {"role": "user", "content": "log in"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": f"logged in with {secret}"},
        {"role": "assistant", "content": "done"},
    ]


async def test_calls_and_results_are_recognised_by_their_ids(place: Place) -> None:
    talk = login("call_IuR7Jj3zNfGq5x0b")
    manager = await feed(manager_on(place.store(), place.session_id()), talk)
    assert await manager.forget(containing=SECRET) == ["m2", "m3"]
    assert [redaction.trace for redaction in manager.history.redactions.all()] == ["", ""]
    shorter = {**talk[2], "content": talk[2]["content"][:30]}  # what a host cut has another hash
    await manager.set_messages([*talk[:2], shorter, talk[3]])
    assert "hunter2" not in await everything(manager)
    assert [entry.seq for entry in manager.snapshot()] == [1, 2, 3, 4]
    await manager.close()


async def test_calls_whose_ids_come_again_in_every_turn_are_recognised_by_what_they_say(place: Place) -> None:
    talk, next_turn = login("call_0"), login("call_0", "another password")
    manager = await feed(manager_on(place.store(), place.session_id()), talk)
    await manager.forget(containing=SECRET)
    await manager.set_messages([*talk, *next_turn])
    assert SECRET not in await everything(manager)
    assert texts(await manager.get_messages())[-2:] == ["logged in with another password", "done"]
    await manager.set_messages(next_turn)
    assert texts(await manager.get_messages()) == ["log in", "logged in with another password", "done"]
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
