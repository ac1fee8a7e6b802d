"""Reading messages: every shape comes back as it went in, and what is no message is refused by the field at fault."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from amplifier_context_core.errors import InvalidMessage
from amplifier_context_core.messages.hashing import content_hash
from amplifier_context_core.messages.parsing import (
    MAX_DEPTH,
    Call,
    arguments_of,
    calls_of,
    is_human,
    parse_message,
    result_text,
    text_of,
)
from tests.messages import IMAGE, block, result, says, user

REMINDER = "<system-reminder>three todos</system-reminder>"


# -- what goes in comes back ------------------------------------------------------------------------------------------


def test_mappings_tuples_and_subclasses_become_plain_json() -> None:
    class Role(enum.StrEnum):
        USER = "user"

    class Key(str, enum.Enum):  # noqa: UP042 - not a StrEnum: its str() is "Key.X", not its value
        CONTENT = "content"

    class Level(enum.IntEnum):
        HIGH = 3

    class Lazy(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return {"n": Level.HIGH}[key]

        def __iter__(self) -> Iterator[str]:
            return iter(["n"])

        def __len__(self) -> int:
            return 1

    stored, info = parse_message(OrderedDict({"role": Role.USER, Key.CONTENT: (block("x"),), "metadata": Lazy()}))
    assert stored == {"role": "user", "content": [block("x")], "metadata": {"n": 3}}
    assert [type(key) for key in stored] == [str, str, str]
    assert type(stored["role"]) is str
    assert type(stored["content"]) is list
    assert type(stored["metadata"]) is dict
    assert type(stored["metadata"]["n"]) is int
    assert info.role == "user"


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (None, "message"),
        ({}, "role"),
        ({"role": "robot", "content": "x"}, "role"),
        (user(5), "content"),
        (user([block("x"), "bare"]), "content[1]"),
        (says([{"type": "tool_use", "name": "f", "input": {}}]), "content[0].id"),
        (user([{"type": "tool_result", "content": "x"}]), "content[0].tool_call_id"),
        (user([{"type": "tool_result", "tool_use_id": 7, "content": "x"}]), "content[0].tool_call_id"),
        (user("x", metadata="y"), "metadata"),
        (user([{"text": "x"}]), "content[0].type"),
        (says("x", tool_calls={}), "tool_calls"),
        (says("x", tool_calls=[None]), "tool_calls[0]"),
        (says("x", tool_calls=[{"id": "a"}, {"function": {"name": "f"}}]), "tool_calls[1].id"),
        ({"role": "tool", "content": "x", "tool_call_id": ""}, "tool_call_id"),
        (user("x", metadata={"a": [1, {"b": b"bytes"}]}), "metadata.a[1].b"),
        (user("x", metadata={"a": math.nan}), "metadata.a"),
        (user("x", metadata={"a": {5: "x"}}), "metadata.a"),
        ({5: "x", "role": "user"}, "message"),
    ],
    ids=str,
)
def test_bad_input_is_refused_by_the_field_at_fault(message: Any, field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        parse_message(message)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_nesting_is_read_to_a_hundred_levels_and_refused_beyond() -> None:
    def nested(levels: int) -> Any:
        value: Any = "x"
        for _ in range(levels):
            value = [value]
        return value

    parse_message(user("x", deep=nested(MAX_DEPTH - 1)))
    with pytest.raises(InvalidMessage, match="deeper"):
        parse_message(user("x", deep=nested(MAX_DEPTH)))


def test_a_message_that_holds_itself_is_refused() -> None:
    message = user("x")
    message["self"] = message
    with pytest.raises(InvalidMessage, match="deeper"):
        parse_message(message)


# -- calls and results ------------------------------------------------------------------------------------------------


def test_calls_are_read_in_every_spelling() -> None:
    arguments = {"path": "a"}
    for message in (
        says(None, tool_calls=[{"id": "x", "type": "function", "function": {"name": "read", "arguments": arguments}}]),
        says(None, tool_calls=[{"id": "x", "tool": "read", "arguments": arguments}]),
        says(None, tool_calls=[{"id": "x", "name": "read", "arguments": arguments}]),
        says(None, tool_calls=[{"id": "x", "name": "read", "input": arguments}]),
        says([{"type": "tool_call", "id": "x", "name": "read", "input": arguments}]),
        says([{"type": "tool_use", "id": "x", "name": "read", "input": arguments}]),
    ):
        (found,) = calls_of(message)
        assert (found.id, found.name, found.arguments) == ("x", "read", arguments)


def test_a_call_stated_in_a_block_and_in_the_list_is_one_call() -> None:
    message = says(
        [{"type": "tool_call", "id": "x", "name": "read", "input": {}}, {"type": "tool_use", "id": "y", "name": "w"}],
        tool_calls=[{"id": "x", "tool": "read", "arguments": {}}],
    )
    assert parse_message(message)[1].call_ids == ("x", "y")


# -- its author --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "human"),
    [
        (user("Hi."), True),
        (user([IMAGE]), True),
        (user(None), True),
        (user("Hi.", metadata={"ephemeral": "yes"}), True),
        (user(f"{REMINDER} Go."), True),
        (user(f"Go. {REMINDER}"), True),
        (user("<system-reminder>never closed"), True),
        (user([{"type": "tool_result", "tool_use_id": "a", "content": "x"}, block("And now?")]), True),
        ({"role": "system", "content": "Hi."}, False),
        (result("a"), False),
        (user("Hi.", metadata={"ephemeral": True}), False),
        (user("Hi.", metadata={"source": "hook"}), False),
        (user("Hi.", metadata={"source": "context-compaction"}), False),
        (user(f"\n {REMINDER}\n{REMINDER} "), False),
        (user([block(REMINDER), block(REMINDER)]), False),
        (user([{"type": "tool_result", "tool_use_id": "a", "content": "x"}]), False),
        (user([{"type": "tool_result", "tool_use_id": "a", "content": "x"}, block(REMINDER)]), False),
        (user(None, tool_calls=[{"id": "a", "tool": "f"}]), False),
    ],
    ids=str,
)
def test_a_human_message_is_distinguished_from_an_injected_one(message: dict[str, Any], human: bool) -> None:
    assert is_human(message) is human
    assert parse_message(message)[1].human is human


def test_a_reminder_before_a_huge_text_is_recognised_in_one_pass() -> None:
    """No quadratic search: two megabytes of unclosed tags would take minutes."""
    assert is_human(user("<system-reminder>" * 100_000))


def test_the_words_of_a_content_are_its_texts_and_nested_results_without_thinking() -> None:
    content = [
        {"type": "thinking", "thinking": "secret"},
        block("one"),
        block(""),
        {"type": "tool_result", "tool_use_id": "a", "content": [block("two"), IMAGE]},
        {"type": "tool_result", "tool_call_id": "b", "output": "three"},
        {"type": "text"},
        "bare",
    ]
    assert text_of(content) == "one\ntwo\nthree"
    assert text_of("as it is") == "as it is"
    assert text_of(None) == text_of({"type": "text", "text": "x"}) == ""


# -- words and JSON ---------------------------------------------------------------------------------------------------


def test_a_result_that_is_an_object_is_shown_as_json() -> None:
    assert result_text({"exit": 0}) == '{"exit":0}'
    assert result_text([block("x")]) == "x"


@pytest.mark.parametrize("number", [2**64 - 1, 2**64, -(2**63) - 1, 10**30])
def test_integers_past_64_bits_in_arguments_stay_exact(number: int) -> None:
    text = json.dumps({"ids": [{"id": number}], "share": 0.5})
    assert arguments_of(Call("c1", "count", text)) == {"ids": [{"id": number}], "share": 0.5}


@pytest.mark.parametrize(
    "other",
    [
        user("y"),
        says("x"),
        user([block("x")]),
        user("x", name="anna"),
        user("x", metadata={"pinned": True}),
        user("x", metadata={"timestamp": "2026", "source": "hook"}),
        user("x\ud83d"),
    ],
    ids=str,
)
def test_another_content_has_another_hash(other: dict[str, object]) -> None:
    assert content_hash(other) != content_hash(user("x"))
