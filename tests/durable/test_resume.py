"""Resuming: the session goes on as if it had never stopped, whatever its host does with the saved history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager, NotLoaded, StoreError
from amplifier_context_core.messages.reminders import REFERENCE_ONLY
from amplifier_context_core.messages.usage import Usage
from amplifier_context_core.rendering.rounds import rounds_with
from amplifier_context_core.stores import MemoryStore, open_store
from amplifier_context_core.view import shared_cache
from amplifier_context_recall.lacking import names_lacking_in
from amplifier_context_testing import EventRecorder, coding_session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.authors import make_manager
from tests.durable.sessions import again, compacted, loaded_entries, manager_on, opened, turns
from tests.managers import ask, feed
from tests.messages import call, rounds, text, user
from tests.places import BACKENDS, Place
from tests.recall.calls import recalled, refused, tool_of

pytestmark = pytest.mark.stores("jsonl")  # and SQLite with a model: what differs by store is the contract's


@pytest.mark.stores(*BACKENDS)
async def test_the_first_view_after_a_resume_is_the_last_one_before_byte_for_byte(place: Place) -> None:
    async with opened(place) as manager:
        before = await compacted(manager)
        history, original = await manager.get_messages(), await manager.recall("m20")
    async with opened(place) as manager:
        assert text(await manager.get_messages_for_request()) == text(before)
        assert await manager.recall("m20") == original
        assert await manager.recall("m99999") is None
        assert manager.history.snapshot().gap  # most of it was not even read
        assert await manager.get_messages() == history


async def test_it_is_so_too_when_the_process_was_killed(place: Place) -> None:
    if place.backend == "memory":
        pytest.skip("memory ends with its process")
    place.durability = "flush"
    killed = manager_on(place.store(), place.session_id(), on_conflict="fork")
    before = await compacted(killed)
    # Nothing is closed: the claim is still held, as it is for a while after a crash. A fork of it is what config asks.
    async with opened(place, on_conflict="fork") as manager:
        assert text(await manager.get_messages_for_request()) == text(before)
        assert manager.history.session_id != place.session_id()
    await killed.store.close()


@pytest.mark.digest
async def test_both_go_on_alike(place: Place) -> None:
    more = rounds(30, start=500)
    async with opened(place) as manager:
        await compacted(manager)
        await manager.close()
        twin = make_manager(manager.config, session_id="twin", store=MemoryStore())
        await compacted(twin)
    async with opened(place) as manager:
        for message in more:
            await manager.add_message(message)
            await twin.add_message(message)
            assert [m["content"] for m in await ask(manager)] == [m["content"] for m in await ask(twin)]
        assert manager.turn_count == twin.turn_count
        assert [entry.mark for entry in (await loaded_entries(manager))] == [entry.mark for entry in twin.snapshot()]


async def test_only_the_newest_entries_are_in_memory_until_all_are_asked_for(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        count = len(manager.snapshot())
    async with opened(place) as manager:
        await manager.get_messages_for_request()
        snapshot = manager.snapshot()
        assert len(snapshot) == count
        assert snapshot[-1].seq == count
        with pytest.raises(NotLoaded, match="await context"):
            snapshot[count // 3]
        await manager.load()
        assert manager.snapshot()[count // 3].seq == count // 3 + 1
        with pytest.raises(NotLoaded):
            snapshot[count // 3]  # a snapshot never changes


async def test_what_was_learned_pinned_and_shortened_is_there_again(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        answered = next(entry for entry in reversed(manager.snapshot()) if entry.answered_ids).answered_ids[0]
        small = next(e for e in manager.snapshot()[8:] if rounds_with({e.seq}, manager.snapshot())[e.seq].tokens < 800)
        await manager.pin(small.mark)
        await manager.compact_summary(answered, "in short")
        await manager.compact_summary("to_come", "of the future")
        manager.session.meter.report(1_000, Usage(1_500), ("anthropic", "m"))
        known = manager.session.meter.estimate(2_000, ("anthropic", "m"))
        view = await ask(manager)
    async with opened(place) as manager:
        assert text(await ask(manager)) == text(view)
        assert manager.compactor.directions.pins == {small.seq}
        assert manager.session.meter.estimate(2_000, ("anthropic", "m")) == known
        await feed(manager, [call("to_come"), {"role": "tool", "tool_call_id": "to_come", "content": "long " * 500}])
        for name in (answered, "to_come"):
            assert any(name in short for short in manager.compactor.directions.short_forms.known.values())


async def test_an_unreadable_checkpoint_is_reported_and_the_view_rebuilt(place: Place) -> None:
    async with opened(place) as manager:
        view = await compacted(manager)
        history = await manager.get_messages()
    store = place.store()
    found = json.loads(await store.load_checkpoint(place.session_id()) or b"")
    first, *others = found["views"]
    for state, reported in (
        ({"version": 2, "views": 3}, "rebuilt from the history"),
        ({**found, "views": [{**first, "seqs": first["seqs"][:-1]}, *others]}, "makes no sense"),
        ({**found, "by_budget": [[6_000, 99]]}, ""),
        ({**found, "covered_count": 99_999}, ""),
        ({**found, "turns_before": -5}, ""),
        ({**found, "leading_count": 50}, ""),
    ):
        await store.save_checkpoint(place.session_id(), 10, json.dumps(state).encode())
        await store.close()
        shared_cache.clear()
        manager = manager_on(place.store(), place.session_id())
        assert (await ask(manager))[-1] == view[-1]
        assert await manager.get_messages() == history
        assert any(reported in text for text in manager.warnings.texts) or not reported
        await manager.store.close()


class KeepsCheckpoints(MemoryStore):
    """A store that breaks its contract: it keeps a checkpoint whatever becomes of the history."""

    kept: bytes | None = None

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        await super().save_checkpoint(session_id, covered, data)
        self.kept = data

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        return self.kept


@pytest.mark.stores("memory")
async def test_a_checkpoint_that_covers_more_than_the_history_hides_no_new_message() -> None:
    """Its last entry is one that no view shows: nothing else shows that the history ends before it."""
    store = KeepsCheckpoints()
    manager = manager_on(store)
    await feed(manager, [*coding_session(60, 0), {**user("an original"), "metadata": {REFERENCE_ONLY: True}}])
    await ask(manager)
    sent = manager.compactor.last_sent
    length = len(manager.snapshot())
    assert sent
    assert sent.view.covered == length
    await manager.close()
    shared_cache.clear()
    await store.replace("s", length - 1, [])
    resumed = manager_on(store)
    await resumed.add_message(user("what came after"))
    assert "what came after" in text(await ask(resumed))
    await resumed.close()


async def test_a_cancelled_turn_is_shown_as_interrupted_after_a_kill_as_well(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, [{"role": "user", "content": "go"}, *rounds(2)[:3]])
    manager.history.on_cancelled()
    await manager.on_turn_complete()
    before = await ask(manager)
    await manager.store.close()  # the store alone: the manager says nothing more
    async with opened(place) as manager:
        assert text(await ask(manager)) == text(before)
        assert "interrupted" in text(before)


async def test_a_view_of_giants_without_a_checkpoint_is_the_same_after_a_resume(place: Place) -> None:
    """Its originals are many budgets, its view is not: nothing of it is distant history."""
    talk = ConversationBuilder().user("Find the bug.").say("DECISION-17: the port is 8443.").user("Go on.")
    for number in range(5):
        talk.round("read", {"path": f"{number}.log"}, f"line {number} of a log that is long\n" * 4_000)
    async with opened(place, max_tokens=8_000, output_share=0.1) as manager:
        before = await ask(await feed(manager, talk.messages))
        manager.history.on_cancelled()
        view = await ask(await feed(manager, [user("Continue.")]))
        assert view[: len(before)] == before, "a cancelled turn takes nothing from it"
        assert not manager.compactor.compactions
        # What is learned later changes no limit of this view.
        manager.session.meter.report(1_000, Usage(3_000), ("", ""))
    async with opened(place, max_tokens=8_000, output_share=0.1) as manager:
        assert text(await ask(manager)) == text(view)


@pytest.mark.stores("memory", "sqlite")
async def test_a_view_without_a_checkpoint_may_be_compacted_by_the_first_request_after_a_resume(place: Place) -> None:
    """Another budget has a checkpoint, so only the end of the history is loaded."""
    first = await feed(manager_on(place.store(), place.session_id()), turns(20))
    await first.get_messages_for_request(2_000)
    await first.get_messages_for_request(6_000)
    assert [view.checkpoint is None for view in first.compactor.cache.views] == [False, True]
    resumed = await again(first, place)
    await resumed.add_message(user("and now? " * 2_000))
    await ask(resumed, 6_000)
    assert resumed.compactor.cache.by_budget[6_000].checkpoint is not None
    await resumed.store.close()


async def test_a_turn_of_an_earlier_process_is_not_taken_for_a_cancelled_one(place: Place) -> None:
    manager = await feed(manager_on(place.store(), place.session_id()), turns(2))
    manager = await again(manager, place, on_interrupt="discard")
    await manager.ready()
    manager.history.on_prompt()
    manager.history.on_cancelled()
    await manager.on_turn_complete()
    assert len(await manager.get_messages()) == 4
    await manager.close()


@pytest.mark.stores("jsonl")
async def test_an_edit_after_one_of_two_checkpoints_is_never_covered_up(place: Place) -> None:
    store = place.store()
    manager = manager_on(store, place.session_id(), max_tokens=60_000)
    for number, message in enumerate(coding_session(300, 2)):
        await manager.add_message(message)
        if number % 20 == 0:
            await manager.get_messages_for_request(15_000 if number < 200 else 4_000)
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
    for budget in (4_000, 15_000):
        assert "put in by the host" in json.dumps(await ask(resumed, budget))
    await resumed.close()


async def _refuse(*given: Any) -> None:
    raise StoreError("the disk is full; make room")


@pytest.mark.stores("jsonl")
async def test_a_line_far_behind_its_side_calls_is_resumed_with_them(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id(), max_tokens=60_000)
    await feed(manager, rounds(1_000, output=300))
    view = await ask(manager, 60_000)
    for message in rounds(450, start=1_000, output=100):
        await manager.add_message(message)
        if message["role"] == "tool" and message["tool_call_id"].endswith("0"):
            await manager.get_messages_for_request(6_000)
    view = await ask(manager, 60_000)
    manager = await again(manager, place, max_tokens=60_000)
    assert json.dumps(await ask(manager, 60_000)) == json.dumps(view)
    await manager.close()


@pytest.mark.stores("memory", "sqlite")
async def test_a_short_form_registered_after_a_resume_leaves_what_was_sent_before_as_it_is(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, [user("go"), call("c1"), {"role": "tool", "tool_call_id": "c1", "content": "line\n" * 8_000}])
    before = await ask(manager)
    manager = await again(manager, place)
    await manager.compact_summary("c1", "in short")
    assert await ask(manager) == before
    await manager.store.close()


async def test_names_that_the_view_lacks_are_the_same_after_a_resume(place: Place) -> None:
    async with opened(place) as manager:
        await compacted(manager)
        before = await names_lacking_in(manager, ["m3"])
        assert before
    async with opened(place) as manager:
        assert await names_lacking_in(manager, ["m3"]) == before
        assert manager.history.snapshot().gap, "the history need not be loaded for it"


async def test_a_view_that_served_many_budgets_is_one_view_after_a_resume(place: Place) -> None:
    budgets = range(90_000, 90_009)
    async with opened(place) as manager:
        await feed(manager, rounds(5))
        for budget in (100_000, *budgets):
            await ask(manager, budget)
        before = manager.compactor.cache.by_budget
    async with opened(place) as manager:
        await ask(manager, 100_000)
        after = manager.compactor.cache.by_budget
        assert after.keys() == before.keys()
        assert len(set(after.values())) == len(set(before.values())) == 1


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
