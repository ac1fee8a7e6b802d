"""What counts as an identifier, and where it is looked for."""

from __future__ import annotations

import pytest

from amplifier_context_testing.lab.identifiers import identifiers
from amplifier_context_testing.lab.text import plain, spoken, visible


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("open src/app/main.py, please.", {"src/app/main.py"}),
        ("see https://example.com/a-b.", {"https://example.com/a-b"}),
        ("the parseHTML and the plain words", {"parseHTML"}),
        ("HTTP PARSER Parser lower", set[str]()),
        ("order 12345 but not 1234", {"12345"}),
        ("_private_name: and __init__", {"private_name"}),
        ("x" * 120 + "1", set[str]()),
        ("x" * 119 + "1", {"x" * 119 + "1"}),
    ],
)
def test_names_are_runs_that_hold_what_prose_does_not(text: str, names: set[str]) -> None:
    assert identifiers(text) == names


def test_escapes_in_arguments_do_not_glue_themselves_to_names() -> None:
    message = {
        "tool_calls": [{"id": "c", "function": {"name": "write", "arguments": '{"text": "a\\tfoo_bar\\nbaz_qux"}'}}]
    }
    assert {"foo_bar", "baz_qux"} <= identifiers(spoken(message))


def test_thinking_and_tool_names_are_visible_but_not_spoken() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "secret_plan"}, {"type": "text", "text": "spoken_word"}],
        "tool_calls": [{"id": "c", "tool": "read_file", "arguments": {"path": "one_path"}}],
    }
    assert identifiers(spoken(message)) == {"spoken_word", "one_path"}
    assert {"secret_plan", "read_file"} <= identifiers(visible(message))


def test_blocks_become_what_every_peer_can_read() -> None:
    blocks = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "done"}]},
            {"type": "text", "text": "Go on."},
        ],
    }
    assert plain(blocks) == [
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "Go on."},
    ]
