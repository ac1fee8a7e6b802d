"""Reading messages: every shape comes back as it went in, bad input is refused by its field, authors are known."""

import enum
import json
import math
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest

from amplifier_context_core.errors import InvalidMessage
from amplifier_context_core.messages.carriers import can_read, carried_items, carried_text
from amplifier_context_core.messages.hashing import content_hash
from amplifier_context_core.messages.parsing import (
    Call,
    arguments_of,
    calls_of,
    is_human,
    parse_message,
    result_text,
    results_of,
    text_of,
)
from amplifier_context_core.messages.reminders import is_of_a_program
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_testing.checks.corpus import conversations
from tests.messages import IMAGE, block, carrier, nested, result, says, system, user

REMINDER = "<system-reminder>three todos</system-reminder>"


def test_mappings_tuples_and_subclasses_become_plain_json() -> None:
    class Role(enum.StrEnum):
        USER = "user"

    class Key(str, enum.Enum):  # noqa: UP042 - not a StrEnum: its str() is "Key.X", not its value
        CONTENT = "content"

    class Level(enum.IntEnum):
        HIGH = 3

    lazy = MappingProxyType({"n": Level.HIGH})
    stored, info = parse_message(OrderedDict({"role": Role.USER, Key.CONTENT: (block("x"),), "metadata": lazy}))
    assert stored == {"role": "user", "content": [block("x")], "metadata": {"n": 3}}
    values = (*stored, stored["role"], stored["content"], stored["metadata"], stored["metadata"]["n"])
    assert [type(value) for value in values] == [str, str, str, str, list, dict, int]
    assert info.role == "user"


