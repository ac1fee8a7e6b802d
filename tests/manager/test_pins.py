"""Pins: a message and its round stay verbatim, within their share."""

from __future__ import annotations

import asyncio

import pytest

from amplifier_context_core import PinRefused
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, new_manager
from tests.messages import call, result, rounds, system, user, words, work

BUDGET = 4_000


async def test_a_view_that_no_compaction_gets_within_its_budget_is_clipped_but_for_the_rounds_of_pins() -> None:
    """The newest notice of a hook stays, and a call without result keeps a compaction from all after it."""
    budget = 1_600
    manager = await feed(new_manager(compact_threshold=0.3, target_usage=0.2), [system(words("rule", 200))])
    pinned, human = result("p", words("pinned", 300)), user(words("human", 940))
    await feed(manager, [call("p"), pinned])
    await manager.pin("m2")
    notice = user(words("notice", 2_700), metadata={"source": "hook", "hook_name": "h"})
    for message in (notice, call("open", content=words("open", 850)), human):
        await manager.add_message(message)
        view = await ask(manager, budget)
        assert [one["content"] for one in view if one.get("tool_call_id") == "p"] == [pinned["content"]]
    assert view[-1]["content"] == human["content"]


async def test_a_pin_beyond_the_share_is_refused_with_sizes_and_one_of_no_message_by_its_mark() -> None:
    manager = await feed(new_manager(), [*work(5), {"role": "user", "content": "word " * 1_600}])
    await manager.get_messages_for_request(BUDGET)
    with pytest.raises(PinRefused, match=r"m12 has 2,00\d tokens; pins hold 0 of the 1,000 they may fill .*25%.*4,000"):
        await manager.pin("m12")
    for mark in ("x", "m999"):
        with pytest.raises(PinRefused, match=mark):
            await manager.pin(mark)


async def test_pins_of_several_tasks_at_once_are_held_to_their_share_together() -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, BUDGET)
    pins = (manager.pin(f"m{number}") for number in range(3, 40, 2))
    refused = [problem for problem in await asyncio.gather(*pins, return_exceptions=True) if problem]
    assert refused
    assert all(isinstance(problem, PinRefused) for problem in refused)
    pinned = [row["mark"] for row in (await manager.explain())["rounds"] if row["rule"].startswith("pinned")]
    assert len(pinned) == len(range(3, 40, 2)) - len(refused)


async def test_a_pin_is_refused_when_the_round_that_stays_with_it_would_outgrow_the_share() -> None:
    talk = ConversationBuilder().user("Read both.")
    small, large = talk.call(("read", {"path": "small"}), ("read", {"path": "large"}))
    talk.result(small, "a few words").result(large, "word " * 900)
    manager = await feed(new_manager(), [*talk.messages, *rounds(10)])
    await ask(manager, BUDGET)
    with pytest.raises(PinRefused):
        await manager.pin("m3")
