"""What the services refuse, and that no view of ours is refused."""

from typing import Any

import pytest
from amplifier_core import llm_errors

from amplifier_context_testing import check_request, conversations
from amplifier_context_testing.checks.corpus import Conversation
from amplifier_context_testing.wire.apis import Model, Refused
from amplifier_context_testing.wire.provider import WireProvider
from tests.managers import new_manager
from tests.messages import IMAGE, bare, block, result, says, size, system, user
from tests.wire.serving import APIS, HI, READ, ask, service_of, wired

pytestmark = pytest.mark.kernel

Body = dict[str, Any]

CALLS = [{"id": name, "tool": "read", "arguments": {}} for name in ("c1", "c2")]
ASKED = [system(), user([block("Look."), IMAGE]), says("", tool_calls=CALLS), result("c1"), result("c2")]
PROVIDERS = {api: WireProvider({"api": api, "base_url": "http://127.0.0.1:9"}) for api in APIS}
SERVICES = {api: service_of(api, lambda request: "Yes.") for api in APIS}

GONE = object()
EMPTY = {"type": "text", "text": ""}
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
    ("messages.4", GONE, "makes the call 'c2', not answered"),
    ("messages.+3", [HI], "makes the call 'c1', not answered"),
    ("messages.+1", [{"role": "tool", "tool_call_id": "c0", "content": "0"}], "a call that was never made"),
    ("messages.4.tool_call_id", "c1", "a second time"),
    ("messages.2.tool_calls.1.id", "c1", "makes two calls of the id 'c1'"),
    ("messages.1.role", "robot", "not the form of this API"),
    ("messages.1.content", [], "an empty list as content"),
    ("messages.1.role", "system", "Image URLs are only allowed for messages with role 'user'"),
    ("messages.2.tool_calls.0.id", "c" * 41, "has the call id 'ccc"),
    ("messages.2.tool_calls.0.function.arguments", "[", "not the form of this API"),
    ("messages.2.tool_calls.0.function", GONE, "not the form of this API: KeyError"),
    ("metadata", {}, "unknown argument: metadata"),
    ("max_completion_tokens", 8_193, "max_tokens is too large: 8193"),
    ("messages", [], "the request is empty"),
]
ANTHROPIC: list[Row] = [
    ("messages.2.content.1", GONE, "makes the call 'c2', not answered"),
    ("messages.2.content.1.tool_use_id", "c9", "answers 'c9', a call that was never made"),
    ("messages.2.content.0", {"type": "tool_result", "tool_use_id": "c1", **BREAKPOINT}, "A maximum of 4 blocks"),
    ("messages.+0", [{"role": "assistant", "content": "Hello."}], "the first must be the user's"),
    ("messages.+3", [{"role": "assistant", "content": "I"}], "does not support assistant message prefill"),
    ("messages.0.content", [EMPTY], "has an empty text block"),
    ("messages.0.content", " \n", "white space only"),
    ("messages.0.content", [CALL], "only the assistant may"),
    ("messages.1.content.0.id", "a.b", "has the call id 'a.b'"),
    ("messages.1.content.0.input", "{}", "not the form of this API"),
    ("max_tokens", GONE, "not the form of this API: KeyError: 'max_tokens'"),
    ("metadata", {}, "unknown argument: metadata"),
]


def refused_by(api: str, body: Body) -> str | None:
    try:
        SERVICES[api].accept(body)
    except Refused as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize(
    ("api", "path", "value", "words"),
    [*[("openai", *row) for row in OPENAI], *[("anthropic", *row) for row in ANTHROPIC]],
)
def test_a_service_refuses_what_its_vendor_does(api: str, path: str, value: object, words: str) -> None:
    body = PROVIDERS[api].body(ask(*ASKED, tools=[READ]))
    assert refused_by(api, body) is None
    assert words in str(refused_by(api, changed(body, path, value)))


@pytest.mark.parametrize("api", APIS)
async def test_a_refusal_reaches_the_session(api: str) -> None:
    async with wired(api, lambda request: "Yes.") as wire:
        with pytest.raises(llm_errors.InvalidRequestError, match="a call that was never made") as caught:
            await wire.provider.complete(ask(HI, result("c1"), tools=[READ]))
    assert (caught.value.status_code, len(wire.service.refusals)) == (400, 1)


@pytest.mark.parametrize("api", APIS)
async def test_a_request_above_the_window_is_a_context_length_error(api: str) -> None:
    long = user("word " * 1_000)
    async with wired(api, lambda request: "Yes.", model=Model("wire-1", context_window=9_000)) as wire:
        with pytest.raises(llm_errors.ContextLengthError):
            await wire.provider.complete(ask(long))
        assert (await wire.provider.complete(ask(long, max_output_tokens=100))).content[0].text == "Yes."


# Tokens: all of it, then so few that every kind of compaction is needed.
BUDGETS = (100_000, 1_200, 400, 150)


@pytest.mark.parametrize("odd", conversations(), ids=lambda odd: odd.name)
async def test_every_view_of_an_odd_conversation_is_accepted_by_the_checker_and_both_services(
    odd: Conversation,
) -> None:
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
            for api, provider in PROVIDERS.items():
                assert refused_by(api, provider.body(ask(*asked, tools=[READ]))) is None
        assert bare(await manager.get_messages()) == bare(odd.messages)
