"""What a review found once: each a claim that did not hold."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, StoreError, load_config
from amplifier_context_core.locks import Gate
from amplifier_context_core.stores import MemoryStore, Store, open_store
from amplifier_context_core.transcript.transcript import Entry
from amplifier_context_core.view import shared_cache
from amplifier_context_persistent import PersistentConfig
from amplifier_context_testing import coding_session
from tests.durable.faulty import FaultyStore
from tests.manager.support import ask, feed, rounds
from tests.places import Place


def manager_on(store: Store, session_id: str = "s", **config: Any) -> ContextManager:
    settings = load_config({"token_counter": "heuristic", "max_tokens": 6_000, **config})
    return ContextManager(settings, session_id=session_id, store=store)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(name: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": name, "tool": "look", "arguments": {}}]}


def turns(number: int) -> list[dict[str, Any]]:
    return [
        m for n in range(number) for m in (user(f"question {n} " * 30), {"role": "assistant", "content": f"a{n} " * 60})
    ]


async def again(manager: ContextManager, place: Place, **config: Any) -> ContextManager:
    """The session resumed by another process, which knows nothing of the first one's checkpoints."""
    await manager.close()
    shared_cache.clear()
    return manager_on(place.store(), manager.session_id, **config)


async def test_damage_in_a_long_history_costs_the_damaged_message_and_no_other(tmp_path: Path) -> None:
    address = f"jsonl:{tmp_path}"
    store = open_store(address, durability="flush")
    manager = manager_on(store, auto_compact=False, max_tokens=10_000_000)
    for n in range(2_600):
        await manager.add_message(user(f"u{n}"))
    await manager.close()
    (tmp_path / "s" / "context-messages.checkpoint").unlink()
    file = tmp_path / "s" / "context-messages.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines[3] = b"\x00" * len(lines[3])
    file.write_bytes(b"\n".join(lines))
    manager = manager_on(open_store(address), max_tokens=10_000_000)
    expected = [f"u{n}" for n in range(2_600) if n != 3]
    assert [m["content"] for m in await manager.get_messages()] == expected
    await feed(manager, [user("last"), call("c")])
    await manager.interrupt()
    assert [e.message["content"] for e in await manager.store.read("s")] == expected
    await manager.close()


async def test_a_smaller_budget_right_after_a_resume_is_served(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id(), max_tokens=60_000)
    await manager.set_messages([user("go"), *rounds(700)])
    await manager.get_messages_for_request()
    manager = await again(manager, place, max_tokens=20_000)
    await ask(manager)
    assert await ask(manager, 5_000)
    await manager.close()


async def test_turn_numbers_go_on_after_a_resume(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), turns(40))
    await ask(manager)
    await manager.compact()
    manager = await again(manager, place)
    await feed(manager, [user("next")])
    assert manager.snapshot()[-1].turn_id == "u41"
    assert manager.turn_count == 41
    await feed(manager, [call("c")])
    assert (await manager.interrupt())["interrupted"]
    await feed(manager, [user("other")])
    assert manager.snapshot()[-1].turn_id == "u41"
    await manager.close()


async def test_a_turn_of_an_earlier_process_is_not_taken_for_a_cancelled_one(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), turns(2))
    manager = await again(manager, place, on_interrupt="discard")
    await manager.ready()
    manager.history.prompted()
    manager.history.cancelled()
    await manager.on_turn_complete()
    assert len(await manager.get_messages()) == 4
    await manager.close()


async def test_who_uses_a_closed_manager_resumes_the_session_as_it_is_now(place: Place) -> None:
    first = await feed(manager_on(place.store(), place.session_id()), [user("a"), user("b")])
    await first.close()
    second = await feed(manager_on(place.store(), place.session_id()), [user("c"), user("d")])
    await second.close()
    await first.add_message(user("e"))
    assert [m["content"] for m in await first.get_messages()] == ["a", "b", "c", "d", "e"]
    assert [entry.seq for entry in first.snapshot()] == [1, 2, 3, 4, 5]
    await first.close()


