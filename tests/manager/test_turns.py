"""Turns, cancelled ones too, and what else hosts and loops do to a context manager (docs/kernel.md)."""

from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core.kernel import mount_manager
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, marks, new_manager
from tests.messages import bare, call, result, says, shared_prefix, system, text, user, work


async def test_human_messages_one_after_the_other_are_turns_of_their_own_added_one_by_one_or_at_once() -> None:
    talk = ConversationBuilder().system("Prompt.").user("One.").user("Two.").say("Both.").user("Three.")
    talk.round("read", {}, "x")
    at_once = new_manager()
    assert at_once.turn_count == 0
    await at_once.set_messages(talk.messages)
    for each in (await feed(new_manager(), talk.messages), at_once):
        assert [entry.turn_id for entry in each.snapshot()] == ["a0", "u1", "u2", "a2", "u3", "a3", "a3"]
        assert each.turn_count == 3


async def test_an_interrupt_takes_the_unfinished_turn_out() -> None:
    talk = ConversationBuilder().user("One.").say("Yes.").user("Two.").round("read", {}, "x")
    manager = await feed(new_manager(), talk.messages)
    outcome = await manager.interrupt()
    assert outcome == {"interrupted": True, "removed": ["m3", "m4", "m5"]}
    assert bare(await manager.get_messages()) == talk.messages[:2]
    assert manager.turn_count == 1


async def test_an_assistants_message_is_created_when_it_was_asked_for_and_never_completed_before() -> None:
    times = iter([f"2030-01-01T00:00:{second:02d}.000+00:00" for second in range(60)])
    manager = new_manager()
    manager._clock = manager.history._clock = lambda: next(times)  # pyright: ignore[reportPrivateUsage]
    await feed(manager, [user("Hi.")])
    await ask(manager, 4_000)
    await feed(manager, [says("Hello.")])
    answer = manager.snapshot()[-1]
    assert answer.created < answer.completed
    await ask(await feed(manager, [user("Well?")]), 4_000)
    stamp = {"timestamp": "2020-01-01T00:00:00.000+00:00"}  # of a recorded answer
    await feed(manager, [says("Well.", metadata=stamp)])
    answer = manager.snapshot()[-1]
    assert answer.created <= answer.completed == stamp["timestamp"]


BUDGET = 4_000
INTERRUPTED = "[interrupted"
CLOSING = says("The turn was cancelled.")
NEXT = user("Only the fast suite.")
DONE = [*work(2), says()]
# A turn with a finished round and one whose second call is still open.
OPEN = [user("Run everything."), call("a"), result("a", "fast: passed"), call("b", "c"), result("b", "slow: passed")]
# What a loop and the kernel do: the loop reports, may close, completes; the kernel reports once more.
SILENT: list[Any] = ["cancel:completed", "orchestrator:complete", "cancel:completed"]
CLOSED: list[Any] = ["cancel:completed", CLOSING, "orchestrator:complete", "cancel:completed"]


class Cancelled:
    """A manager in a session, to which a host and the kernel report."""

    def __init__(self, on_interrupt: str) -> None:
        self.manager = new_manager(on_interrupt=on_interrupt)
        self.coordinator = MockCoordinator()

    async def take(self, *reports: Any) -> None:
        """Events by their names, and messages."""
        for one in reports:
            await (self.coordinator.hooks.emit(one, {}) if isinstance(one, str) else self.manager.add_message(one))

    async def outputs(self) -> list[str]:
        return [message["content"] for message in await ask(self.manager, BUDGET) if message["role"] == "tool"]


async def cancelled(on_interrupt: str, *reports: Any) -> Cancelled:
    session = Cancelled(on_interrupt)
    await mount_manager(session.coordinator, session.manager, "context-test")
    await session.take(*reports)
    return session


@pytest.mark.parametrize("reports", [SILENT, CLOSED], ids=["silent", "closing message"])
@pytest.mark.parametrize("policy", ["keep", "repair"])
async def test_keep_and_repair_leave_the_cancelled_turn_and_repair_answers_its_calls_in_the_view(
    policy: str, reports: list[Any]
) -> None:
    session = await cancelled(policy, *OPEN, *reports, NEXT)
    assert bare(await session.manager.get_messages()) == [*OPEN, *(one for one in reports if one is CLOSING), NEXT]
    await session.take(call("d"), user("Well?"))  # open in the next turn
    shown = await session.outputs()
    assert [one.startswith(INTERRUPTED) for one in shown] == [False, False, policy == "repair", False]
    await session.take(result("c", "huge: passed"))
    assert (await session.outputs())[:3] == ["fast: passed", "slow: passed", "huge: passed"], "late results count"


