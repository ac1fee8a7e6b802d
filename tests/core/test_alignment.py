"""Alignment: an echo is distinguished from an edit, and every message keeps its identity through both."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.transcript.alignment import Order, align
from amplifier_context_core.transcript.entry import Entry
from tests.core.drafts import transcript
from tests.messages import Message, block, call, result, says, system, user

HISTORY = (
    system("You are careful."),
    user("Fix the loader."),
    says([{"type": "thinking", "thinking": "hm", "signature": "s"}, block("Reading.")], tool_calls=None),
    call("a"),
    result("a", "out"),
    system("todo: 1", metadata={"source": "hook", "hook_name": "todo"}),
    says("Done."),
    user("Thanks."),
)


def aligned(stored: tuple[Message, ...] | list[Message], incoming: list[Message]) -> Order:
    return align(list(transcript(stored).snapshot()), [parse_message(message) for message in incoming])


def resulting_order(found: Order) -> list[int | str]:
    """Seqs of what stays, texts of what is new."""
    return [item.seq if isinstance(item, Entry) else str(item[0].get("content")) for item in found]


def test_another_tool_is_another_call() -> None:
    """With the same arguments too: sessions reuse ids, so both may be stored."""
    assert resulting_order(aligned([call("a", name="read")], [call("a", name="bash")])) == ["None"]


def test_an_empty_list_empties_the_history() -> None:
    assert aligned(HISTORY, []) == []
    assert aligned([], []) == []


def test_the_same_text_at_another_time_is_an_echo_where_nothing_matches_better() -> None:
    stamped = user("x", metadata={"timestamp": "2026-01-01T00:00:01.000+00:00"})
    found = aligned([stamped], [user("x", metadata={"timestamp": "2027-01-01T00:00:01.000+00:00"})])
    assert resulting_order(found) == [1]


def test_large_lists_are_aligned_too() -> None:
    many = [user(f"message {number % 700}") for number in range(3_000)]
    found = aligned(many, [*many[1_000:2_000], *many[2_500:], user("new")])
    kept = [item.seq for item in found if isinstance(item, Entry)]
    assert len(found) == 1_501
    assert len(kept) == 1_500
    assert kept == sorted(kept)


@pytest.mark.parametrize("stamp", [1732132.5, 1732132, {"at": "2026"}, True])
async def test_a_time_that_is_no_text_is_stored_as_it_came(stamp: Any) -> None:
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=Plugins())
    await manager.add_message(user("x", metadata={"timestamp": stamp}))
    assert await manager.get_messages() == [user("x", metadata={"timestamp": stamp})]
