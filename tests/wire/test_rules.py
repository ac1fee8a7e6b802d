"""What the vendors refuse, and that no view of ours is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core import llm_errors
from amplifier_core.message_models import ChatRequest, Message

from amplifier_context_testing import check_request, conversations
from amplifier_context_testing.checks.corpus import Conversation
from amplifier_context_testing.wire import anthropic_rules, openai_rules
from amplifier_context_testing.wire.problems import Model, Refused
from amplifier_context_testing.wire.provider import CLIENTS
from amplifier_context_testing.wire.settings import Settings
from tests.managers import new_manager
from tests.messages import bare, size
from tests.wire.serving import HI, MODEL, READ, ask, wired

pytestmark = pytest.mark.kernel

Body = dict[str, Any]
Change = Callable[[Body], object]

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


def message(body: Body, index: int) -> Body:
    return body["messages"][index]


def block(body: Body, index: int, place: int = 0) -> Body:
    return body["messages"][index]["content"][place]


def inserted(index: int, *messages: Body) -> Change:
    def change(body: Body) -> None:
        body["messages"][index:index] = messages

    return change


OPENAI: dict[str, Change] = {
    "must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have "
    "response messages: c2": lambda body: body["messages"].pop(),
    "response messages: c1, c2": inserted(3, HI),
    "must be a response to a preceeding message with 'tool_calls'": inserted(
        1, {"role": "tool", "tool_call_id": "c0", "content": "Zero."}
    ),
    "'tool_call_id' of 'c9' not found": lambda body: message(body, 4).update(tool_call_id="c9"),
    "Duplicate value for 'tool_call_id' of 'c1', in messages[3] and messages[4]": lambda body: message(body, 4).update(
        tool_call_id="c1"
    ),
    "Duplicate value for 'tool_call_id' of 'c1' in messages[2]": lambda body: message(body, 2)["tool_calls"][1].update(
        id="c1"
    ),
    "Invalid value: 'robot'. Supported values are: 'system', 'assistant'": lambda body: message(body, 1).update(
        role="robot"
    ),
    "expected a string, got null": lambda body: message(body, 1).update(content=None),
    "Invalid 'messages[1].content': empty array": lambda body: message(body, 1).update(content=[]),
    "Invalid 'messages[2].tool_calls': empty array": lambda body: message(body, 2).update(tool_calls=[], content=""),
    "Image URLs are only allowed for messages with role 'user'": lambda body: message(body, 0).update(
        content=message(body, 1)["content"]
    ),
    "unsupported image": lambda body: block(body, 1, 1).update(image_url={"url": "data:image/tiff;base64,AAAA"}),
    "maximum length 40, but got a string with length 41": lambda body: message(body, 2)["tool_calls"][0].update(
        id="c" * 41
    ),
    "matches the pattern '^[a-zA-Z0-9_-]+$'": lambda body: message(body, 2)["tool_calls"][0]["function"].update(
        name="read it"
    ),
    "expected a string, but got an object": lambda body: message(body, 2)["tool_calls"][0]["function"].update(
        arguments={}
    ),
    "Unrecognized request argument supplied: metadat": lambda body: body.update(metadat={}),
    "'metadata' parameter is only allowed when 'store' is enabled": lambda body: body.update(metadata={"purpose": "x"}),
    "max_tokens is too large: 8193": lambda body: body.update(max_completion_tokens=8_193),
    "integer below minimum value": lambda body: body.update(max_completion_tokens=0),
    "must contain the word 'json'": lambda body: body.update(response_format={"type": "json_object"}),
    "Invalid 'tools': empty array": lambda body: body.update(tools=[]),
    "the function name 'read' is used twice": lambda body: body["tools"].append(body["tools"][0]),
    "Invalid 'messages': empty array": lambda body: body.update(messages=[]),
    "does not stream": lambda body: body.update(stream=True),
}

ANTHROPIC: dict[str, Change] = {
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: c2": lambda body: message(
        body, 2
    )["content"].pop(),
    "immediately after: c1, c2": lambda body: message(body, 2)["content"].insert(0, {"type": "text", "text": "Well."}),
    "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: c9": lambda body: block(
        body, 2, 1
    ).update(tool_use_id="c9"),
    "each tool_use must have a single result": lambda body: block(body, 2, 1).update(tool_use_id="c1"),
    "`tool_use` ids must be unique": inserted(
        3,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Three."}]},
    ),
    "A maximum of 4 blocks with cache_control may be provided. Found 5.": lambda body: block(body, 2).update(
        cache_control={"type": "ephemeral"}
    ),
    'Unexpected role "system"': inserted(1, {"role": "system", "content": "Be quick."}),
    'first message must use the "user" role': inserted(0, {"role": "assistant", "content": "Hello."}),
    "does not support assistant message prefill": lambda body: body["messages"].append(
        {"role": "assistant", "content": "I"}
    ),
    "messages.0: all messages must have non-empty content": lambda body: message(body, 0).update(content=[]),
    "text content blocks must be non-empty": lambda body: message(body, 0).update(content=[EMPTY]),
    "cache_control cannot be set for empty text blocks": lambda body: block(body, 0).update(text=""),
    "must contain non-whitespace text": lambda body: message(body, 0).update(content=" \n"),
    "messages.0: `tool_use` blocks can only be in `assistant` messages": lambda body: message(body, 0).update(
        content=message(body, 1)["content"]
    ),
    "String should match pattern '^[a-zA-Z0-9_-]+$'": lambda body: block(body, 1).update(id="a.b"),
    "tool_use.input: Input should be a valid dictionary": lambda body: block(body, 1).update(input="{}"),
    "base64.media_type: Input should be": lambda body: block(body, 0, 1)["source"].update(media_type="image/tiff"),
    "thinking.signature: Field required": lambda body: message(body, 1)["content"].insert(
        0, {"type": "thinking", "thinking": "Hm."}
    ),
    "max_tokens: Field required": lambda body: body.pop("max_tokens"),
    "max_tokens: 8193 > 8192": lambda body: body.update(max_tokens=8_193),
    "metadata.purpose: Extra inputs are not permitted": lambda body: body.update(metadata={"purpose": "x"}),
    "messages: at least one message is required": lambda body: body.update(messages=[]),
    "Tool names must be unique": lambda body: body["tools"].append(
        {"name": "read", "input_schema": {"type": "object"}}
    ),
    "system: text content blocks must be non-empty": lambda body: body.update(system=[EMPTY]),
}


def refused_by(check: Callable[[Body, Model | None], None], body: Body) -> str | None:
    try:
        check(body, MODEL)
    except Refused as refusal:
        return refusal.message
    return None


def test_both_bodies_are_accepted() -> None:
    assert refused_by(openai_rules.check, openai_body()) is None
    assert refused_by(anthropic_rules.check, anthropic_body()) is None


@pytest.mark.parametrize("words", OPENAI)
def test_openai_refuses(words: str) -> None:
    body = copy.deepcopy(openai_body())
    OPENAI[words](body)
    assert words in str(refused_by(openai_rules.check, body))


@pytest.mark.parametrize("words", ANTHROPIC)
def test_anthropic_refuses(words: str) -> None:
    body = copy.deepcopy(anthropic_body())
    ANTHROPIC[words](body)
    assert words in str(refused_by(anthropic_rules.check, body))


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
    clients: dict[str, Any] = {api: CLIENTS[api](Settings(api, "http://127.0.0.1:9")) for api in RULES}
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
                assert refused_by(check, clients[api].body(request)) is None
        assert bare(await manager.get_messages()) == bare(odd.messages)
    for client in clients.values():
        await client.close()
