"""Views: valid always, stable between compactions, never over budget, and nothing but a rendering of history."""

from __future__ import annotations

import asyncio

import pytest

from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_core.rendering.renderer import Renderer
from amplifier_context_core.transcript.transcript import Snapshot
from amplifier_context_core.view.view import View
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, new_manager
from tests.messages import Message, call, rounds, says, shared_prefix, size, text, user, work

BUDGET = 4_000


async def test_a_system_prompt_alone_is_given_alone() -> None:
    manager = await feed(new_manager(), [{"role": "system", "content": "You wait."}])
    assert await manager.get_messages_for_request(BUDGET) == [{"role": "system", "content": "You wait."}]


async def test_a_view_whose_rendering_was_cancelled_shows_what_another_shows() -> None:
    """A result that answers calls of two old rounds moves all rounds behind them."""
    both = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": id} for id in "ab"]}
    talk = [user(), call("a"), call("b"), *(says(str(number)) for number in range(1_200)), both, says("Done.")]
    history = list((await feed(new_manager(), talk)).snapshot())
    early, whole = Snapshot.of(history[:-2]), Snapshot.of(history)
    disturbed, calm = (View(None, 1_000_000, Renderer(approx_token_counter, 10_000), keep=()) for _ in range(2))
    await disturbed.update(early, len(early), frozenset())
    disturbed.tail.add(history[-2])
    task = asyncio.create_task(disturbed.tail.render())
    await asyncio.sleep(0)
    assert task.cancel()
    await asyncio.wait([task])
    assert disturbed.tail.is_stale
    for view in (disturbed, calm):
        assert await view.update(whole, len(whole), frozenset())
    assert [one.message for one in disturbed.messages()] == [one.message for one in calm.messages()]
    assert (disturbed.tokens, disturbed.recalled) == (calm.tokens, calm.recalled)


async def test_a_history_that_begins_with_no_human_gets_a_constant_first_line() -> None:
    greetings = ("Welcome!", "Good day!")
    views = [await ask(await feed(new_manager(), [says(one), user("Hi.")]), BUDGET) for one in greetings]
    assert views[0][0]["role"] == "user"
    assert views[0][0] == views[1][0]


async def test_what_is_open_at_a_compaction_is_answered_in_its_place_later() -> None:
    call, result = rounds(1, start=900)
    manager = await feed(new_manager(), [*work(60), call])
    before = await ask(manager, BUDGET)
    assert before[-1]["content"].startswith("[no result")
    await feed(manager, [result])
    after = await ask(manager, BUDGET)
    assert shared_prefix(before, after) == len(before) - 1
    assert after[-1]["content"] == result["content"]


async def test_a_giant_call_that_was_never_answered_is_clipped_to_the_budget_like_any_other() -> None:
    talk = ConversationBuilder().user("Write it.")
    talk.call(("write", {"path": "a.py", "text": "line of code\n" * 400}))
    talk.user("Stop. Continue later.")
    view = await (await feed(new_manager(), talk.messages)).get_messages_for_request(700)
    assert check_request(view) == []
    assert size(view) <= 700


@pytest.mark.parametrize("auto", [True, False])
async def test_a_compaction_comes_at_the_threshold_else_at_the_hard_limit_and_goes_down_to_the_target(
    auto: bool,
) -> None:
    manager = await feed(new_manager(compact_threshold=0.6, target_usage=0.3, auto_compact=auto), [user("Work.")])
    sizes: list[int] = []
    while not manager.compactor.compactions:
        await feed(manager, rounds(1, start=len(sizes)))
        sizes.append(size(await ask(manager, BUDGET)))
    assert max(sizes) <= 0.6 * BUDGET if auto else max(sizes) > 0.95 * BUDGET
    assert sizes[-1] <= 0.3 * BUDGET + 200


async def test_merge_consecutive_gives_strictly_alternating_roles() -> None:
    messages = [user("One."), user("Two."), says("Three."), says("Four."), user("Five.")]
    view = await ask(await feed(new_manager(merge_consecutive=True), messages), BUDGET)
    assert [message["role"] for message in view] == ["user", "assistant", "user"]
    assert view[0]["content"] == "One.\n\nTwo."


async def test_the_opening_message_comes_after_instructions_that_were_sent_before_it() -> None:
    hidden = {"role": "user", "content": "x", "metadata": {"amplifier_public_reference_only": True}}
    hook = {"role": "developer", "content": "A rule.", "metadata": {"source": "hook"}}
    manager = await feed(new_manager(), [hidden, hook])
    before = await manager.get_messages_for_request(BUDGET)
    await feed(manager, [{"role": "assistant", "content": "I begin."}])
    view = await ask(manager, BUDGET)
    assert [message["role"] for message in view] == ["developer", "user", "assistant"]
    assert view[: len(before)] == before


def logs(number: int) -> list[Message]:
    """Outputs of which each alone is above the budget; views show them clipped."""
    talk = ConversationBuilder().user("Find the bug.").say("DECISION-17: the port is 8443.").user("Go on.")
    for place in range(number):
        talk.round("read", {"path": f"{place}.log"}, f"line {place} of a log that is long\n" * 4_000)
    return talk.messages


async def test_a_cancelled_turn_takes_nothing_from_a_view_whose_originals_are_giants() -> None:
    manager = await feed(new_manager(output_share=0.1), logs(5))
    before = await ask(manager, 8_000)
    assert not manager.compactor.compactions
    manager.history.on_cancelled()
    await feed(manager, [{"role": "user", "content": "Continue."}])
    assert (await ask(manager, 8_000))[: len(before)] == before


async def test_an_imported_giant_is_folded_and_every_round_is_accounted_for() -> None:
    messages = work(2_000)
    messages[800:800] = [{"role": "user", "content": "Never touch auth.py."}]
    manager = new_manager()
    await manager.set_messages(messages)
    view = await ask(manager, BUDGET)
    assert " rounds left out]" in text(view)
    report = await manager.explain()
    assert report["compactions"] == 1
    spans = [(int(row["mark"][1:]), int(row["to"][1:])) for row in report["rounds"] if row["state"] != "dropped"]
    assert all(any(first <= seq <= last for first, last in spans) for seq in range(1, len(messages) + 1))


@pytest.mark.parametrize("which", ["first", "middle", "last"])
async def test_a_round_pinned_out_of_a_chapter_leaves_it_and_compactions_go_on(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, BUDGET)
    last = manager.compactor.last_sent
    assert last is not None
    [chapter, *_] = [segment for segment in last.view.segments() if segment.chapter]
    assert chapter.chapter is not None
    described = [entry.first for entry in chapter.chapter.entries]
    seq = {"first": described[0], "middle": described[len(described) // 2], "last": described[-1]}[which]
    await manager.pin(f"m{seq}")
    await feed(manager, rounds(60, start=100))
    view = await ask(manager, BUDGET)
    assert any(message.get("tool_calls") and f"call_{(seq - 2) // 2}" in text([message]) for message in view)
    report = await manager.explain()
    assert len([row for row in report["rounds"] if int(row["mark"][1:]) <= seq <= int(row["to"][1:])]) == 1
    assert not [row for row in report["rounds"] if row["state"] == "dropped"]
    assert not [record for record in caplog.records if "skipped" in record.getMessage()]
    await manager.pin(f"m{seq}", pinned=False)
    compactions = manager.compactor.compactions
    await ask(await feed(manager, rounds(60, start=200)), BUDGET)
    assert manager.compactor.compactions > compactions
    assert not [record for record in caplog.records if "skipped" in record.getMessage()]
