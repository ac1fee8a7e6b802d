"""Laws of a call's arguments: any JSON value, in every shape a message can give it, means one thing everywhere."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.messages.parsing import arguments_of, calls_of, parse_message
from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_testing import check_request
from tests.core.drafts import rounds
from tests.managers import feed
from tests.messages import Message, result, user

from .histories import json_of
from .managers import new_manager

VALUES = json_of(st.text(max_size=8))
TEXTS = VALUES.map(json.dumps) | st.sampled_from(["", " ", "{", '{"a": ', "[1]", "null", "NaN", '"\\ud83d"', "1e999"])
GIVEN = st.one_of(VALUES, TEXTS)
HUGE = [{"row": number, "text": "x" * 400} for number in range(500)]
NESTED: Any = []
for _ in range(60):
    NESTED = [NESTED]

BLOCK_SHAPES = ("tool_use", "tool_call")
LIST_SHAPES = ("function", "arguments", "input", "named")
SHAPES = (*BLOCK_SHAPES, *LIST_SHAPES, *(f"{one}+{other}" for one in BLOCK_SHAPES for other in LIST_SHAPES))


def calling(shape: str, value: Any) -> Message:
    """An assistant's message that gives these arguments in a shape; in a joined one both state the same call."""
    stated: dict[str, Message] = {
        "function": {"type": "function", "function": {"name": "look", "arguments": value}},
        "named": {"name": "look", "arguments": value},
        "arguments": {"tool": "look", "arguments": value},
        "input": {"tool": "look", "input": value},
    }
    message: Message = {"role": "assistant", "content": ""}
    for part in shape.split("+"):
        if part in BLOCK_SHAPES:
            message["content"] = [{"type": part, "id": "c1", "name": "look", "input": value}]
        else:
            message["tool_calls"] = [{"id": "c1", **stated[part]}]
    return message


def meant(value: Any) -> dict[str, Any]:
    """What arguments mean, by the words of the documentation."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
            json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
        except ValueError:
            return {"unparsed_arguments": value}
        value = parsed
    return value if isinstance(value, dict) else {"value": value}


def canonical(value: Any) -> str:
    """JSON text: Python takes 1, 1.0 and true for equal."""
    return json.dumps(value, sort_keys=True)


def shown_arguments(message: Message) -> set[str]:
    """The arguments of the one call a message of a view makes, as each place of it has them."""
    found: list[Any] = []
    for item in message["tool_calls"]:
        function = item.get("function")
        found.append(json.loads(function["arguments"]) if function else item["arguments"])
    content = message["content"]
    found.extend(b["input"] for b in content if b["type"] == "tool_call") if isinstance(content, list) else None
    return {canonical(arguments) for arguments in found}


@given(GIVEN, st.sampled_from(SHAPES))
@example([1], "tool_use")
@example([], "tool_use")
@example(True, "tool_call+function")
@example(HUGE, "tool_use")
@example(NESTED, "tool_call")
@example(10**30, "function")
@example(str(10**30), "tool_use+function")
@example(json.dumps({"id": 10**30}), "tool_call+function")
@example("1e999", "tool_use+function")
@example('"\\ud83d"', "tool_use+function")
async def test_arguments_mean_the_same_in_the_block_the_list_and_the_digest(value: Any, shape: str) -> None:
    stored = calling(shape, value)
    (call,) = calls_of(parse_message(stored)[0])
    expected = canonical(meant(value))
    assert canonical(arguments_of(call)) == expected
    context = await feed(new_manager(), (user("Go."), stored, result("c1")))
    view = await context.get_messages_for_request()
    assert check_request(view) == []
    assert shown_arguments(view[1]) == {expected}
    assert (await context.get_messages())[1]["content"] == stored["content"]
    await context.compact()
    assert check_request(await context.get_messages_for_request()) == []
    assert digest_round(rounds(stored, result("c1"))[0], set(), approx_token_counter, share=1.0).facts


@given(VALUES, VALUES, st.sampled_from(BLOCK_SHAPES), st.sampled_from(LIST_SHAPES))
@example(1, True, "tool_use", "arguments")
async def test_a_call_stated_with_two_values_is_shown_with_that_of_the_list(
    one: Any, other: Any, block: str, listed: str
) -> None:
    stored = {**calling(block, one), "tool_calls": calling(listed, other)["tool_calls"]}
    context = await feed(new_manager(), (user("Go."), stored, result("c1")))
    view = await context.get_messages_for_request()
    assert check_request(view) == []
    assert shown_arguments(view[1]) == {canonical(meant(other))}
