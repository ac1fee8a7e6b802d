"""The judge: what it lets pass, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_testing import check_request
from amplifier_context_testing.checks.conversation_builder import image_block

Messages = list[dict[str, Any]]


def conversation_of(*more: dict[str, Any]) -> Messages:
    return [{"role": "user", "content": "Hi."}, *more]


def openai_call(id: Any = "c1", name: Any = "read", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calling(*calls: dict[str, Any], content: Any = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: Any = "c1", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def thinking(signature: str | None = "c2ln") -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": signature}


TEXT = {"type": "text", "text": "so"}
VALID: dict[str, Messages] = {
    "a question": conversation_of(),
    "a system prompt before it": [{"role": "system", "content": "Be good."}, *conversation_of()],
    "a call and its result": conversation_of(calling(openai_call()), result()),
    "an empty result": conversation_of(calling(openai_call()), result(content="")),
    "words beside calls": conversation_of(calling(openai_call(), content="I look."), result()),
    "parallel calls answered in another order": conversation_of(
        calling(openai_call("a"), openai_call("b")), result("b"), result("a"), {"role": "assistant", "content": "Done."}
    ),
    "a kernel call spelled twice": conversation_of(
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "k", "name": "read", "input": {}}],
            "tool_calls": [{"id": "k", "tool": "read", "arguments": {}}],
        },
        result("k"),
    ),
    "results as blocks, text after them": conversation_of(
        {"role": "assistant", "content": [{"type": "tool_call", "id": "k", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_call_id": "k", "output": "1"}, TEXT]},
    ),
    "results as blocks in two messages": conversation_of(
        calling(openai_call("a"), openai_call("b")),
        {"role": "user", "content": [{"type": "tool_result", "tool_call_id": "a", "output": "1"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_call_id": "b", "output": "2"}]},
    ),
    "signed thinking first": conversation_of({"role": "assistant", "content": [thinking(), TEXT]}),
    "thinking closed by listed calls": conversation_of(calling(openai_call(), content=[thinking()]), result()),
    "thinking between calls": conversation_of(
        {
            "role": "assistant",
            "content": [
                thinking(),
                {"type": "tool_call", "id": "a", "name": "read", "input": {}},
                thinking(),
                {"type": "tool_call", "id": "b", "name": "read", "input": {}},
            ],
        },
        result("a"),
        result("b"),
    ),
    "an image from the user": [{"role": "user", "content": [image_block()]}],
    "an image from a tool": conversation_of(calling(openai_call()), result(content=[image_block()])),
    "users in a row": conversation_of({"role": "user", "content": "Hello?"}),
    "assistants in a row": conversation_of(
        {"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}
    ),
    "a system message in the middle": conversation_of(
        {"role": "assistant", "content": "Hi."}, {"role": "system", "content": "x"}
    ),
    "ids and names at their longest": conversation_of(
        {**calling(openai_call("x" * 40, "_" + "n" * 63)), "name": "1" * 64},
        {**result("x" * 40), "name": "read-file_2"},
    ),
    "an active instruction": [
        {"role": "developer", "content": "x", "metadata": {"amplifier:instruction": {"disposition": "active"}}},
        *conversation_of(),
    ],
}

BROKEN: dict[str, tuple[Messages, str]] = {
    "nothing": ([], "the request is empty"),
    "system messages only": ([{"role": "system", "content": "x"}], "system messages only"),
    "an assistant first": ([{"role": "assistant", "content": "Hi."}], "message 0 (assistant) comes first"),
    "a tool first": ([{"role": "system", "content": "x"}, result()], "message 1 (tool) comes first"),
    "an unknown role": (
        conversation_of({"role": "robot", "content": "x"}),
        "message 1 (robot) has the role 'robot', which",
    ),
    "no role": (conversation_of({"content": "x"}), "has the role None"),
    "a function result": (conversation_of({"role": "function", "name": "f", "content": "x"}), "providers do not take"),
    "what the kernel refuses": (
        conversation_of({"role": "user", "content": [{"type": "file", "id": "f"}]}),
        "refused by the kernel",
    ),
    "NaN": (conversation_of({"role": "user", "content": "x", "metadata": {"n": float("nan")}}), "is not JSON"),
    "an object": (conversation_of({"role": "user", "content": "x", "metadata": {"n": object()}}), "is not JSON"),
    "a lone surrogate": (conversation_of({"role": "user", "content": "x\ud83d"}), "lone surrogate (U+D83D)"),
    "null content": (
        conversation_of(calling(openai_call(), content=None), result()),
        "message 1 (assistant) has no content",
    ),
    "absent content": (conversation_of({"role": "assistant"}), "has no content"),
    "a null result": (conversation_of(calling(openai_call()), result(content=None)), "message 2 (tool) has no content"),
    "empty content": (conversation_of({"role": "assistant", "content": ""}), "has empty content"),
    "an empty system prompt": (
        [{"role": "system", "content": ""}, *conversation_of()],
        "message 0 (system) has empty content",
    ),
    "white space only": (conversation_of({"role": "user", "content": " \n"}), "white space only"),
    "white space beside calls": (conversation_of(calling(openai_call(), content=" "), result()), "white space only"),
    "an empty list": (conversation_of(calling(openai_call(), content=[]), result()), "an empty list as content"),
    "a number as content": (conversation_of({"role": "user", "content": 1}), "content of type int"),
    "a text as block": (conversation_of({"role": "user", "content": ["x"]}), "content block 0 of type str"),
    "an empty text block": (
        conversation_of({"role": "user", "content": [{"type": "text", "text": " "}]}),
        "empty text block (block 0)",
    ),
    "an empty text block in a result": (
        conversation_of(calling(openai_call()), result(content=[{"type": "text", "text": ""}])),
        "empty text block (block 0)",
    ),
    "an empty text block deep in a result": (
        conversation_of(
            calling(openai_call()),
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_call_id": "c1", "output": [{"type": "text", "text": ""}]}],
            },
        ),
        "empty text block (block 0.0)",
    ),
    "an image from the assistant": (
        conversation_of({"role": "assistant", "content": [image_block()]}),
        "only users and tools may",
    ),
    "an image without a source": ([{"role": "user", "content": [{"type": "image", "source": {}}]}], "without a source"),
    "an image without data": (
        [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png"}}]}],
        "without a source",
    ),
    "an image without a url": (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        "without a source",
    ),
    "thinking of the user": ([{"role": "user", "content": [thinking(), TEXT]}], "only the assistant thinks"),
    "signed thinking after text": (
        conversation_of({"role": "assistant", "content": [TEXT, thinking(), TEXT]}),
        "not start with",
    ),
    "redacted thinking after text": (
        conversation_of({"role": "assistant", "content": [TEXT, {"type": "redacted_thinking", "data": "x"}, TEXT]}),
        "not start with",
    ),
    "thinking last": (conversation_of({"role": "assistant", "content": [thinking(None)]}), "ends with thinking"),
    "an empty list of calls": (
        conversation_of({"role": "assistant", "content": "x", "tool_calls": []}),
        "not a list of calls",
    ),
    "a user's call": (
        conversation_of({**calling(openai_call(), content="x"), "role": "user"}),
        "only the assistant may",
    ),
    "a call that is text": (
        conversation_of({"role": "assistant", "content": "x", "tool_calls": ["read"]}),
        "is not an object",
    ),
    "a call of another type": (conversation_of(calling(openai_call(type="tool")), result()), "must be 'function'"),
    "a call without an id": (conversation_of(calling(openai_call(id="")), result("")), "without an id"),
    "a call without a name": (conversation_of(calling(openai_call(name="")), result()), "without a name"),
    "arguments that are a dict": (conversation_of(calling(openai_call(arguments={})), result()), "not JSON text"),
    "arguments that are no JSON": (conversation_of(calling(openai_call(arguments="{")), result()), "not a JSON object"),
    "arguments that are a list": (conversation_of(calling(openai_call(arguments="[]")), result()), "not a JSON object"),
    "kernel arguments that are text": (
        conversation_of(calling({"id": "c1", "tool": "read", "arguments": "{}"}), result()),
        "not an object",
    ),
    "an id used twice in a message": (
        conversation_of(calling(openai_call(), openai_call()), result()),
        "two calls of the id 'c1'",
    ),
    "an id used again": (
        conversation_of(calling(openai_call()), result(), calling(openai_call()), result()),
        "message 3 (assistant) uses the call id 'c1' of message 1 again",
    ),
    "an id with characters of another provider's": (
        conversation_of(calling(openai_call("functions.bash:0")), result("functions.bash:0")),
        "has the call id 'functions.bash:0', which not every provider takes",
    ),
    "an id of 41 characters": (
        conversation_of(calling(openai_call("x" * 41)), result("x" * 41)),
        "not every provider takes",
    ),
    "an id that ends its line": (
        conversation_of(calling(openai_call("x\n")), result("x\n")),
        "not every provider takes",
    ),
    "a tool name with a dot": (
        conversation_of(calling(openai_call(name="web.search")), result()),
        "by the name 'web.search'",
    ),
    "a tool name that begins with a digit": (
        conversation_of(calling(openai_call(name="1st")), result()),
        "by the name '1st'",
    ),
    "a tool name of 65 characters": (
        conversation_of(calling(openai_call(name="n" * 65)), result()),
        "by the name 'nnn",
    ),
    "a result's name with a dot": (
        conversation_of(calling(openai_call()), {**result(), "name": "web.search"}),
        "has the name",
    ),
    "a speaker with a space": (
        conversation_of({"role": "user", "name": "Dr. No", "content": "x"}),
        "has the name 'Dr. No'",
    ),
    "a speaker without a name": (conversation_of({"role": "user", "name": "", "content": "x"}), "has the name ''"),
    "a result without an id": (
        conversation_of(calling(openai_call()), result(), result(None)),
        "without the id of its call",
    ),
    "a result block on the assistant": (
        conversation_of(
            {"role": "assistant", "content": [{"type": "tool_result", "tool_call_id": "a", "output": "x"}]}
        ),
        "only users and tools may",
    ),
    "a result block after text": (
        conversation_of(
            calling(openai_call()),
            {"role": "user", "content": [TEXT, {"type": "tool_result", "tool_call_id": "c1", "output": "x"}]},
        ),
        "results come first",
    ),
    "an unanswered call": (
        conversation_of(calling(openai_call())),
        "message 1 (assistant) makes the call 'c1', not answered",
    ),
    "one of two unanswered": (
        conversation_of(calling(openai_call("a"), openai_call("b")), result("a")),
        "call 'b', not answered",
    ),
    "a message between": (
        conversation_of(calling(openai_call()), {"role": "system", "content": "note"}, result()),
        "message 1 (assistant) makes the call 'c1', not answered directly",
    ),
    "a late result": (
        conversation_of(calling(openai_call()), {"role": "user", "content": "?"}, result()),
        "message 3 (tool) answers 'c1', a call of message 1 that is not open any more",
    ),
    "an orphan result": (conversation_of(result("x")), "message 1 (tool) answers 'x', a call that was never made"),
    "a second result": (conversation_of(calling(openai_call()), result(), result()), "a second time"),
    "a retired instruction": (
        [
            {"role": "developer", "content": "x", "metadata": {"amplifier:instruction": {"disposition": "retired"}}},
            *conversation_of(),
        ],
        "instruction record that was retired",
    ),
    "a reference-only row": (
        conversation_of({"role": "user", "content": "x", "metadata": {"amplifier_public_reference_only": True}}),
        "reference only",
    ),
}


@pytest.mark.parametrize("name", VALID)
def test_what_providers_take_passes(name: str) -> None:
    assert check_request(VALID[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_providers_refuse_is_named(name: str) -> None:
    messages, sentence = BROKEN[name]
    assert sentence in "\n".join(check_request(messages))
