"""The material of a request: what a model reads of a range, and what it loses where there is no room."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter as counter
from amplifier_context_summary.material import material
from tests.messages import result, user

from .test_checks import entries

LONG = "\n".join(f"{number:5}\u2192def function_{number}(self): pass" for number in range(1, 2_000))


def calls(*given: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    listed = [{"id": f"c{number}", "tool": name, "arguments": args} for number, (name, args) in enumerate(given)]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def shown(messages: list[dict[str, Any]], room: int = 100_000) -> str:
    return material(entries(messages), counter, room)


def test_each_result_names_its_call() -> None:
    text = shown([calls(("read", {"path": "a.py"}), ("read", {"path": "b.py"})), result("c1", "B"), result("c0", "A")])
    assert text.splitlines() == [
        "m1.1 call read: path=a.py",
        "m1.2 call read: path=b.py",
        "m2 result of m1.2: B",
        "m3 result of m1.1: A",
    ]


def test_what_a_program_wrote_is_not_a_persons_and_reminders_are_left_out() -> None:
    reminder = "<system-reminder>Consider whether it is malware.</system-reminder>"
    command = "<command-message>review</command-message>\n<command-name>/review</command-name>"
    other = reminder.replace("r>C", "r source='x'>C")
    said = [command, "You are an expert reviewer.", f"Fix it. {reminder} {other}"]
    said += ["Base directory for this skill: /s\nDo so.", "<task-notification>It ended.</task-notification>", "No."]
    text = shown([*map(user, said), calls(("read", {"path": "a.py"})), result("c0", f"x = 1\n{reminder}")])
    authors = [line.split(":")[0][3:] for line in text.splitlines() if re.match(r"m\d+ p", line)]
    assert authors == ["program", "program", "person", "program", "program", "person"]
    assert "malware" not in text


def test_nothing_is_shown_twice() -> None:
    said = "The same long answer of a tool, which says what it said before. " * 3
    text = shown([calls(("a", {})), result("c0", said), calls(("a", {})), result("c0", said)])
    assert text.count("which says") == 3
    assert "m4 result of m3.1: (the same as in m2)" in text


def test_of_an_edit_the_lines_stay_that_it_changed_and_its_result_says_only_whether() -> None:
    old = "def f():\n    a = 1\n    b = 2\n    c = 3\n    d = 4"
    change = {"file_path": "a.py", "old_string": old, "new_string": old.replace("c = 3", "c = 4")}
    text = shown([calls(("edit", change)), result("c0", "The file was updated.\n" + LONG)])
    change_lines = "  change:\n  ...\n       b = 2\n  -    c = 3\n  +    c = 4\n       d = 4"
    assert text == f"m1.1 call edit: file_path=a.py\n{change_lines}\nm2 result of m1.1: The file was updated."
    assert "old_string not found" in shown([calls(("edit", change)), result("c0", "Error: old_string not found")])
    refused = "The user rejected it. To tell you how to proceed, the user said:\nuse `g`"
    assert shown([calls(("edit", change)), result("c0", refused)]).endswith("the user said:\n  use `g`")
    several = {"path": "a.py", "edits": [{"oldText": "x", "newText": "y"}, {"oldText": "n", "newText": "m"}, 7]}
    assert shown([calls(("edit", several))]).endswith("-x\n  +y\n  ...\n  -n\n  +m\n  7")


def test_the_lines_of_a_long_edit_are_not_compared_one_by_one() -> None:
    old = [f"line {number}" for number in range(2_000)]
    new = [line for number in range(0, 2_000, 2) for line in (f"new {number}", f"line {number}")]
    change = {"path": "a.py", "old_string": "\n".join(old), "new_string": "\n".join(new)}
    started = time.process_time()
    assert "[... " in shown([calls(("edit", change))], 300)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("output", [LONG, json.dumps({"content": LONG, "path": "a.py"})], ids=["text", "JSON"])
def test_of_a_read_the_lines_stay_that_the_agent_went_on_to_use(output: str) -> None:
    change = {"path": "a.py", "old_string": "def function_777(self): pass", "new_string": "def f(self): pass"}
    read = calls(("read", {"path": "a.py"}))
    text = shown([read, result("c0", output), calls(("edit", change)), result("c0", "ok")], 1_500)
    assert all(f"{number}\u2192def function_{number}(" in text for number in range(772, 783))
    assert "function_300(" not in text
    assert "[... " in text
    use = {"role": "assistant", "content": "I change function_900."}
    quoting = result("c0", f"{LONG}\nthe user said: no\n{LONG}")  # is no refusal
    assert "def function_900(self)" in shown([read, quoting, use], 6_000)


@pytest.mark.parametrize("word", ["FAILED test_a", "error: no such name", "3 passed, 1 failed", "Traceback"])
def test_of_a_long_output_errors_counts_and_the_last_lines_stay(word: str) -> None:
    output = "line of the log\n" * 900 + f"{word}\n" + "more\n" * 900 + "the end"
    text = shown([calls(("run", {"command": "make"})), result("c0", output)], 250)
    assert word in text
    assert text.splitlines()[-1].strip() == "the end"


def test_a_range_takes_nearly_all_of_its_room_and_no_short_output_is_cut() -> None:
    run: list[dict[str, Any]] = []
    for number in range(10):
        short = f"a short output, run {number}\n" * 6
        run += [calls(("run", {})), result("c0", short), calls(("run", {})), result("c0", f"run {number}\n{LONG}")]
    text = shown(run, 6_000)
    assert 0.75 * 6_000 < counter(text) <= 6_000
    assert text.count("a short output, run") == 60


def test_where_all_is_too_long_the_oldest_messages_are_left_out() -> None:
    text = shown([user(f"Message {number}. {'word ' * 60}") for number in range(60)], 1_000)
    assert text.startswith("[")
    assert "older messages are left out]" in text.splitlines()[0]
    assert "Message 59." in text
    said = "The same long message of a person, which is said in each. " * 3
    assert "which is said" in shown([user(said)] * 60, 200)


spoken = st.text("ab \n\u2028<>/:m1(", max_size=300)


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), spoken), min_size=1, max_size=20),
    st.integers(30, 2_000),
)
def test_whatever_is_said_the_material_is_bounded_and_each_head_is_of_a_message(said: list[Any], room: int) -> None:
    messages = [
        {"role": role, "content": text, **({"tool_call_id": "c9"} if role == "tool" else {})} for role, text in said
    ]
    text = shown(messages, room)
    assert counter(text) <= max(room, 80)
    marks = [line.split(" ")[0] for line in text.splitlines() if line and not line.startswith((" ", "["))]
    assert [int(mark[1:].split(".")[0]) for mark in marks] == sorted(int(mark[1:].split(".")[0]) for mark in marks)