SECRET = "hunter2-SECRET"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        *((bad, "message") for bad in (None, SECRET, {5: SECRET, "role": "user"})),
        *((bad, "role") for bad in ({"content": SECRET}, {"role": SECRET, "content": SECRET})),
        (user({"text": SECRET}), "content"),
        (user([block("x"), SECRET]), "content[1]"),
        (user([{"text": SECRET}]), "content[0].type"),
        (says([{"type": "tool_use", "name": "f", "input": {"password": SECRET}}]), "content[0].id"),
        (user([{"type": "tool_result", "tool_use_id": 7, "content": SECRET}]), "content[0].tool_call_id"),
        ({"role": "tool", "content": SECRET, "tool_call_id": ""}, "tool_call_id"),
        (says(SECRET, tool_calls={}), "tool_calls"),
        (says("x", tool_calls=[SECRET]), "tool_calls[0]"),
        (says("x", tool_calls=[{"id": "a"}, {"function": {"name": "f"}}]), "tool_calls[1].id"),
        (user(SECRET, metadata=SECRET), "metadata"),
        (user(SECRET, metadata={"a": [1, {"b": SECRET.encode()}]}), "metadata.a[1].b"),
        *((user(SECRET, metadata={"a": bad}), "metadata.a") for bad in (math.nan, {5: SECRET}, {("a", SECRET): 1})),
    ],
    ids=str,
)
def test_bad_input_is_refused_by_the_field_at_fault_and_not_quoted(message: Any, field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        parse_message(message)
    assert caught.value.field == field
    assert len(str(caught.value).removeprefix(f"{field}: ").partition("; ")[0]) > 5, "and says what is wrong"
    assert str(caught.value).startswith(f"{field}: ")
    assert SECRET not in f"{caught.value} {caught.value!r}"


def test_nesting_is_read_to_a_hundred_levels_and_refused_beyond() -> None:
    deep = nested(99, "x")
    parse_message(user("x", deep=deep))
    endless = user("x")
    endless["self"] = endless
    for message in (user("x", deep=[deep]), endless):
        with pytest.raises(InvalidMessage, match="deeper"):
            parse_message(message)


def test_calls_are_read_in_every_spelling() -> None:
    read, given = {"id": "x", "name": "read", "input": {"path": "a"}}, {"id": "x", "arguments": {"path": "a"}}
    function = {"id": "x", "type": "function", "function": {"name": "read", "arguments": {"path": "a"}}}
    listed = [function, {**given, "tool": "read"}, {**given, "name": "read"}, read]
    blocks = [{"type": kind, **read} for kind in ("tool_call", "tool_use")]
    for message in (*(says(None, tool_calls=[one]) for one in listed), *(says([one]) for one in blocks)):
        (found,) = calls_of(message)
        assert (found.id, found.name, found.arguments) == ("x", "read", {"path": "a"})
    twice = says([blocks[0], {"type": "tool_use", "id": "y", "name": "w"}], tool_calls=[listed[1]])
    assert parse_message(twice)[1].call_ids == ("x", "y"), "stated in a block and in the list it is one call"


def test_the_ids_of_a_message_are_those_of_the_calls_and_results_that_are_read_of_it() -> None:
    call, answer = {"type": "tool_use", "id": "x"}, {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    odd = [
        says([call, call, {**call, "id": "y"}, answer], tool_calls=[{"id": "y"}, {"id": "y"}, {"id": "z"}]),
        {"role": "tool", "tool_call_id": "b", "content": [answer, call]},
        {"role": "tool", "tool_call_id": "", "content": [answer, {**answer, "tool_call_id": "b"}]},
    ]
    for raw in (*odd, *(one for conversation in conversations() for one in conversation.messages)):
        message, info = parse_message(raw)
        assert info.call_ids == tuple(call.id for call in calls_of(message))
        assert info.answered_ids == tuple(result.call_id for result in results_of(message))


@pytest.mark.parametrize(
    ("message", "human"),
    [
        (user([IMAGE]), True),
        (user(None), True),
        (user("Hi.", metadata={"ephemeral": "yes"}), True),
        (user(f"{REMINDER} Go."), True),
        (user("<system-reminder>never closed"), True),
        (user("<system-reminder>" * 100_000), True),  # no quadratic search: that would take minutes
        (user([{"type": "tool_result", "tool_use_id": "a", "content": "x"}, block("And now?")]), True),
        *((message, False) for message in (system(), result("a"), user("Hi.", metadata={"ephemeral": True}))),
        *((user("Hi.", metadata={"source": source}), False) for source in ("hook", "context-compaction")),
        (user(f"\n {REMINDER}\n{REMINDER} "), False),
        (user([{"type": "tool_result", "tool_use_id": "a", "content": "x"}, block(REMINDER)]), False),
        (user(None, tool_calls=[{"id": "a", "tool": "f"}]), False),
    ],
    ids=lambda value: str(value)[:200],
)
def test_a_human_message_is_distinguished_from_an_injected_one(message: dict[str, Any], human: bool) -> None:
    assert is_human(message) is human
    assert parse_message(message)[1].human is human


@pytest.mark.parametrize(
    ("text", "is_of_one"),
    [
        ("<task-notification>done</task-notification>\n<bash-stdout></bash-stdout>", True),
        ("<task-notification>done</task-notification> Look at it.", False),
        ("[Request interrupted by user for tool use]", True),
        ("[Request interrupted by user] Stop.", False),
        ("This session is being continued from a previous conversation that ran out of context. It was on a.py.", True),
        ("Is this session being continued from a previous conversation that ran out of context.", False),
    ],
)
def test_what_a_host_writes_in_the_name_of_its_user_is_of_a_program(text: str, is_of_one: bool) -> None:
    assert is_of_a_program(text) == is_of_one


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
    assert (result_text({"exit": 0}), result_text([block("x")])) == ('{"exit":0}', "x")


def test_integers_past_64_bits_in_arguments_stay_exact() -> None:
    arguments = {"ids": [{"id": 2**64 - 1}, 2**64, -(2**63) - 1, 10**30], "share": 0.5}
    assert arguments_of(Call("c1", "count", json.dumps(arguments))) == arguments


def test_another_content_has_another_hash() -> None:
    others = [
        *(user("y"), says("x"), user([block("x")]), user("x", name="anna"), user("x", metadata={"pinned": True})),
        *(user("x", metadata={"timestamp": "2026", "source": "hook"}), user("x\ud83d")),
    ]
    assert content_hash(user("x")) not in map(content_hash, others)


# -- carriers of a provider's own compaction ---------------------------------------------------------------------------
def test_a_carrier_is_counted_by_what_is_in_it_and_read_where_it_is_not_sealed_by_the_model_that_made_it() -> None:
    said = "We fixed the loader. " * 99
    anthropic, openai, odd = carrier(said), carrier("x" * 4_000, "openai", "gpt-5.6"), carrier("", "openai")
    person = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the loader."}]}
    openai["metadata"]["openai:compaction"]["output"].insert(0, person)
    odd["metadata"]["openai:compaction"] = 7
    assert count_message_tokens(odd) == count_message_tokens(user(odd["content"]))
    assert all(count_message_tokens(one) > count_message_tokens(odd) + 400 for one in (anthropic, openai))
    assert [carried_text(one) for one in (anthropic, openai, odd)] == [said, "Fix the loader.", ""]
    assert carried_items(odd) == []
    assert can_read(anthropic, "Anthropic-2", "claude-opus-5")
    assert can_read(openai, "openai", "gpt-5.6")
    for provider, model in (
        ("anthropic", "claude-opus-4-8"),
        ("github-copilot", "claude-opus-5"),
        ("openai", "gpt-5.5"),
    ):
        assert not any(can_read(one, provider, model) for one in (anthropic, openai, odd))
