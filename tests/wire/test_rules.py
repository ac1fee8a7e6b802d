"""What the vendors refuse, and that no view of ours is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core import llm_errors
from amplifier_core.message_models import ChatRequest, Message

from amplifier_context_testing import check_request, conversations
from amplifier_context_testing.checks.corpus import Conversation
from amplifier_context_testing.wire import anthropic_rules, openai_rules
from amplifier_context_testing.wire.problems import Model, Refused
from amplifier_context_testing.wire.provider import WireProvider
from tests.managers import new_manager
from tests.messages import bare, size
from tests.wire.serving import HI, MODEL, READ, ask, wired

pytestmark = pytest.mark.kernel

Body = dict[str, Any]

IMAGE = "iVBORw0KGgo="
EMPTY = {"type": "text", "text": ""}


def openai_body() -> Body:
    """A valid request with two calls and an image."""
    function = {"name": "read", "description": "Reads.", "parameters": {"type": "object", "properties": {}}}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
    calls = [{"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}} for name in ("c1", "c2")]
    return {
        "model": MODEL.id,
        "max_completion_tokens": 100,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Look."}, image]},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "One."},
            {"role": "tool", "tool_call_id": "c2", "content": "Two."},
        ],
        "tools": [{"type": "function", "function": function}],
    }


def anthropic_body() -> Body:
    """A valid request with two calls, an image and four breakpoints."""
    mark = {"cache_control": {"type": "ephemeral"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    calls = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in ("c1", "c2")]
    return {
        "model": MODEL.id,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Look.", **mark}, image],
            },
            {"role": "assistant", "content": calls},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "One."},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "Two.", **mark},
                ],
            },
        ],
        "tools": [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}, **mark}],
    }


GONE = object()
CALL = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
BREAKPOINT = {"cache_control": {"type": "ephemeral"}}


def changed(body: Body, path: str, value: object) -> Body:
    """Put a value into a body, `GONE` to take one out; `+3` inserts the values of a list there."""
    *way, last = path.split(".")
    holder: Any = body
    for key in way:
        holder = holder[int(key)] if isinstance(holder, list) else holder[key]
    if last.startswith("+"):
        holder[int(last) : int(last)] = value
    elif value is GONE:
        holder.pop(int(last) if isinstance(holder, list) else last)
    else:
        holder[int(last) if isinstance(holder, list) else last] = value
    return body


Row = tuple[str, object, str]
OPENAI: list[Row] = [
    ("messages.4", GONE, "The following tool_call_ids did not have response messages: c2"),
    ("messages.+3", [HI], "response messages: c1, c2"),
    ("messages.+1", [{"role": "tool", "tool_call_id": "c0", "content": "0"}], "must be a response to a preceeding"),
    ("messages.4.tool_call_id", "c9", "'tool_call_id' of 'c9' not found"),
    ("messages.4.tool_call_id", "c1", "Duplicate value for 'tool_call_id' of 'c1', in messages[3] and messages[4]"),
    ("messages.2.tool_calls.1.id", "c1", "Duplicate value for 'tool_call_id' of 'c1' in messages[2]"),
    ("messages.1.role", "robot", "Invalid value: 'robot'. Supported values are: 'system', 'assistant'"),
    ("messages.1.content", None, "expected a string, got null"),
    ("messages.1.content", [], "Invalid 'messages[1].content': empty array"),
    (
        "messages.2",
        {"role": "assistant", "content": "", "tool_calls": []},
        "Invalid 'messages[2].tool_calls': empty array",
    ),
    ("messages.1.role", "system", "Image URLs are only allowed for messages with role 'user'"),
    ("messages.1.content.1.image_url.url", "data:image/tiff;base64,AAAA", "unsupported image"),
    ("messages.2.tool_calls.0.id", "c" * 41, "maximum length 40, but got a string with length 41"),
    ("messages.2.tool_calls.0.function.name", "read it", "matches the pattern '^[a-zA-Z0-9_-]+$'"),
    ("messages.2.tool_calls.0.function.arguments", {}, "expected a string, but got an object"),
    ("metadata", {}, "Unrecognized request argument supplied: metadata"),
    ("max_completion_tokens", 8_193, "max_tokens is too large: 8193"),
    ("tools", [], "Invalid 'tools': empty array"),
    ("messages", [], "Invalid 'messages': empty array"),
]
ANTHROPIC: list[Row] = [
    ("messages.2.content.1", GONE, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately"),
    ("messages.2.content.+0", [{"type": "text", "text": "Well."}], "immediately after: c1, c2"),
    ("messages.2.content.1.tool_use_id", "c9", "messages.2.content.1: unexpected `tool_use_id` found in `tool_result`"),
    ("messages.2.content.1.tool_use_id", "c1", "each tool_use must have a single result"),
    ("messages.1.content.1.id", "c1", "`tool_use` ids must be unique"),
    ("messages.2.content.0", {"type": "tool_result", "tool_use_id": "c1", **BREAKPOINT}, "A maximum of 4 blocks"),
    ("messages.+1", [{"role": "system", "content": "Be quick."}], 'Unexpected role "system"'),
    ("messages.+0", [{"role": "assistant", "content": "Hello."}], 'first message must use the "user" role'),
    ("messages.+3", [{"role": "assistant", "content": "I"}], "does not support assistant message prefill"),
    ("messages.0.content", [], "messages.0: all messages must have non-empty content"),
    ("messages.0.content", [EMPTY], "text content blocks must be non-empty"),
    ("messages.0.content.0.text", "", "cache_control cannot be set for empty text blocks"),
    ("messages.0.content", " \n", "must contain non-whitespace text"),
    ("messages.0.content", [CALL], "messages.0: `tool_use` blocks can only be in `assistant` messages"),
    ("messages.1.content.0.id", "a.b", "String should match pattern '^[a-zA-Z0-9_-]+$'"),
    ("messages.1.content.0.input", "{}", "tool_use.input: Input should be a valid dictionary"),
    ("messages.0.content.1.source.media_type", "image/tiff", "base64.media_type: Input should be"),
    ("messages.1.content.+0", [{"type": "thinking", "thinking": "Hm."}], "thinking.signature: Field required"),
    ("max_tokens", GONE, "max_tokens: Field required"),
    ("max_tokens", 8_193, "max_tokens: 8193 > 8192"),
    ("metadata", {}, "metadata: Extra inputs are not permitted"),
    ("messages", [], "messages: at least one message is required"),
    ("system", [EMPTY], "system: text content blocks must be non-empty"),
]


def refused_by(check: Callable[[Body, Model], None], body: Body) -> str | None:
    try:
        check(body, MODEL)
    except Refused as refusal:
        return refusal.message
    return None


def test_both_bodies_are_accepted() -> None:
    assert refused_by(openai_rules.check, openai_body()) is None
    assert refused_by(anthropic_rules.check, anthropic_body()) is None


@pytest.mark.parametrize(("path", "value", "words"), OPENAI)
def test_openai_refuses(path: str, value: object, words: str) -> None:
    assert words in str(refused_by(openai_rules.check, changed(openai_body(), path, value)))


@pytest.mark.parametrize(("path", "value", "words"), ANTHROPIC)
def test_anthropic_refuses(path: str, value: object, words: str) -> None:
    assert words in str(refused_by(anthropic_rules.check, changed(anthropic_body(), path, value)))


RULES = {"openai": openai_rules.check, "anthropic": anthropic_rules.check}
BROKEN = [HI, {"role": "tool", "tool_call_id": "c1", "content": "A result without its call."}]


@pytest.mark.parametrize(
    ("api", "words"),
    [("openai", "preceeding message with 'tool_calls'"), ("anthropic", "unexpected `tool_use_id` found")],
)
async def test_a_refusal_reaches_the_session_in_the_vendors_words(api: str, words: str) -> None:
    async with wired(api, lambda request: "Yes.") as wire:
        with pytest.raises(llm_errors.InvalidRequestError, match=words) as caught:
            await wire.provider.complete(ask(*BROKEN, tools=[READ]))
    assert caught.value.status_code == 400
    assert len(wire.service.refusals) == 1


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_request_above_the_window_is_a_context_length_error(api: str) -> None:
    small = Model("wire-1", context_window=9_000)
    long = {"role": "user", "content": "word " * 1_000}
    async with wired(api, lambda request: "Yes.", model=small) as wire:
        with pytest.raises(llm_errors.ContextLengthError):
            await wire.provider.complete(ask(long))
        assert (await wire.provider.complete(ask(long, max_output_tokens=100))).content[0].text == "Yes."


# Tokens: all of it, then so few that every kind of compaction is needed.
BUDGETS = (100_000, 1_200, 400, 150)


@pytest.mark.parametrize("odd", conversations(), ids=lambda odd: odd.name)
async def test_every_view_of_an_odd_conversation_is_accepted_by_the_checker_and_both_vendors(odd: Conversation) -> None:
    providers = {api: WireProvider({"api": api, "base_url": "http://127.0.0.1:9"}) for api in RULES}
    for budget in BUDGETS:
        manager = new_manager(session_id=str(budget))
        for message in odd.messages:
            await manager.add_message(message)
            view = await manager.get_messages_for_request(budget)
            if not any(message["role"] == "user" for message in view):
                continue  # no loop requests an empty conversation
            assert check_request(view) == []
            assert size(view) <= budget or (await manager.explain())["warnings"]
            spoken = [message for message in view if message["role"] not in ("system", "developer")]
            asked = [*view, HI] if spoken[-1]["role"] == "assistant" else view  # the prompt that a request answers
            request = ChatRequest(messages=[Message(**message) for message in asked], tools=[READ])
            for api, check in RULES.items():
                assert refused_by(check, providers[api].body(request)) is None
        assert bare(await manager.get_messages()) == bare(odd.messages)
    for provider in providers.values():
        await provider.close()
