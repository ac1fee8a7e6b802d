"""The recorder of kernel events."""

from __future__ import annotations

import pytest
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