@pytest.mark.stores("jsonl", "postgresql")
async def test_an_edit_behind_one_of_two_lines_is_never_covered_up(place: Place) -> None:
    store = place.store()
    manager = manager_on(store, place.session_id(), max_tokens=60_000)
    for message in coding_session(300, 2):
        await manager.add_message(message)
        if message["role"] == "assistant":
            await manager.get_messages_for_request(4_000)
            await manager.get_messages_for_request(9_000)
    covered = sorted(line.checkpoint.covered for line in manager.compactor.cache.views if line.checkpoint)
    assert covered[0] < covered[-1]
    history = await manager.get_messages()
    at = (covered[0] + covered[-1]) // 2 + 1
    edited = [*history[:at], user("put in by the host"), *history[at:]]
    saving, store.save_checkpoint = store.save_checkpoint, _refuse  # type: ignore[method-assign]
    await manager.set_messages(edited)
    store.save_checkpoint = saving  # type: ignore[method-assign]
    await store.close()
    shared_cache.clear()
    resumed = manager_on(place.store(), place.session_id(), max_tokens=60_000)
    for budget in (4_000, 9_000):
        assert "put in by the host" in json.dumps(await ask(resumed, budget))
    await resumed.close()


async def _refuse(*given: Any) -> None:
    raise StoreError("the disk is full; make room")


@pytest.mark.stores("jsonl", "postgresql")
async def test_a_line_far_behind_its_side_calls_is_resumed_with_them(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id(), max_tokens=60_000)
    await feed(manager, rounds(1_000, output=300))
    view = await ask(manager, 60_000)
    for message in rounds(450, start=1_000, output=100):
        await manager.add_message(message)
        if message["role"] == "tool":
            await manager.get_messages_for_request(6_000)
    view = await ask(manager, 60_000)
    manager = await again(manager, place, max_tokens=60_000)
    assert json.dumps(await ask(manager, 60_000)) == json.dumps(view)
    await manager.close()


def test_a_loop_that_was_closed_in_the_gate_does_not_shut_it_for_ever() -> None:
    gate = Gate()

    async def stay() -> None:
        await gate.__aenter__()

    async def enter() -> bool:
        async with asyncio.timeout(2), gate:
            return True

    loop = asyncio.new_event_loop()
    loop.run_until_complete(stay())
    loop.close()
    assert asyncio.run(enter())


async def test_no_setting_of_a_store_is_written_into_a_checkpoint() -> None:
    store = MemoryStore()
    settings = PersistentConfig.model_validate(
        {"token_counter": "heuristic", "max_tokens": 4_000, "store": "postgresql://app:S3kr3tPW@db/agents"}
    )
    manager = ContextManager(settings, session_id="s", store=store)
    await ask(await feed(manager, [user("go"), *rounds(60)]))
    data = await store.load_checkpoint("s")
    assert data
    assert b"S3kr3t" not in data


async def test_nothing_registered_of_a_forgotten_call_is_left(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), [user("go"), *rounds(30)])
    await manager.compact_summary("call_3", "topsecret in short")
    await manager.compact_summary("to_come", "of the future")
    await manager.compact("dwell on topsecret")
    number = next(entry.seq for entry in manager.snapshot() if "call_3" in entry.call_ids)
    await manager.forget([f"m{number}"])
    assert "topsecret" not in json.dumps(await ask(manager))
    data = await manager.store.load_checkpoint(manager.session_id)
    assert data
    assert b"topsecret" not in data
    assert b"of the future" in data  # what has nothing to do with it stays
    await manager.close()


async def test_who_wrote_a_message_is_known_after_it_was_forgotten_as_well(place: Place) -> None:
    messages: list[dict[str, Any]] = [
        user("go"),
        user("<system-reminder>be brief</system-reminder>"),
        call("c1"),
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}, {"type": "text", "text": "y"}],
        },
    ]
    manager = await feed(manager_on(place.store(), place.session_id()), messages)
    humans = [entry.human for entry in manager.snapshot()]
    await manager.forget(["m1", "m2", "m3", "m4"])
    assert [entry.human for entry in manager.snapshot()] == humans == [True, False, False, True]
    manager = await again(manager, place)
    await manager.load()
    assert [entry.human for entry in manager.snapshot()] == humans
    await manager.close()


