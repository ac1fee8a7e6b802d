"""Strategies that make tool outputs smaller: truncated, cleared, clipped, or superseded by a later read."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core import ClearToolOutputs, ClipToolOutputs, Strategy, SupersedeStaleReads, TruncateToolOutputs
from tests.core.lists import LONG, talk
from tests.messages import Message, call, result, says, user


def test_results_in_the_blocks_of_a_tool_message_are_truncated_in_place() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": LONG} for id in "ab"]
    done = TruncateToolOutputs(100).compact([user(), call("a", "b"), {"role": "tool", "content": blocks}])
    assert [one["tool_use_id"] for one in done[2]["content"]] == ["a", "b"]
    assert all(len(one["content"]) <= 100 for one in done[2]["content"])


@pytest.mark.parametrize("keep", [0, 1, 3, 6, 9])
def test_all_outputs_but_the_newest_are_cleared_and_say_where_they_are(keep: int) -> None:
    messages = talk()
    done = ClearToolOutputs(keep).compact(messages)
    outputs = [(b["content"], a["content"]) for b, a in zip(messages, done, strict=True) if b["role"] == "tool"]
    cleared = max(0, 7 - keep)
    for before, after in outputs[:cleared]:
        assert "cleared" in after
        assert f"{len(before):,} characters" in after
    assert all(before == after for before, after in outputs[cleared:])
    assert ("m4" in done[3]["content"]) == (cleared > 0)


@pytest.mark.parametrize("bad", [-1, True, 1.5, "2"])
def test_an_impossible_number_to_keep_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="keep_last"):
        ClearToolOutputs(bad)


@pytest.mark.parametrize("strategy", [ClearToolOutputs(0), ClipToolOutputs(200)], ids=repr)
def test_a_short_form_the_tool_made_is_used_in_place_of_a_generic_one(strategy: Strategy) -> None:
    messages = [user(), call("a"), result("a", LONG, metadata={"compact_summary": "two hundred rows"}), says()]
    done = strategy.compact(messages)
    assert done[2]["content"] == "two hundred rows"
    assert strategy.compact(done) is done


def reading(*paths: str) -> list[Message]:
    messages = [user()]
    for number, path in enumerate(paths):
        messages += [call(f"c{number}", path=path), result(f"c{number}", f"{path} version {number}\n{LONG}")]
    return [*messages, says()]


def test_of_the_same_call_made_again_only_the_latest_result_is_kept() -> None:
    messages = reading("a", "b", "a", "c", "a")
    done = SupersedeStaleReads().compact(messages)
    assert "m10" in done[2]["content"]
    assert "m10" in done[6]["content"]
    for kept in (4, 8, 10):
        assert done[kept] is messages[kept]


def test_another_tool_or_other_arguments_are_another_call() -> None:
    messages = [user(), call("a", name="read"), result("a", LONG), call("b", name="write"), result("b", LONG), says()]
    assert SupersedeStaleReads().compact(messages) is messages
    different = reading("a", "b", "c")
    assert SupersedeStaleReads().compact(different) is different


def test_arguments_in_another_spelling_are_the_same_call() -> None:
    blocks = [{"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}]
    listed = [{"id": "b", "tool": "read", "arguments": {"path": "x"}}]
    messages = [user(), says(blocks), result("a", LONG), says("", tool_calls=listed), result("b", LONG), says()]
    assert "superseded" in (SupersedeStaleReads().compact(messages))[2]["content"]
