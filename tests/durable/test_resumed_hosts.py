"""How hosts use a history after a resume (docs/kernel.md): saved transcripts, replays, children, edits."""

from __future__ import annotations

import json

import pytest

from tests.durable.sessions import again, compacted, manager_on, opened
from tests.managers import ask, feed
from tests.messages import rounds, text, user
from tests.places import Place
from tests.recall.calls import recalled, refused, tool_of

pytestmark = pytest.mark.stores("jsonl")  # and SQLite with a model: what differs by store is the contract's


async def test_a_host_that_sets_the_saved_transcript_changes_nothing(place: Place) -> None:
    async with opened(place) as manager:
        before = await compacted(await feed(manager, [{"role": "system", "content": "Be brief."}]))
        history = await manager.get_messages()
    saved = [m for m in json.loads(json.dumps(history)) if m["role"] != "system"]
    async with opened(place) as manager:
        await manager.ready()
        revision = manager.history.revision
        await manager.set_messages(saved)
        await manager.set_messages([history[0], *saved])
        assert await manager.get_messages() == history
        assert text(await ask(manager)) == text(before)
        assert manager.history.revision == revision


async def test_a_transcript_replayed_through_add_doubles_nothing(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        history = await manager.get_messages()
    async with opened(place) as manager:
        await feed(manager, history)
        assert await manager.get_messages() == history
        await manager.add_message({"role": "user", "content": history[0]["content"]})
        history = await manager.get_messages()
    changed, hint = (
        {**history[3], "content": "left out by the host"},
        {"role": "system", "content": "You were resumed."},
    )
    async with opened(place) as manager:
        await feed(manager, [hint, *history[:3], changed, *history[4:]])
        found = await manager.get_messages()
        assert found[: len(history)] == history
        assert [message["content"] for message in found[len(history) :]] == [hint["content"], changed["content"]]


async def test_a_reminder_that_a_session_began_with_is_new_once_it_is_at_work_again(place: Place) -> None:
    reminder = {"role": "system", "content": "Be brief.", "metadata": {"source": "hook"}}
    async with opened(place) as manager:
        await feed(manager, [reminder, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])
    async with opened(place) as manager:
        await feed(manager, [{"role": "user", "content": "q2"}, reminder])
        assert [m["content"] for m in await manager.get_messages()] == ["Be brief.", "q", "a", "q2", "Be brief."]


async def test_the_model_reads_nothing_of_what_a_clear_removed(place: Place) -> None:
    async with opened(place) as manager:
        await feed(manager, [user("the first secret"), user("the second secret")])
        await manager.set_messages([user("the second secret")])  # the first is archived by this edit
        await manager.clear()
        await feed(manager, [user("afresh"), user("edited"), user("later")])
        await manager.set_messages([user("afresh"), user("later")])
        assert [await manager.recall(f"m{seq}") for seq in range(1, 3)] == [None, None]
        assert (await manager.recall("m4") or {})["content"] == "edited"
    async with opened(place) as manager:
        tool = tool_of(manager)
        assert "the history has no message m2" in await refused(tool, "read", mark="m2")
        text = await recalled(tool, "read", mark="m1-m5")
        assert "secret" not in text
        assert "edited" in text  # what an edit removed since is still read


async def test_a_new_message_with_a_time_of_its_own_does_not_load_a_resumed_history(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), [user("go"), *rounds(80)])
    await ask(manager)
    manager = await again(manager, place)
    await manager.add_message({**user("next"), "metadata": {"timestamp": "2031-01-01T00:00:00.000+00:00"}})
    assert manager.snapshot().gap
    assert manager.snapshot()[-1].message["content"] == "next"
    await manager.close()
