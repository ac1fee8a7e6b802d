"""Models with small windows: no request for a summary, with its answer, is larger than the window of its model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import ChatRequest
from amplifier_core.llm_errors import ContextLengthError

from amplifier_context_core import approx_token_counter, count_tokens
from tests.summary.scripted import SESSION, Provider, drive, good, summary_manager

pytestmark = pytest.mark.kernel


class Window(Provider):
    """A provider that refuses what does not fit into its window, as services do."""

    def __init__(self, window: int, listed: int | None = None) -> None:
        super().__init__(good)
        self.window = window
        self.listed = listed

    def get_info(self) -> Any:
        return SimpleNamespace(capabilities=[], defaults={"model": "own", "context_window": self.listed or self.window})

    async def list_models(self) -> list[Any]:
        own = SimpleNamespace(id="own", context_window=self.listed or self.window)
        return [own, SimpleNamespace(id="small", context_window=self.window)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> Any:
        messages = [message.model_dump(exclude_unset=True) for message in request.messages]
        if count_tokens(messages, approx_token_counter) + (request.max_output_tokens or 0) > self.window:
            raise ContextLengthError("too long", provider=self.name)
        return await super().complete(request, **kwargs)


@pytest.mark.parametrize("window", [4_500, 16_000])
@pytest.mark.parametrize("config", [{}, {"summary_tokens": 100_000, "summary_output": 100_000}])
@pytest.mark.parametrize("model", [None, "small"])
async def test_requests_fit_into_the_window_of_the_model_that_is_asked_whatever_the_config_says(
    window: int, config: dict[str, Any], model: str | None
) -> None:
    provider = Window(window, listed=200_000 if model else None)
    manager = summary_manager(provider, summary_model=model, **config)
    await drive(manager, SESSION)
    assert provider.requests
    assert manager.limits.failures == 0
    assert manager.records.valid()


async def test_a_model_with_no_room_for_a_range_is_not_asked() -> None:
    provider = Window(1_000)
    manager = summary_manager(provider)
    await drive(manager, SESSION)
    assert manager.compactor.compactions
    assert provider.requests == []
    report = (await manager.explain())["summary"]
    assert (report["status"], report["reason"]) == ("refused", "the window of the model is too small")


async def test_a_long_focus_does_not_outgrow_the_window() -> None:
    provider = Window(4_500)
    manager = summary_manager(provider)
    await drive(manager, SESSION[:27])
    await manager.compact("the parser " * 5_000)
    assert manager.limits.failures == 0
    assert "dwell on this: the parser" in provider.text()
