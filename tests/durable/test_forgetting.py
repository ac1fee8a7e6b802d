"""What was erased does not come back, whatever a host still has of it, its own transcript too.

The law is in tests/laws/test_forgetting_laws.py; here is what it does not draw.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.history import redactions
from amplifier_context_core.transcript.entry import Entry
from tests.durable.hindrance import Hindrance
from tests.durable.host import Host
from tests.durable.sessions import SECRET, again, everything, manager_on, pasted, stripped
from tests.managers import ask, feed
from tests.messages import block, call, result, rounds, user
from tests.places import BACKENDS, KEPT, Place

pytestmark = pytest.mark.stores("jsonl")  # and SQLite with a model: what differs by store is the contract's


def raw_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_without_a_trace_timestamps_alone_are_recognised(place: Place, tmp_path: Path) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    await manager.forget(["m2"])
    await manager.store.close()
    assert b"$scrypt$" in raw_bytes(place.folder)
    await manager.forget(["m2"], trace=False)
    manager = await again(manager, place)
    assert b"$scrypt$" not in raw_bytes(place.folder)
    await manager.set_messages(host.saved())
    assert SECRET not in await everything(manager)
    await manager.set_messages([stripped(message) for message in host.saved()])
    assert SECRET in await everything(manager)  # that is the price
    await manager.close()


async def test_new_messages_are_never_taken_for_what_was_erased(place: Place, tmp_path: Path) -> None:
    host = Host(tmp_path / "home", "s")
    manager = await pasted(place, host)
    await manager.forget(["m2"])
    erased, *later = host.saved()
    of_its_time = user("of the same time", metadata=erased["metadata"])
    await manager.set_messages([of_its_time, erased, *later, user("a new one")])
    texts = [message["content"] for message in await manager.get_messages()]
    assert (texts[1:3], texts[-1]) == (["of the same time", "(erased)"], "a new one")
    assert SECRET not in await everything(manager)
    await manager.add_message(user(SECRET))  # typed once more: that is a new message
    assert (await manager.get_messages())[-1]["content"] == SECRET
    await manager.close()


async def test_only_what_is_like_nothing_stored_is_hashed_once_off_the_event_loop_with_a_salt_of_its_session(
    monkeypatch: pytest.MonkeyPatch, shipped_cost: redactions.Cost
) -> None:
    assert shipped_cost == (15, 8, 3)
    threads, salts = list[int](), list[bytes]()
    hashing = redactions.trace_of

    def watched(text: bytes, salt: bytes, cost: redactions.Cost | None = None) -> str:
        threads.append(threading.get_ident())
        salts.append(salt)
        return hashing(text, salt, cost)

    monkeypatch.setattr(redactions, "trace_of", watched)
    for name in ("s", "t"):
        manager = await pasted(Place("memory", Path()), name=name)
        history = [stripped(message) for message in await manager.get_messages()]
        await manager.set_messages([*history, user("edit 0")])
        assert len(threads) == (2 if name == "t" else 0), "nothing was erased yet"
        await manager.forget(["m2"])
        for _ in range(3):
            await manager.set_messages([*history, user("edit 0")])
    assert threading.get_ident() not in threads
    assert [len(salts), len(set(salts[:2])), len(set(salts[2:])), len(set(salts))] == [4, 1, 1, 2]


async def test_too_many_new_messages_are_not_all_hashed_and_that_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redactions, "_MAX_COMPARED", 3)
    manager = await pasted(Place("memory", Path()))
    await manager.forget(["m2"])
    await manager.set_messages([{"role": "user", "content": f"another life {number}"} for number in range(5)])
    assert "2 new messages were not compared" in caplog.text
    assert len(await manager.get_messages()) == 5


@pytest.mark.stores(*BACKENDS)
async def test_a_text_is_forgotten_from_short_forms_focus_and_pins_too(place: Place) -> None:
    manager = await pasted(place)
    await manager.add_message({"role": "tool", "tool_call_id": "call_2", "content": "late"})
    await manager.pin("m2")
    await manager.compact_summary("call_2", f"used {SECRET}")
    await manager.compact_summary("to_come", f"will use {SECRET}")
    await manager.compact_summary("to_come_too", "will use nothing")
    await manager.compact(f"dwell on {SECRET}")
    manager.compactor.directions.injected = f"dwell on {SECRET}"
    assert await manager.forget(containing=SECRET) == ["m2"]
    assert SECRET not in await everything(manager)
    await manager.compact(f"dwell on {SECRET}")  # the focus alone has it now
    assert await manager.forget(containing=SECRET) == []
    assert SECRET not in await everything(manager)
    await manager.compact_summary("call_1", "the second FILE in short")
    await manager.compact("dwell on the second FILE")
    number = next(entry.seq for entry in manager.snapshot() if "call_1" in entry.call_ids)
    await manager.forget([f"m{number}"])
    assert "FILE" not in await everything(manager)
    manager = await again(manager, place)
    assert SECRET not in await everything(manager)
    assert await manager.search("hunter2-topsecret") == []
    assert b"will use nothing" in (await manager.store.load_checkpoint(manager.session_id) or b"")
    await manager.close()


@pytest.mark.stores(*BACKENDS)
async def test_a_forget_whose_caller_is_cancelled_is_carried_out_all_the_same(place: Place) -> None:
    manager = await pasted(place)
    forgetting = asyncio.create_task(manager.forget(["m2"]))
    await asyncio.sleep(0)
    forgetting.cancel()
    await asyncio.gather(forgetting, return_exceptions=True)
    await manager.history.finish()
    assert [entry.message["content"] for entry in await manager.store.read(manager.session_id, 1, 2)] == ["(erased)"]
    await manager.close()
    assert SECRET not in await everything(manager_on(place.store(), place.session_id()))


@pytest.fixture
def hindrance(monkeypatch: pytest.MonkeyPatch) -> Hindrance:
    return Hindrance(monkeypatch)


@pytest.mark.stores(*KEPT, only=True)
@pytest.mark.parametrize("is_resumed", [False, True])
async def test_the_same_call_finishes_what_a_store_could_not_erase(
    place: Place, hindrance: Hindrance, is_resumed: bool
) -> None:
    manager = await pasted(place)
    await manager.compact_summary("to_come", f"will use {SECRET}")
    with hindrance.on(), pytest.raises(NotErased):
        await manager.forget(containing=SECRET)
    assert (await manager.get_messages())[1]["content"] == "(erased)"
    tries = hindrance.tries
    if is_resumed:
        manager = await again(manager, place)
        await manager.get_messages()
        assert SECRET.encode() not in (await manager.store.load_checkpoint(manager.session_id) or b"")
    assert await manager.forget(**({"marks": ["m2"]} if is_resumed else {"containing": SECRET})) == ["m2"]
    assert hindrance.tries > tries
    assert SECRET not in await everything(manager)
    await manager.close()
    if place.backend in ("jsonl", "sqlite"):
        assert SECRET.encode() not in raw_bytes(place.folder)


async def test_the_author_of_a_message_is_known_after_it_was_forgotten(place: Place) -> None:
    answer = user([{"type": "tool_result", "tool_use_id": "c1", "content": "x"}, block("y")])
    messages = [user("go"), user("<system-reminder>be brief</system-reminder>"), call("c1"), answer]
    manager = await feed(manager_on(place.store(), place.session_id()), messages)
    humans = [entry.human for entry in manager.snapshot()]
    await manager.forget(["m1", "m2", "m3", "m4"])
    assert [entry.human for entry in manager.snapshot()] == humans == [True, False, False, True]
    manager = await again(manager, place)
    await manager.load()
    assert [entry.human for entry in manager.snapshot()] == humans
    await manager.close()


@pytest.mark.parametrize("moment", ["before the store erases", "before the session knows"])
@pytest.mark.stores(*BACKENDS)
async def test_a_compaction_that_ends_meanwhile_saves_no_erased_text(
    place: Place, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One save gets through, as if the process ended after it."""
    manager = await feed(manager_on(place.store(), place.session_id()), [user("go"), user(SECRET), *rounds(30)])
    await ask(manager)
    store = manager.store
    rewrite, save = store.rewrite, store.save_checkpoint
    saves, saving, erased = 0, asyncio.Event(), asyncio.Event()
    compaction: list[asyncio.Task[Any]] = []

    async def seen(event: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), 0.5)

    async def saved_late(session_id: str, covered: int, data: bytes) -> None:
        nonlocal saves
        saves += 1
        saving.set()
        if saves > 1:
            raise StoreError("refused")
        await seen(erased)
        await save(session_id, covered, data)

    async def rewritten(session_id: str, entries: Sequence[Entry]) -> None:
        await rewrite(session_id, entries)
        erased.set()
        if moment == "before the session knows":
            compaction.append(asyncio.create_task(manager.compact()))
            await seen(saving)
            await asyncio.sleep(0.05)

    monkeypatch.setattr(store, "save_checkpoint", saved_late)
    monkeypatch.setattr(store, "rewrite", rewritten)
    if moment == "before the store erases":
        compaction.append(asyncio.create_task(manager.compact()))
        await saving.wait()
    assert await manager.forget(containing=SECRET) == ["m2"]
    await asyncio.gather(*compaction)
    assert SECRET.encode() not in (await store.load_checkpoint(manager.session_id) or b"")
    monkeypatch.undo()
    await manager.close()
    if place.backend in ("jsonl", "sqlite"):
        assert SECRET.encode() not in raw_bytes(place.folder)


async def test_a_result_that_the_host_cut_short_is_recognised_by_its_call(place: Place) -> None:
    """What was cut has another hash."""
    name = "call_IuR7Jj3zNfGq5x0b"
    talk = [user("log in"), call(name, name="login", path=SECRET), result(name, f"logged in with {SECRET}")]
    manager = await feed(manager_on(place.store(), place.session_id()), talk)
    assert await manager.forget(containing=SECRET) == ["m2", "m3"]
    await manager.set_messages([*talk[:2], {**talk[2], "content": talk[2]["content"][:30]}])
    assert "hunter2" not in await everything(manager)
    assert [entry.seq for entry in manager.snapshot()] == [1, 2, 3]
    await manager.close()
