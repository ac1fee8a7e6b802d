"""Answers over the wire: what a script says arrives as the kernel's response."""

import pytest
from amplifier_core import HookRegistry, llm_errors
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation.behavioral import ProviderBehaviorTests

from amplifier_context_testing import EventRecorder
from amplifier_context_testing.wire import provider as module
from amplifier_context_testing.wire.apis import Fault, faults_first, rate_limited, unavailable
from tests.wire.serving import APIS, HI, ask, wired

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("api", APIS)]


class TestKernelContract(ProviderBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture
    async def provider_module(self, api: str) -> module.WireProvider:
        coordinator = MockCoordinator()
        await module.mount(coordinator, {"api": api, "base_url": "http://127.0.0.1:9", "name": "wire"})
        return coordinator.get("providers")["wire"]


async def test_thinking_comes_with_a_signature_and_goes_back(api: str) -> None:
    async with wired(api, lambda request: {"thinking": "Hm.", "text": "Yes."}) as wire:
        response = await wire.provider.complete(ask())
        kinds = [block.type for block in response.content]
        assert kinds == {"openai": ["text"], "anthropic": ["thinking", "text"]}[api]
        content = [block.model_dump(exclude_none=True) for block in response.content]
        await wire.provider.complete(ask(HI, {"role": "assistant", "content": content}, HI))
    assert wire.service.refusals == []


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
    recorder = EventRecorder(hooks := HookRegistry(), ["llm:response"])
    async with wired(api, faults_first(lambda request: "Yes.", fault), hooks=hooks) as wire:
        with pytest.raises(error) as caught:
            await wire.provider.complete(ask())
        assert (await wire.provider.complete(ask())).content[0].text == "Yes."
    assert type(caught.value) is error
    assert (caught.value.provider, caught.value.model, caught.value.status_code) == (api, "wire-1", fault.status)
    assert (caught.value.retry_after, caught.value.retryable) == (retry_after, retryable)
    assert [data["status"] for data in recorder.named("llm:response")] == ["error", "ok"]
