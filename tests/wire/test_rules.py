"""What the vendors refuse and answer, and that no view of ours is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core import llm_errors
from amplifier_core.message_models import ChatRequest, Message
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ProviderValidator
from amplifier_core.validation.behavioral import ProviderBehaviorTests

from amplifier_context_testing import check_request, conversations
from amplifier_context_testing.checks.corpus import Conversation
from amplifier_context_testing.wire import anthropic_rules, openai_rules
from amplifier_context_testing.wire import provider as wire_module
from amplifier_context_testing.wire.problems import Model, Refused
from amplifier_context_testing.wire.provider import WireProvider
from amplifier_context_testing.wire.replies import Fault, faults_first, rate_limited, unavailable
from tests.managers import new_manager
from tests.messages import bare, says, size
from tests.wire.serving import APIS, HI, MODEL, READ, Hooks, ask, wired

pytestmark = pytest.mark.kernel
Body = dict[str, Any]
IMAGE = "iVBORw0KGgo="
EMPTY = {"type": "text", "text": ""}
MARK = {"cache_control": {"type": "ephemeral"}}


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
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    calls = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in ("c1", "c2")]
    return {
        "model": MODEL.id,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look.", **MARK}, image]},
            {"role": "assistant", "content": calls},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "One."},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "Two.", **MARK},
                ],
            },
        ],
        "tools": [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}, **MARK}],
    }


GONE = object()
CALL = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}


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
    ("messages.2", says("", tool_calls=[]), "Invalid 'messages[2].tool_calls': empty array"),
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
    ("messages.2.content.0", {"type": "tool_result", "tool_use_id": "c1", **MARK}, "A maximum of 4 blocks"),
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


RULES = {"openai": openai_rules.check, "anthropic": anthropic_rules.check}
BODIES = {"openai": openai_body, "anthropic": anthropic_body}


@pytest.mark.parametrize(
    ("api", "path", "value", "words"),
    [*(("openai", *row) for row in OPENAI), *(("anthropic", *row) for row in ANTHROPIC)],
)
def test_a_valid_body_is_accepted_and_one_with_a_fault_is_refused(
    api: str, path: str, value: object, words: str
) -> None:
    assert refused_by(RULES[api], BODIES[api]()) is None
    assert words in str(refused_by(RULES[api], changed(BODIES[api](), path, value)))


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


@pytest.mark.parametrize("api", APIS)
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


# -- answers: what a script says arrives as the response of the kernel -------------------------------------------------


@pytest.mark.parametrize("api", APIS)
class TestKernelContract(ProviderBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture
    async def provider_module(self, api: str) -> wire_module.WireProvider:
        coordinator = MockCoordinator()
        await wire_module.mount(coordinator, {"api": api, "base_url": "http://127.0.0.1:9", "name": "wire"})
        return coordinator.get("providers")["wire"]


@pytest.mark.parametrize("api", APIS)
async def test_the_kernels_validator_passes_it(api: str) -> None:
    config = {"api": api, "base_url": "http://127.0.0.1:9"}
    result = await ProviderValidator().validate("amplifier_context_testing.wire.provider", config=config)
    assert result.passed, result.summary()


@pytest.mark.parametrize("api", APIS)
async def test_thinking_comes_with_a_signature_and_goes_back(api: str) -> None:
    async with wired(api, lambda request: {"thinking": "Hm.", "text": "Yes."}) as wire:
        response = await wire.provider.complete(ask())
        kinds = [block.type for block in response.content]
        assert kinds == {"openai": ["text"], "anthropic": ["thinking", "text"]}[api]
        content = [block.model_dump(exclude_none=True) for block in response.content]
        await wire.provider.complete(ask(HI, {"role": "assistant", "content": content}, HI))
    assert wire.service.refusals == []


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("fault", "error", "retry_after", "retryable"),
    [
        (rate_limited(7), llm_errors.RateLimitError, 7.0, True),
        (unavailable(500), llm_errors.ProviderUnavailableError, None, True),
        (unavailable(529), llm_errors.ProviderUnavailableError, None, True),
        (Fault(403, "No."), llm_errors.AccessDeniedError, None, False),
        (Fault(413, "Too large."), llm_errors.ContextLengthError, None, False),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Fault) else None,
)
async def test_a_fault_is_the_kernels_error_and_the_next_request_is_answered(
    api: str, fault: Fault, error: type[Exception], retry_after: float | None, retryable: bool
) -> None:
    hooks = Hooks()
    async with wired(api, faults_first(lambda request: "Yes.", fault), hooks=hooks) as wire:
        with pytest.raises(error) as caught:
            await wire.provider.complete(ask())
        assert (await wire.provider.complete(ask())).content[0].text == "Yes."
    assert type(caught.value) is error
    assert (caught.value.provider, caught.value.model) == (api, "wire-1")
    assert caught.value.status_code == fault.status
    assert caught.value.retry_after == retry_after
    assert caught.value.retryable is retryable
    assert [data["status"] for event, data in hooks.emitted if event == "llm:response"] == ["error", "ok"]