async def test_checkpoint_data_that_makes_no_sense_is_left_out_and_told(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), [user("go"), *rounds(80)])
    view = await ask(manager)
    await manager.close()
    store = place.store()
    data = await store.load_checkpoint(manager.session_id)
    assert data
    told = json.loads(data)
    for change in ({"serving": [[6_000, 99]]}, {"covered": 99_999}, {"turns_before": -5}, {"body": 50}):
        await store.save_checkpoint(manager.session_id, 1, json.dumps({**told, **change}).encode())
        await store.close()
        shared_cache.clear()
        manager = manager_on(place.store(), manager.session_id)
        assert (await ask(manager))[-1] == view[-1]
        await manager.store.close()
        store = place.store()
    seqs = told["lines"][0]["seqs"]
    told["lines"][0]["seqs"] = seqs[:-1]
    await store.save_checkpoint(manager.session_id, 1, json.dumps(told).encode())
    await store.close()
    shared_cache.clear()
    manager = manager_on(place.store(), manager.session_id)
    assert (await ask(manager))[-1] == view[-1]
    assert any("makes no sense" in text for text in manager.warnings.texts)
    await manager.close()


async def test_a_cancelled_turn_that_could_not_be_taken_out_is_taken_out_later() -> None:
    store = FaultyStore()
    manager = await feed(manager_on(store, on_interrupt="discard"), [*turns(1), user("stop this"), call("c")])
    manager.history.cancelled()
    store.failing = True
    with pytest.raises(StoreError):
        await manager.on_turn_complete()
    store.failing = False
    await manager.on_turn_complete()
    assert len(await manager.get_messages()) == 2


async def test_a_replay_may_leave_messages_out(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), turns(5))
    history = await manager.get_messages()
    manager = await again(manager, place)
    for message in [*history[:2], *history[3:]]:
        await manager.add_message(message)
    assert await manager.get_messages() == history
    await manager.close()


async def test_short_forms_registered_before_their_results_survive_a_resume(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), [user("go"), call("c9")])
    await manager.compact_summary("c9", "in short")
    manager = await again(manager, place)
    await manager.add_message({"role": "tool", "tool_call_id": "c9", "content": "long " * 500})
    assert {"c9": "in short"} in manager.compactor.short_forms.known.values()
    await manager.close()


async def test_a_fork_of_a_session_with_a_long_name_can_be_named() -> None:
    store = FaultyStore()
    name = "会" * 66
    await feed(manager_on(store, name), [user("a")])
    store.in_use[name] = "pid 7 on elsewhere"
    manager = await feed(manager_on(store, name, on_conflict="fork"), [user("b")])
    assert len(await manager.get_messages()) == 2
    assert (await manager.explain())["session_id"] == manager.history.session_id != name


async def test_a_folder_with_an_odd_name_does_not_hide_the_sessions(tmp_path: Path) -> None:
    store = open_store(f"jsonl:{tmp_path}")
    await feed(manager_on(store, "mine"), [user("a")])
    odd = tmp_path / "evil\x1b[31m"
    odd.mkdir()
    (odd / "context-messages.jsonl").write_text("{}\n")
    assert [info.session_id for info in await store.sessions()] == ["mine"]
    await store.close()


async def test_damage_is_told_to_hooks_and_in_the_report(tmp_path: Path) -> None:
    address = f"jsonl:{tmp_path}"
    manager = await feed(manager_on(open_store(address)), [user("a"), user("b")])
    await manager.close()
    with (tmp_path / "s" / "context-messages.jsonl").open("ab") as file:
        file.write(b'{"role": "user", "content": "torn')
    hooks = Heard()
    manager = ContextManager(
        load_config({"token_counter": "heuristic"}), session_id="s", hooks=hooks, store=open_store(address)
    )
    await ask(manager)
    warnings = [data for event, data in hooks.events if event == "context:warning"]
    assert [data["reason"] for data in warnings] == ["repair"]
    assert warnings[0]["message"] in (await manager.explain())["warnings"]
    assert "torn" not in warnings[0]["message"].replace("torn tail", "")  # no content of messages
    assert len(await manager.get_messages()) == 2
    await manager.close()


