"""The recorder of kernel events."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core.models import HookResult
from amplifier_core.testing import MockCoordinator

from amplifier_context_testing import EventRecorder

pytestmark = pytest.mark.kernel


@pytest.fixture
def coordinator() -> MockCoordinator:
    return MockCoordinator()


async def test_every_declared_event_is_recorded_in_order(coordinator: MockCoordinator) -> None:
    recorder = EventRecorder(coordinator)
    await coordinator.hooks.emit("context:pre_compact", {"budget": 1})
    await coordinator.hooks.emit("llm:response", {"usage": {"input_tokens": 2}})
    await coordinator.hooks.emit("context:pre_compact", {"budget": 3})
    assert recorder.names() == ["context:pre_compact", "llm:response", "context:pre_compact"]
    assert [data["budget"] for data in recorder.named("context:pre_compact")] == [1, 3]
    assert recorder.count("context:pre_compact") == 2
    assert (recorder.last("llm:response") or {})["usage"] == {"input_tokens": 2}
    assert recorder.last("tool:pre") is None


async def test_it_sees_an_event_that_another_handler_denies(coordinator: MockCoordinator) -> None:
    async def deny(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="no")

    coordinator.hooks.register("context:pre_compact", deny, 0, "deny")
    recorder = EventRecorder(coordinator.hooks)
    answer = await coordinator.hooks.emit("context:pre_compact", {})
    assert answer.action == "deny"
    assert recorder.count("context:pre_compact") == 1


async def test_what_was_recorded_does_not_change_afterwards(coordinator: MockCoordinator) -> None:
    recorder = EventRecorder(coordinator)
    data = {"list": [1]}
    await coordinator.hooks.emit("tool:pre", data)
    data["list"].append(2)
    assert recorder.named("tool:pre")[0]["list"] == [1]