@pytest.mark.parametrize(
    "reports",
    [SILENT, CLOSED, SILENT[:1], SILENT[1:]],
    ids=["silent", "closing message", "never completed", "the kernel alone, and last"],  # the last ends by an exception
)
async def test_discard_takes_the_cancelled_turn_out_closing_message_and_all_and_no_other(reports: list[Any]) -> None:
    session = await cancelled("discard")
    for times in (1, 2):
        await session.take(*OPEN, *reports, NEXT, says(), "orchestrator:complete")
        assert bare(await session.manager.get_messages()) == [NEXT, says()] * times
    await ask(session.manager, BUDGET)


async def test_a_cancellation_before_the_prompt_was_stored_takes_no_finished_turn_out() -> None:
    session = await cancelled("discard", *DONE, "orchestrator:complete", "prompt:submit")
    await session.take("cancel:completed", "cancel:completed", NEXT)  # before the loop stored the prompt
    assert bare(await session.manager.get_messages()) == [*DONE, NEXT]


async def test_a_turn_taken_out_after_its_cancellation_leaves_no_trace_on_the_next() -> None:
    session = await cancelled("repair", *DONE, *OPEN, *SILENT)
    await session.manager.interrupt()
    await session.take(NEXT, call("d"), user("Well?"))
    assert INTERRUPTED not in text(await ask(session.manager, BUDGET))


async def test_another_system_message_takes_the_place_of_the_first_and_none_leaves_it() -> None:
    manager = await feed(new_manager(), [system("You are an agent."), *work(3)])
    known = marks(manager)
    rest = (await manager.get_messages())[1:]
    await manager.set_messages([system("You are another."), *rest])
    assert bare(await manager.get_messages()) == bare([system("You are another."), *rest])
    assert marks(manager)[1:] == known[1:]
    await manager.set_messages(rest)  # as hosts save a transcript
    assert bare(await manager.get_messages()) == bare([system("You are another."), *rest])


async def test_a_repair_after_the_checkpoint_leaves_the_checkpoint() -> None:
    manager = await feed(new_manager(), work(60))
    before = await ask(manager, BUDGET)
    compactions = (await manager.explain())["compactions"]
    await feed(manager, [call("call_lost"), user()])
    await ask(manager, BUDGET)
    repaired = await manager.get_messages()
    repaired.insert(-1, result("call_lost", "inserted by the host"))
    await manager.set_messages(repaired)
    after = await ask(manager, BUDGET)
    assert shared_prefix(before, after) == len(before)
    assert after[-2]["content"] == "inserted by the host"
    assert (await manager.explain())["compactions"] == compactions


async def test_what_comes_after_a_replay_or_has_another_time_is_new_even_when_it_repeats_the_last_message() -> None:
    parent = await feed(new_manager(), [*work(2), user("continue")])
    saved = await parent.get_messages()
    manager = new_manager()
    await manager.set_messages(saved)
    await feed(manager, saved)
    await manager.add_message(user("continue"))
    assert bare(await manager.get_messages()) == [*bare(saved), user("continue")]
    await manager.set_messages(await manager.get_messages())
    await manager.add_message(user("continue", metadata={"timestamp": "2031-01-01T00:00:00.000+00:00"}))
    assert len(await manager.get_messages()) == len(saved) + 2


async def test_what_cannot_be_stored_stores_nothing_of_it_nor_of_its_list() -> None:
    manager = await feed(new_manager(), work(1))
    before, known = await manager.get_messages(), marks(manager)
    for bad in ({"role": "tool", "content": "x"}, {"role": "user", "content": {1, 2}}, None, "x"):
        with pytest.raises(ValueError, match="was not stored"):
            await manager.add_message(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"messages\[3\]\.role"):
        await manager.set_messages([*before, {"role": "robot", "content": "x"}])
    assert (await manager.get_messages(), marks(manager)) == (before, known)
