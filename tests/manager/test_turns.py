"""Turns: a human message and all that follows until the next one."""

from __future__ import annotations

from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, marks, new_manager
from tests.messages import bare, rounds, work


def turns(manager: object) -> list[str]:
    return [entry.turn_id for entry in manager.snapshot()]  # type: ignore[attr-defined]


async def test_human_messages_one_after_the_other_are_turns_of_their_own() -> None:
    talk = ConversationBuilder().user("One.").user("Two.").say("Both.").user("Three.").round("read", {}, "x")
    manager = new_manager()
    assert manager.turn_count == 0
    await feed(manager, talk.messages)
    assert turns(manager) == ["u1", "u2", "a2", "u3", "a3", "a3"]
    assert manager.turn_count == 3


async def test_a_transcript_set_at_once_has_the_turns_it_has_added_one_by_one() -> None:
    talk = ConversationBuilder().system("Prompt.").user("One.").work(2, "one").say("Yes.").user("Two.").say("Yes.")
    one_by_one = await feed(new_manager(), talk.messages)
    at_once = new_manager()
    await at_once.set_messages(talk.messages)
    assert turns(at_once) == turns(one_by_one)
    assert at_once.turn_count == one_by_one.turn_count == 2


# --- interrupting -----------------------------------------------------------------------------------------------------


async def test_an_interrupt_takes_the_unfinished_turn_out() -> None:
    talk = ConversationBuilder().user("One.").say("Yes.").user("Two.").round("read", {}, "x")
    manager = await feed(new_manager(), talk.messages)
    outcome = await manager.interrupt()
    assert outcome == {"interrupted": True, "removed": ["m3", "m4", "m5"]}
    assert bare(await manager.get_messages()) == talk.messages[:2]
    assert manager.turn_count == 1


async def test_marks_of_an_interrupted_turn_are_never_given_again() -> None:
    manager = await feed(new_manager(), ConversationBuilder().user("One.").say("Yes.").user("Two.").messages)
    await manager.interrupt()
    await feed(manager, [{"role": "user", "content": "Two, otherwise."}])
    assert marks(manager) == ["m1", "m2", "m4"]
    assert (await manager.recall("m3") or {})["content"] == "Two."


async def test_an_interrupt_of_a_turn_that_a_checkpoint_covers_rebuilds_the_view() -> None:
    manager = await feed(new_manager(), [*work(5), {"role": "assistant", "content": "Done."}])
    await feed(manager, [{"role": "user", "content": "FORGET THIS"}, *rounds(100, start=100)])
    await ask(manager, 4_000)
    await manager.interrupt()
    view = await ask(manager, 4_000)
    assert len(view) == 12
    assert not any("FORGET THIS" in str(message["content"]) for message in view)


# --- what entries say -------------------------------------------------------------------------------------------------


async def test_entries_carry_id_session_and_times() -> None:
    manager = await feed(new_manager(session_id="session-7"), work(1))
    for number, entry in enumerate(manager.snapshot(), 1):
        assert (entry.mark, entry.session_id) == (f"m{number}", manager.session_id)
        assert entry.created <= entry.completed
        assert entry.completed == entry.message["metadata"]["timestamp"]


async def test_an_assistants_message_is_created_when_it_was_asked_for() -> None:
    times = iter([f"2030-01-01T00:00:{second:02d}.000+00:00" for second in range(60)])
    manager = new_manager()
    manager._clock = manager.history._clock = lambda: next(times)  # pyright: ignore[reportPrivateUsage]
    await feed(manager, [{"role": "user", "content": "Hi."}])
    await ask(manager, 4_000)
    await feed(manager, [{"role": "assistant", "content": "Hello."}])
    answer = manager.snapshot()[-1]
    assert answer.created < answer.completed


async def test_a_recorded_answer_with_its_own_older_time_is_not_completed_before_it_was_created() -> None:
    manager = await feed(new_manager(), [{"role": "user", "content": "Hi."}])
    await ask(manager, 4_000)
    stamp = {"timestamp": "2020-01-01T00:00:00.000+00:00"}
    await feed(manager, [{"role": "assistant", "content": "Hello.", "metadata": stamp}])
    answer = manager.snapshot()[-1]
    assert answer.created <= answer.completed == stamp["timestamp"]
