"""States: the newest todo list, plan or approval of a tool is recognized, stays verbatim and replaces the older."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_core.compaction.protected import Protection, mark_protected
from amplifier_context_core.compaction.states import state_key, states_of, writes_only_states
from amplifier_context_core.compaction.strategies import Goal, SupersedeStaleReads
from amplifier_context_core.messages.parsing import Call
from tests.core.drafts import draft, rounds, segments
from tests.messages import Message, call, result, says, user

ITEMS = [{"content": "Read the parser", "status": "completed"}, {"content": "Fix it", "status": "in_progress"}]
PLAN = "1. Read the parser.\n2. Fix the tokens.\n3. Run the tests."


def writes(id: str, name: str = "todo_write", text: Any = None, **arguments: Any) -> Message:
    """An assistant message with one call of a tool."""
    function = {"name": name, "arguments": json.dumps(arguments or {"todos": ITEMS})}
    return {"role": "assistant", "content": text, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def test_a_call_with_arguments_of_megabytes_writes_no_state_and_is_not_parsed() -> None:
    text = json.dumps({"todos": ITEMS, "notes": "文" * 2_000_000}, ensure_ascii=False)
    begun = time.thread_time()
    assert not state_key(Call("c1", "todo_write", text))
    assert time.thread_time() - begun < 0.02  # seconds; 0.06 if it is parsed
    assert state_key(Call("c1", "todo_write", json.dumps({"todos": ITEMS})))


# -- recognized by name and shape -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("TodoWrite", {"todos": [{"content": "a", "status": "pending", "activeForm": "doing a"}]}),
        ("todo_write", {"todos": json.dumps(ITEMS)}),
        ("todowrite", {"todos": []}),
        ("todo", {"action": "update", "todos": ITEMS}),
        ("update_plan", {"explanation": "x", "plan": [{"step": "Read", "status": "inProgress"}]}),
        ("update_todo_list", {"todos": "[ ] Read the parser first\n[x] Write a failing test"}),
        ("ExitPlanMode", {"plan": PLAN}),
        ("mcp__desk__set_checklist", {"items": ["a", "b"]}),
        ("manage_work", {"items": [{"title": "a", "done": False}]}),
        ("request_approval", {"action": "deploy"}),
    ],
)
def test_a_call_that_writes_a_state_is_recognized(name: str, arguments: Any) -> None:
    assert state_key(Call("c", name, arguments)) == state_key(Call("c", name, json.dumps(arguments))) != ""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("TodoRead", {}),
        ("list_todos", {"filter": "open items of this week, sorted by date"}),
        ("todo", {"action": "list"}),
        ("todo_write", {"merge": True, "todos": ITEMS}),
        ("update_todo", {"id": 3, "status": "completed"}),
        ("plan_route", {"origin": "LAS", "destination": "DEN"}),
        ("bash", {"command": "cat todo.txt plan.md && echo the end of this long command"}),
        ("", {"plan": []}),
        ("todo_write", "{broken"),
    ],
)
def test_a_call_that_reads_or_changes_a_part_of_a_state_writes_none(name: str, arguments: Any) -> None:
    assert state_key(Call("c", name, arguments)) == ""


def test_configured_tools_write_a_state_and_no_others() -> None:
    assert state_key(Call("c", "set_goal", {"goal": "ship"}), ["set_goal"]) == "set_goal"
    assert state_key(Call("c", "todo_write", {"todos": ITEMS}), ["set_goal"]) == ""
    assert states_of(rounds(writes("a"), result("a"))[0], ()) == ()


def test_lists_that_have_ids_of_their_own_are_different_states() -> None:
    keys = {state_key(Call("c", "todo_write", {"list_id": n, "todos": ITEMS})) for n in ("a", "b", "a")}
    assert len(keys) == 2


def test_every_approval_is_a_state_of_its_own() -> None:
    keys = {state_key(Call("c", "request_approval", {"action": action})) for action in ("deploy", "delete")}
    assert len(keys) == 2


@pytest.mark.parametrize(
    "answer",
    [
        result("a", "Error: todos must be an array"),
        result("a", "<tool_use_error>InputValidationError</tool_use_error>"),
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": "no"}]},
    ],
)
def test_a_call_that_failed_or_got_no_result_wrote_no_state(answer: Message) -> None:
    assert states_of(rounds(writes("a"), answer)[0], None) == ()
    assert states_of(rounds(writes("a"))[0], None) == ()
    assert states_of(rounds(writes("a"), result("a"))[0], None) == ("todo_write",)


def test_a_round_that_says_something_beside_its_state_does_not_only_write_states() -> None:
    assert writes_only_states(rounds(writes("a"), result("a"))[0], None)
    assert not writes_only_states(rounds(writes("a", text="The parser is at fault."), result("a"))[0], None)
    both = writes("a")
    both["tool_calls"] += call("b")["tool_calls"]
    assert not writes_only_states(rounds(both, result("a"), result("b"))[0], None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["todos", "plan", "id", "x"]), inner),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.sampled_from(["TodoWrite", "plan", "request_approval", "", "\x00todo", "todo" * 99]), json_values)
def test_no_arguments_whatever_raise(name: str, arguments: Any) -> None:
    assert isinstance(state_key(Call("c", name, arguments)), str)


# -- the newest stays -------------------------------------------------------------------------------------------------


def why(*messages: Message, room: int = 10_000, tools: Any = None) -> dict[str, str]:
    marked, _ = mark_protected(segments(*messages), Protection(), state_tokens=room, state_tools=tools)
    return {segment.mark: segment.protected_because for segment in marked if segment.protected_because}


def test_of_each_state_the_newest_stays() -> None:
    history = [
        user("task"), writes("a"), result("a"), writes("b", "update_plan", plan=ITEMS), result("b"),
        writes("c"), result("c"), writes("d"), result("d", "Error: refused"), says("end"),
    ]  # fmt: skip
    assert why(*history) == {"m1": "task", "m4": "newest state", "m6": "newest state", "m10": "newest round"}
    assert why(*history, tools=()) == {"m1": "task", "m10": "newest round"}


# -- the older go first -----------------------------------------------------------------------------------------------


def superseded(*messages: Message, target: int = 0, tools: Any = None, **more: Any) -> list[str]:
    given = draft(*messages)
    done = SupersedeStaleReads().apply(given, Goal(target, 0, state_tools=tools, **more))
    return [segment.mark for segment in done.segments]


OLDER = (user("task"), writes("a"), result("a"), says("x"), writes("b"), result("b"), writes("c"), result("c"))


def test_no_more_older_states_go_than_the_goal_asks_for() -> None:
    assert superseded(*OLDER, target=draft(*OLDER).tokens - 1) == ["m1", "m4", "m5", "m7"]
    assert superseded(*OLDER, target=1_000_000) == ["m1", "m2", "m4", "m5", "m7"]