class Heard:
    """The kernel's hooks, as far as they are used: what was emitted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))


async def test_a_new_message_with_a_time_of_its_own_does_not_load_a_resumed_history(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), [user("go"), *rounds(80)])
    await ask(manager)
    manager = await again(manager, place)
    await manager.add_message({**user("next"), "metadata": {"timestamp": "2031-01-01T00:00:00.000+00:00"}})
    assert manager.snapshot().gap
    assert manager.snapshot()[-1].message["content"] == "next"
    await manager.close()


def test_an_edit_after_a_broken_off_call_is_measured_against_what_the_store_holds() -> None:
    store = FaultyStore()
    manager = manager_on(store)

    async def broken_off() -> None:
        await feed(manager, [user("a"), user("b")])
        gate, store.open_gate = store.open_gate, asyncio.Event()
        adding = asyncio.create_task(manager.add_message(user("c")))
        while store.entered < 3:
            await asyncio.sleep(0)
        assert not adding.done()
        store.open_gate = gate

    async def edited() -> None:
        await feed(manager_on(store), [user("written all the same")])
        await manager.set_messages([user("a"), user("b"), user("edited")])
        held = [entry.message["content"] for entry in await store.read("s")]
        assert held == [m["content"] for m in await manager.get_messages()] == ["a", "b", "edited"]
        assert [e.message["content"] for e in await store.archived("s")] == ["written all the same"]

    asyncio.run(broken_off())
    asyncio.run(edited())


class _CutOff(MemoryStore):
    """Its first append waits for two more messages, its second one never comes back to the loop that asked for it."""

    def __init__(self, *, stored: bool) -> None:
        super().__init__()
        self.appends = 0
        self.begun, self.joined, self.stuck = threading.Event(), threading.Event(), threading.Event()
        self._stored = stored

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        self.appends += 1
        if self.appends == 1:
            self.begun.set()
            await asyncio.to_thread(self.joined.wait, 20)
        second = self.appends == 2
        if self._stored or not second:
            await super().append(session_id, entries)
        if second:
            self.stuck.set()
            await asyncio.sleep(60)


@pytest.mark.parametrize("stored", [False, True], ids=["before it is stored", "after"])
def test_a_message_is_added_once_though_the_loop_that_carries_it_ends(stored: bool) -> None:
    store = _CutOff(stored=stored)
    manager = ContextManager(store=store)

    async def carry() -> None:
        carrying = asyncio.create_task(manager.add_message(user("One.")))
        await asyncio.to_thread(store.begun.wait, 20)
        cut_off = asyncio.create_task(manager.add_message(user("Cut off.")))
        await asyncio.to_thread(store.stuck.wait, 20)  # in it with this one and the other loop's
        await carrying
        assert not cut_off.done()

    async def join() -> None:
        await asyncio.to_thread(store.begun.wait, 20)
        waiting = manager.history._additions._waiting  # pyright: ignore[reportPrivateUsage]
        while not waiting:
            await asyncio.sleep(0.001)
        joining = asyncio.create_task(manager.add_message({"role": "assistant", "content": "Two."}))
        while len(waiting) < 2:
            await asyncio.sleep(0.001)
        store.joined.set()
        async with asyncio.timeout(20):
            await joining
        await manager.add_message(user("Three."))

    ending = threading.Thread(target=asyncio.run, args=(carry(),))
    ending.start()
    asyncio.run(join())
    ending.join(20)
    told = [message["content"] for message in asyncio.run(manager.get_messages())]
    assert told == ["One.", *(["Cut off."] if stored else []), "Two.", "Three."]
    assert [entry.message["content"] for entry in asyncio.run(store.read(manager.session_id))] == told


async def test_a_message_is_added_though_the_loop_that_would_carry_it_ends_before_its_turn() -> None:
    manager = ContextManager()
    await manager.add_message(user("One."))
    waiting = manager.history._additions._waiting  # pyright: ignore[reportPrivateUsage]

    async def begin() -> None:
        manager.history._begin(manager.add_message(user("Lost with its loop.")))  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.05)

    async with manager.history._gate:  # pyright: ignore[reportPrivateUsage]
        carrying = threading.Thread(target=asyncio.run, args=(begin(),))
        carrying.start()
        while not waiting:
            await asyncio.sleep(0.001)
        joining = asyncio.create_task(manager.add_message(user("Two.")))
        await asyncio.to_thread(carrying.join, 20)
    async with asyncio.timeout(20):
        await joining
    assert [message["content"] for message in await manager.get_messages()] == ["One.", "Two."]
