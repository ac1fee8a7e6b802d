"""Strategies that make tool outputs smaller: truncated, cleared, clipped, or superseded by a later read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_core import (
    ClearToolOutputs,
    ClipToolOutputs,
    Strategy,
    SupersedeStaleReads,
    TruncateToolOutputs,
)
from tests.core.lists import LONG, PINNED, talk
from tests.messages import Message, block, call, result, says, user

# -- TruncateToolOutputs -----------------------------------------------------------------------------------------------


async def test_long_outputs_are_clipped_in_place_at_any_age() -> None:
    messages = talk()
    done = await TruncateToolOutputs(300).compact(messages)
    assert [m["role"] for m in done] == [m["role"] for m in messages]
    for before, after in zip(messages, done, strict=True):
        if before["role"] == "tool":
            assert len(after["content"]) <= 300
            assert after["content"].endswith("row 0199 of the table")
            assert {**after, "content": ""} == {**before, "content": ""}
        else:
            assert after is before


async def test_truncating_is_idempotent_and_gives_the_same_object_the_second_time() -> None:
    for size in (10, 47, 100, 1_000):
        once = await TruncateToolOutputs(size).compact(talk())
        assert await TruncateToolOutputs(size).compact(once) is once
        assert await TruncateToolOutputs(size + 500).compact(once) is once


async def test_outputs_in_blocks_are_truncated_too() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "a", "content": LONG}, block(LONG)]
    done = await TruncateToolOutputs(100).compact([user(), call("a"), user(blocks)])
    assert len(done[2]["content"][0]["content"]) <= 100
    assert done[2]["content"][1] == block(LONG)


@pytest.mark.parametrize("size", [99, 103])
async def test_no_output_is_longer_than_it_may_be_by_a_character(size: int) -> None:
    done = await TruncateToolOutputs(size).compact([user(), call("a"), result("a", "x" * (size + 1))])
    assert len(done[2]["content"]) <= size


async def test_a_pinned_output_is_not_truncated() -> None:
    messages = [user(), call("a"), result("a", LONG, metadata=PINNED), says()]
    assert (await TruncateToolOutputs(100).compact(messages))[2] == messages[2]


async def test_results_in_the_blocks_of_a_tool_message_are_truncated_in_place() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": LONG} for id in "ab"]
    done = await TruncateToolOutputs(100).compact([user(), call("a", "b"), {"role": "tool", "content": blocks}])
    assert [one["tool_use_id"] for one in done[2]["content"]] == ["a", "b"]
    assert all(len(one["content"]) <= 100 for one in done[2]["content"])


@pytest.mark.parametrize("make", [TruncateToolOutputs, ClipToolOutputs])
@pytest.mark.parametrize("bad", [0, -1, True, 5.5, "100"])
def test_an_impossible_length_is_refused(make: Callable[[Any], Strategy], bad: Any) -> None:
    with pytest.raises(ValueError, match="max_chars"):
        make(bad)


# -- ClearToolOutputs and ClipToolOutputs ------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 3, 6])
async def test_all_outputs_but_the_newest_are_cleared_and_say_where_they_are(keep: int) -> None:
    messages = talk()
    done = await ClearToolOutputs(keep).compact(messages)
    outputs = [(b["content"], a["content"]) for b, a in zip(messages, done, strict=True) if b["role"] == "tool"]
    for before, after in outputs[: 7 - keep]:
        assert "cleared" in after
        assert f"{len(before):,} characters" in after
    assert all(before == after for before, after in outputs[7 - keep :])
    assert "m4" in done[3]["content"]


async def test_more_to_keep_than_there_is_clears_nothing() -> None:
    messages = talk()
    assert await ClearToolOutputs(100).compact(messages) is messages


@pytest.mark.parametrize("bad", [-1, True, 1.5, "2"])
def test_an_impossible_number_to_keep_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="keep_last"):
        ClearToolOutputs(bad)


async def test_an_empty_output_is_not_cleared() -> None:
    messages = [user(), call("a"), result("a", ""), says()]
    assert await ClearToolOutputs(0).compact(messages) is messages


@pytest.mark.parametrize("strategy", [ClearToolOutputs(0), ClipToolOutputs(200)], ids=repr)
async def test_a_short_form_the_tool_made_is_used_in_place_of_a_generic_one(strategy: Strategy) -> None:
    messages = [user(), call("a"), result("a", LONG, metadata={"compact_summary": "two hundred rows"}), says()]
    done = await strategy.compact(messages)
    assert done[2]["content"] == "two hundred rows"
    assert await strategy.compact(done) is done


@pytest.mark.parametrize("strategy", [ClearToolOutputs(0), ClipToolOutputs(50)], ids=repr)
async def test_a_short_form_longer_than_the_output_is_not_used(strategy: Strategy) -> None:
    messages = [user(), call("a"), result("a", "short " * 5, metadata={"compact_summary": LONG}), says()]
    assert (await strategy.compact(messages))[2]["content"] == "short " * 5


async def test_old_outputs_are_clipped_to_head_and_tail() -> None:
    done = await ClipToolOutputs(200).compact(talk())
    assert all(len(m["content"]) <= 200 for m in done if m["role"] == "tool")
    assert done[3]["content"].startswith("0\nrow 0000")
    assert "m4" in done[3]["content"]


# -- SupersedeStaleReads -----------------------------------------------------------------------------------------------


def reading(*paths: str) -> list[Message]:
    messages = [user()]
    for number, path in enumerate(paths):
        messages += [call(f"c{number}", path=path), result(f"c{number}", f"{path} version {number}\n{LONG}")]
    return [*messages, says()]


async def test_of_the_same_call_made_again_only_the_latest_result_is_kept() -> None:
    messages = reading("a", "b", "a", "c", "a")
    done = await SupersedeStaleReads().compact(messages)
    assert "m10" in done[2]["content"]
    assert "m10" in done[6]["content"]
    for kept in (4, 8, 10):
        assert done[kept] is messages[kept]


async def test_another_tool_or_other_arguments_are_another_call() -> None:
    messages = [user(), call("a", name="read"), result("a", LONG), call("b", name="write"), result("b", LONG), says()]
    assert await SupersedeStaleReads().compact(messages) is messages
    different = reading("a", "b", "c")
    assert await SupersedeStaleReads().compact(different) is different


async def test_a_later_call_that_was_not_answered_supersedes_nothing() -> None:
    messages = [user(), call("a"), result("a", LONG), call("b"), user("Stop.")]
    assert await SupersedeStaleReads().compact(messages) is messages


async def test_arguments_in_another_spelling_are_the_same_call() -> None:
    blocks = [{"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}]
    listed = [{"id": "b", "tool": "read", "arguments": {"path": "x"}}]
    messages = [user(), says(blocks), result("a", LONG), says("", tool_calls=listed), result("b", LONG), says()]
    assert "superseded" in (await SupersedeStaleReads().compact(messages))[2]["content"]


async def test_two_equal_calls_in_one_message_do_not_make_each_other_stale() -> None:
    messages = [user(), call("a", "b"), result("a", "older\n" + LONG), result("b", "newer\n" + LONG), says()]
    assert await SupersedeStaleReads().compact(messages) is messages


async def test_of_two_equal_calls_of_one_id_one_result_is_kept() -> None:
    messages = [user(), call("a", "a"), result("a", "older\n" + LONG), result("a", "newer\n" + LONG), says()]
    done = await SupersedeStaleReads().compact(messages)
    assert any(LONG in str(m["content"]) for m in done)


async def test_a_stale_read_that_is_pinned_stays() -> None:
    messages = reading("a", "a")
    messages[2]["metadata"] = PINNED
    assert await SupersedeStaleReads().compact(messages) is messages
