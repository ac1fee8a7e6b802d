"""States: the newest todo list, plan or approval of a tool is recognized, stays verbatim and replaces the older."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, load_config
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
        ("write_todos", {"todos": ITEMS}),
        ("todo", {"action": "update", "todos": ITEMS}),
        ("update_plan", {"explanation": "x", "plan": [{"step": "Read", "status": "inProgress"}]}),
        ("update_todo_list", {"todos": "[ ] Read the parser first\n[x] Write a failing test"}),
        ("ExitPlanMode", {"plan": PLAN}),
        ("plan", {"steps": ["Read", "Fix"]}),
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
        ("get_plan", {"items": ITEMS}),
        ("todo", {"action": "list"}),
        ("todo_write", {"merge": True, "todos": ITEMS}),
        ("update_todo", {"id": 3, "status": "completed"}),
        ("plan_route", {"origin": "LAS", "destination": "DEN"}),
        ("update_orders", {"orders": [{"id": 1, "status": "shipped"}]}),
        ("bash", {"command": "cat todo.txt plan.md && echo the end of this long command"}),
        ("", {"plan": []}),
        ("todo_write", "{broken"),
        ("todo_write", None),
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


def test_a_state_newer_than_the_draft_is_the_newest() -> None:
    both = segments(user("task"), writes("a"), result("a"), says("x"), writes("b"), result("b"))
    marked, _ = mark_protected(both[:-1], Protection(later=both[-1:]), state_tokens=10_000)
    assert [segment.protected_because for segment in marked] == ["task", "", ""]


def test_states_beyond_their_share_are_not_protected_the_newest_first_served() -> None:
    huge = [{"content": f"step {n} " * 40, "status": "pending"} for n in range(200)]
    history = [
        user("task"), writes("a", "plan", plan=ITEMS), result("a"), writes("b", todos=huge), result("b"),
        writes("c", "update_plan", plan=ITEMS), result("c"), says("end"),
    ]  # fmt: skip
    assert why(*history, room=200) == {
        "m1": "task", "m2": "newest state", "m6": "newest state", "m8": "newest round",
    }  # fmt: skip
    assert why(*history, room=0) == {"m1": "task", "m8": "newest round"}


# -- the older go first -----------------------------------------------------------------------------------------------


async def superseded(*messages: Message, target: int = 0, tools: Any = None, **more: Any) -> list[str]:
    given = draft(*messages)
    done = await SupersedeStaleReads().apply(given, Goal(target, 0, state_tools=tools, **more))
    return [segment.mark for segment in done.segments]


OLDER = (user("task"), writes("a"), result("a"), says("x"), writes("b"), result("b"), writes("c"), result("c"))


async def test_rounds_that_only_wrote_an_older_state_go_before_all_else() -> None:
    assert await superseded(*OLDER) == ["m1", "m4", "m7"]
    assert await superseded(*OLDER, tools=()) == ["m1", "m2", "m4", "m5", "m7"]


async def test_no_more_older_states_go_than_the_goal_asks_for() -> None:
    assert await superseded(*OLDER, target=draft(*OLDER).tokens - 1) == ["m1", "m4", "m5", "m7"]
    assert await superseded(*OLDER, target=1_000_000) == ["m1", "m2", "m4", "m5", "m7"]


async def test_text_beside_an_older_state_stays_and_its_output_goes() -> None:
    history = (user("t"), writes("a", text="It is the parser.", todos=ITEMS[:1]), result("a", "ok " * 90), *OLDER[6:])
    given = draft(*history)
    done = await SupersedeStaleReads().apply(given, Goal(0, 0))
    assert [segment.mark for segment in done.segments] == ["m1", "m2", "m4"]
    assert "written again at m4" in str(done.segments[1].shown[1].message["content"])


async def test_a_recent_older_state_stays_while_others_can_give() -> None:
    assert await superseded(*OLDER, recent=frozenset({5})) == ["m1", "m4", "m5", "m7"]


# -- in a session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state_tools", [None, []])
async def test_the_newest_todo_list_is_verbatim_in_the_view_however_far_back(state_tools: list[str] | None) -> None:
    config = load_config({"token_counter": "heuristic", "state_tools": state_tools})
    manager = ContextManager(config, session_id="states")
    view = ""
    await manager.add_message(user("Fix the parser."))
    for version in range(3):
        todos = [{"content": f"Step {n} of version {version}", "status": "pending"} for n in range(9)]
        for message in (writes(f"t{version}", todos=todos), result(f"t{version}", "saved")):
            await manager.add_message(message)
        for number in range(20):
            for message in (call(f"r{number}", path=f"src/{version}/{number}.py"), result(f"r{number}", "line " * 300)):
                await manager.add_message(message)
            view = json.dumps(await manager.get_messages_for_request(token_budget=4_000))
            if state_tools is None:
                assert all(f"Step {n} of version {version}" in view for n in range(9))
    assert ("Step 8 of version 2" in view) is (state_tools is None)
    assert "Step 8 of version 1" not in view
