"""A store that loses messages under a resumed session: what memory holds is kept, and the loss is reported.

The law is in tests/laws/test_shrinking_laws.py; here are the real stores, losing data as they do in practice.
"""

from __future__ import annotations

from pathlib import Path

from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager
from amplifier_context_core.stores import open_store
from amplifier_context_testing import EventRecorder
from tests.authors import make_manager
from tests.durable.sessions import again, manager_on
from tests.managers import ask, feed
from tests.messages import user
from tests.places import Place

MESSAGES = 40


async def resumed(place: Place) -> ContextManager:
    """A session of which the middle is not in memory."""
    manager = manager_on(place.store(), place.session_id(), max_tokens=900)
    for number in range(MESSAGES):
        role = "assistant" if number % 5 else "user"
        await manager.add_message({"role": role, "content": f"t{number} " + "w " * 50})
        await manager.get_messages_for_request()
    manager = await again(manager, place, max_tokens=900)
    await manager.get_messages_for_request()
    assert manager.history.snapshot().gap
    return manager


async def test_places_that_move_while_a_checkpoint_is_read_make_it_read_everything() -> None:
    """The law covers losses while the gap is loaded; this one comes while the session is resumed."""
    place = Place("memory", Path())
    manager = await resumed(place)
    await manager.close()
    store = place.store()
    finding = store.find

    async def losing(session_id: str, seqs: list[int]) -> list[object]:
        entries = store._sessions[session_id].entries  # type: ignore[attr-defined]
        entries[:] = [entry for entry in entries if entry.seq != 12]
        return await finding(session_id, seqs)  # type: ignore[return-value]

    store.find = losing  # type: ignore[method-assign]
    manager = make_manager(manager.config, session_id=manager.session_id, store=store)
    await manager.get_messages_for_request()
    assert not manager.history.snapshot().gap
    assert [entry.seq for entry in manager.history.snapshot()] == [seq for seq in range(1, MESSAGES + 1) if seq != 12]


async def test_what_another_program_wrote_is_reported_to_hooks_and_by_explain(tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}"
    manager = await feed(manager_on(open_store(url)), [user("a"), user("b")])
    await manager.close()
    with (tmp_path / "s" / "context-messages.jsonl").open("ab") as file:
        file.write(b'{"role": "user", "content": "theirs"}\n{"role": "user", "content": "torn')
    recorder = EventRecorder(hooks := HookRegistry(), ["context:warning"])
    manager = manager_on(open_store(url), hooks=hooks)
    await ask(manager)
    (warning,) = recorder.named("context:warning")
    assert warning["reason"] == "repair"
    assert warning["message"] in (await manager.explain())["warnings"]
    assert "torn" not in warning["message"]  # no content of messages
    assert "theirs" not in warning["message"]
    assert len(await manager.get_messages()) == 3
    await manager.close()
