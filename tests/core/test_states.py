"""States, distant history and recalled text: what stays of each."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.compaction.distant import DistantHistory
from amplifier_context_core.compaction.protected import Protection, mark_protected
from amplifier_context_core.compaction.recalled import ONE_LINE, RecalledSize, recalled_size
from amplifier_context_core.compaction.states import state_key, states_of, writes_only_states
from amplifier_context_core.messages.parsing import Call
from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_core.rendering.renderer import RenderedMessage, Renderer
from amplifier_context_core.rendering.rounds import Round
from amplifier_context_core.transcript.recalled import RECALL_TOOL
from tests.core.drafts import rounds, segments, transcript
from tests.laws.histories import JSON
from tests.messages import Message, call, result, says, user

ITEMS = [{"content": "Read the parser", "status": "completed"}, {"content": "Fix it", "status": "in_progress"}]
PLAN = "1. Read the parser.\n2. Fix the tokens.\n3. Run the tests."


def writes(id: str, name: str = "todo_write", text: Any = None, **arguments: Any) -> Message:
    return call(id, name=name, arguments=arguments or {"todos": ITEMS}, content=text)


def test_a_call_with_arguments_of_megabytes_writes_no_state_and_is_not_parsed() -> None:
    text = json.dumps({"todos": ITEMS, "notes": "文" * 2_000_000}, ensure_ascii=False)
    begun = time.thread_time()
    assert not state_key(Call("c1", "todo_write", text))
    assert time.thread_time() - begun < 0.02  # seconds; 0.06 if it is parsed
    assert state_key(Call("c1", "todo_write", json.dumps({"todos": ITEMS})))


WRITES: list[tuple[str, Any]] = [
    ("TodoWrite", {"todos": [{"content": "a", "status": "pending", "activeForm": "doing a"}]}),
    ("todo_write", {"todos": json.dumps(ITEMS)}),
    ("TodoWrite", {"todos": "[]"}),
    ("TodoWrite", {"todos": '[{"text": "a", "done": true}]'}),
    ("todo", {"action": "update", "todos": ITEMS}),
    ("update_plan", {"explanation": "x", "plan": [{"step": "Read", "status": "inProgress"}]}),
    ("update_todo_list", {"todos": "[ ] Read the parser first\n[x] Write a failing test"}),
    ("ExitPlanMode", {"plan": PLAN}),
    ("mcp__desk__set_checklist", {"items": ["a", "b"]}),
    ("manage_work", {"items": [{"title": "a", "done": False}]}),
    ("request_approval", {"action": "deploy"}),
]
READS: list[tuple[str, Any]] = [
    ("TodoRead", {}),
    ("list_todos", {"filter": "open items of this week, sorted by date"}),
    ("todo", {"action": "list"}),
    ("todo_write", {"merge": True, "todos": ITEMS}),
    ("update_todo", {"id": 3, "status": "completed"}),
    ("update_todo", {"id": 3, "status": "[x]"}),
    ("bash", {"command": "cat todo.txt plan.md && echo the end of this long command"}),
    ("", {"plan": []}),
    ("todo_write", "{broken"),
]


@pytest.mark.parametrize(("name", "arguments"), [*WRITES, *READS])
def test_a_call_that_writes_a_whole_state_is_recognized(name: str, arguments: Any) -> None:
    key = state_key(Call("c", name, arguments))
    assert (key != "") == ((name, arguments) in WRITES)
    assert isinstance(arguments, str) or state_key(Call("c", name, json.dumps(arguments))) == key


@given(st.sampled_from(["TodoWrite", "plan", "request_approval", "", "\x00todo", "todo" * 99]), JSON)
def test_no_arguments_whatever_raise(name: str, arguments: Any) -> None:
    assert isinstance(state_key(Call("c", name, arguments)), str)


def test_lists_with_ids_of_their_own_and_every_approval_are_different_states() -> None:
    for name, key, more in (("todo_write", "list_id", {"todos": ITEMS}), ("request_approval", "action", {})):
        assert len({state_key(Call("c", name, {key: value, **more})) for value in ("a", "b", "a")}) == 2


def test_a_call_that_failed_or_got_no_result_wrote_no_state_and_words_beside_one_are_more_than_a_state() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": "no"}
    failed = (result("a", "Error: an array"), result("a", "<tool_use_error>x</tool_use_error>"), user([block]))
    for answer in ((), *((one,) for one in failed)):
        assert states_of(rounds(writes("a"), *answer)[0], None) == ()
    (done,) = rounds(writes("a"), result("a"))
    assert (states_of(done, None), states_of(done, ())) == (("todo_write",), ())
    assert writes_only_states(done, None)
    assert not writes_only_states(rounds(writes("a", text="The parser is at fault."), result("a"))[0], None)
    both = writes("a")
    both["tool_calls"] += call("b")["tool_calls"]
    assert not writes_only_states(rounds(both, result("a"), result("b"))[0], None)


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
    assert state_key(Call("c", "set_goal", {"goal": "ship"}), ["set_goal"]) == "set_goal"
    assert state_key(Call("c", "todo_write", {"todos": ITEMS}), ["set_goal"]) == "", "those configured and no others"


# -- distant history ---------------------------------------------------------------------------------------------------
def folded(*messages: Message, pins: tuple[int, ...] = ()) -> list[Segment]:
    """All of these messages as distant history."""
    distant = DistantHistory(pins)
    distant.extend(transcript(messages).snapshot())
    return distant.segments(Renderer(approx_token_counter, 100), approx_token_counter)


def work(start: int, stop: int) -> list[Message]:
    return [message for place in range(start, stop) for message in (call(f"c{place}"), result(f"c{place}", "x" * 400))]


def test_the_first_and_the_newest_words_of_a_person_and_pins_stay_between_chapters() -> None:
    pinned = folded(user("task"), *work(0, 5), says("a finding"), *work(5, 8), user("newest"), pins=(12,))
    assert [segment.shown[0].message["content"] for segment in pinned if segment.first == 12] == ["a finding"]
    words = (user("never touch auth.py"), user("newest"))
    segments = folded(user("task"), *work(0, 5), words[0], *work(5, 10), words[1], *work(10, 12))
    spans = [(segment.first, segment.last, segment.state) for segment in segments]
    assert spans == [(1, 1, "kept"), (2, 22, "folded"), (23, 23, "kept"), (24, 27, "folded")]
    chapter = segments[1].chapter
    assert ([entry.first for entry in chapter.entries], chapter.left_out) == ([12], 10), "what people wrote is listed"
    assert "never touch auth.py" in segments[1].shown[0].message["content"]
    folded_entries = transcript([*work(0, 5), words[0], *work(5, 10)]).snapshot()
    assert segments[1].original_tokens == sum(entry.tokens for entry in folded_entries)


def test_words_of_a_person_that_are_never_sent_are_in_no_chapter_and_are_not_the_task() -> None:
    retired = user("retired", metadata={"amplifier:instruction": {"disposition": "retired"}})
    segments = folded(retired, user("task"), *work(0, 5), retired, user("newest"), *work(5, 10), retired, says())
    kept = [segment.shown[0].message["content"] for segment in segments if segment.state == "kept"]
    assert kept == ["task", "newest"]
    assert "retired" not in str([segment.shown for segment in segments])


def test_a_result_that_came_after_a_providers_own_compaction_stays_with_its_call() -> None:
    carrier = user("What happened.", metadata={"anthropic:compaction": {"version": 1}})
    before = [user("task"), *work(0, 5), call("late"), call("soon"), result("soon")]
    segments = folded(*before, carrier, result("late"), *work(5, 8), user("newest"))
    kept = [segment for segment in segments if segment.state == "kept"]
    assert [(one.first, one.last) for one in kept] == [(1, 1), (12, 16), (15, 15), (23, 23)]
    without = folded(*before, result("late"), *work(5, 8), user("newest"))
    assert len([segment for segment in without if segment.state == "kept"]) == 2


def test_the_cost_of_distant_history_is_not_that_of_all_rounds_times_all_carriers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = list[int]()

    def noted(round_: Round, carriers: object) -> bool:
        compared.append(round_.first)
        return False

    monkeypatch.setattr(Round, "has_result_after", noted)
    carriers = [user("So far.", metadata={"anthropic:compaction": {"version": 1}})] * 5
    folded(user("task"), *carriers, call("late"), *work(0, 9), result("late"), *work(9, 20))
    assert compared == [7]


def test_a_recalled_text_counts_what_it_has_beyond_a_line_and_other_tools_recall_nothing() -> None:
    def recalled(tokens: int, tool: str = RECALL_TOOL) -> RecalledSize:
        asked = RenderedMessage(says(tool_calls=[{"id": "a", "tool": tool, "arguments": {}}]), 30, 1)
        return recalled_size([asked, RenderedMessage(result("a"), tokens, 2)])

    assert (recalled(ONE_LINE + 500), recalled(ONE_LINE - 6)) == (RecalledSize(1, 500), RecalledSize(1, 0))
    assert recalled(900, "bash") == RecalledSize() == RecalledSize(0, 0)


def test_of_a_long_history_all_rounds_are_counted_and_the_newest_words_of_people_are_listed() -> None:
    spoken = [one for place in range(700) for one in (user(f"rule {place}"), *work(4 * place, 4 * place + 4))]
    messages = [*spoken, says("a late finding"), user("newest"), says("the end")]
    segments = folded(*messages)
    chapters = [segment.chapter for segment in segments if segment.chapter is not None]
    assert [segment.first for segment in segments if segment.chapter is None] == [1, 6302], "the task, the newest words"
    assert [entry.first for one in chapters for entry in one.entries] == [9 * place + 1 for place in range(201, 700)]
    assert sum(one.left_out + len(one.entries) for one in chapters) == 700 * 5 + 3 - 2
    assert sum(one.original_tokens for one in segments) == sum(one.tokens for one in transcript(messages).snapshot())
