"""The provider without a model."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core.llm_errors import RateLimitError
from amplifier_core.message_models import ChatRequest, Message, ToolSpec
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ProviderValidator
from amplifier_core.validation.behavioral import ProviderBehaviorTests

from amplifier_context_testing import EventRecorder, ReplayProvider, WordCounter
from amplifier_context_testing.replay import provider as module

pytestmark = pytest.mark.kernel

HI = {"role": "user", "content": "Hi there."}


def ask(*messages: dict[str, Any], tools: list[ToolSpec] | None = None) -> ChatRequest:
    return ChatRequest(messages=[Message(**message) for message in messages or (HI,)], tools=tools)


def provider(**config: Any) -> ReplayProvider:
    return ReplayProvider(config, counter=WordCounter())


class TestKernelContract(ProviderBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture
    async def provider_module(self) -> ReplayProvider:
        coordinator = MockCoordinator()
        await module.mount(coordinator, {})
        return coordinator.get("providers")["replay"]


async def test_the_kernels_validator_passes_it() -> None:
    result = await ProviderValidator().validate("amplifier_context_testing.replay.provider", config={"script": ["Hi."]})
    assert result.passed, result.summary()


async def test_a_script_is_answered_in_order_and_ends_politely() -> None:
    replay = provider(script=["One.", {"text": "Two.", "calls": [{"tool": "read", "arguments": {"path": "a"}}]}])
    first, second, third = [await replay.complete(ask()) for _ in range(3)]
    assert first.content[0].text == "One."
    assert first.finish_reason == "stop"
    assert [(call.name, call.arguments) for call in replay.parse_tool_calls(second)] == [("read", {"path": "a"})]
    assert [block.type for block in second.content] == ["text", "tool_call"]
    assert second.content[1].id == second.tool_calls[0].id
    assert third.content[0].text == "(end of the script)"


async def test_an_exception_in_a_script_is_raised_in_place_of_an_answer() -> None:
    replay = provider(script=[RateLimitError("too fast", provider="replay"), "One."])
    with pytest.raises(RateLimitError):
        await replay.complete(ask())
    assert (await replay.complete(ask())).content[0].text == "One."


async def test_usage_is_reported_on_llm_response_as_plain_numbers_with_cache_reads() -> None:
    coordinator = MockCoordinator()
    recorder = EventRecorder(coordinator)
    await module.mount(coordinator, {"script": ["One two.", "Three."], "model": "m-1"})
    replay = coordinator.get("providers")["replay"]
    await replay.complete(ask(HI))
    response = await replay.complete(ask(HI, {"role": "assistant", "content": "One two."}, HI))
    first, second = recorder.named("llm:response")
    assert set(second["usage"]) == {"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"}
    assert (second["provider"], second["model"], second["status"]) == ("replay", "m-1", "ok")
    assert first["usage"]["cache_read_tokens"] == 0
    assert second["usage"]["cache_read_tokens"] == first["usage"]["input_tokens"]
    assert second["usage"]["input_tokens"] == response.usage.input_tokens > first["usage"]["input_tokens"]
    assert isinstance(second["duration_ms"], int)
    assert second["request_id"] == recorder.named("llm:request")[1]["request_id"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"context_window": 0}, "context_window is 0"),
        ({"max_output_tokens": "many"}, "max_output_tokens is 'many'"),
        ({"script": 3}, "`script` is a list"),
        ({"script": "nowhere"}, "module:factory"),
    ],
)
def test_a_config_that_cannot_be_is_named(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ReplayProvider(config)
