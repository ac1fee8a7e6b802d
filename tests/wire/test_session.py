"""Whole sessions over the wire: kernel, loop, memory, client library, and a service that checks every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import EventRecorder, session
from amplifier_context_testing.demo.scripted_agent import explore_script
from amplifier_context_testing.wire.apis import Model, Service
from amplifier_context_testing.wire.server import serving
from tests.wire.serving import APIS, service_of

pytestmark = pytest.mark.kernel

MODULES = ("context-simple", "context-persistent")
# So small that an explored folder outgrows it.
WINDOW = 7_000  # tokens
ANSWER = 500


def plan(module: str, api: str, address: str, folder: Path, **context: Any) -> dict[str, Any]:
    """Return a plan with a context module; keyword arguments are its config."""
    provider = {"api": api, "base_url": address, "context_window": WINDOW, "max_output_tokens": ANSWER}
    return {
        "session": {
            "orchestrator": {"module": "loop-replay", "config": {"style": "streaming"}},
            "context": {"module": module, "config": {"safety_margin": 200, **context}},
        },
        "providers": [{"module": "provider-wire", "config": provider}],
        "tools": [{"module": "tool-folder", "config": {"path": str(folder)}}],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the scripted agent explores."""
    folder = tmp_path / "project"
    folder.mkdir()
    for part in range(12):
        lines = [f"def function_{part}_{line}(value): return function_{(part + 5) % 12}_{line}" for line in range(60)]
        (folder / f"part_{part}.py").write_text("\n".join(lines) + "\n")
    return folder


class Run:
    """One session from its prompts to its figures."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.recorder = EventRecorder(only=("context:", "provider:", "llm:"))
        self.answers: list[str] = []
        self.explained: dict[str, Any] = {}
        self.correction: Any = None

    async def of(self, mounts: dict[str, Any], prompts: int) -> Run:
        async with session(mounts, recorder=self.recorder) as running:
            self.recorder.attach(running.coordinator, ["context:summary_finished"])
            self.answers = [await running.execute(f"Look around, part {number}.") for number in range(prompts)]
            self.explained = await running.coordinator.get_capability("context.explain")()
            manager = running.coordinator.get("context")
            self.correction = manager.session.meter.correction(manager.compactor.last_sent.key)
        return self


async def explored(module: str, api: str, folder: Path, **context: Any) -> Run:
    service = service_of(api, explore_script({"steps": 22}), Model("wire-1", WINDOW, ANSWER))
    async with serving(service) as address:
        return await Run(service).of(plan(module, api, address, folder, **context), prompts=2)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("api", APIS)
async def test_a_session_that_compacts_several_times_is_accepted_cached_and_measured(
    module: str, api: str, folder: Path, tmp_path: Path
) -> None:
    store = {} if module == "context-simple" else {"store": f"jsonl:{tmp_path / 'sessions'}"}
    run = await explored(module, api, folder, **store)
    exchanges = run.service.exchanges
    assert run.service.refusals == []
    assert {one.status for one in exchanges} == {200}
    assert len(exchanges) > 30
    assert run.recorder.count("context:compaction") >= 3
    assert all("I listed" in answer for answer in run.answers)
    bills = [one.bill for one in exchanges]
    hits = sum(bill.read > bill.tokens / 10 for bill in bills)  # the same tools are read by every request
    assert 0.6 * len(bills) < hits < len(bills), "after a compaction little is in the cache"
    # Hooks are given the usage of the service, in the kernel's words.
    usages = [data["usage"] for data in run.recorder.named("llm:response")]
    assert [usage["input_tokens"] + usage["cache_write_tokens"] for usage in usages] == [one.tokens for one in bills]
    assert [usage["cache_read_tokens"] for usage in usages] == [one.read for one in bills]
    # The meter has learned from the usage of the newest answer, and the figures of `explain` are the service's.
    newest = exchanges[-1].bill.tokens
    assert run.correction.last[1] == newest
    assert run.correction.reports == len(exchanges)
    assert run.explained["view"]["tokens"] == pytest.approx(newest, rel=0.01)


@pytest.mark.parametrize("api", APIS)
async def test_requests_for_summaries_are_accepted_and_counted_apart(api: str, folder: Path) -> None:
    rich = {"summary_spend": 10.0, "summary_output": ANSWER}  # so small a window has little money
    run = await explored("context-summary", api, folder, **rich)
    assert run.service.refusals == []
    assert {one.status for one in run.service.exchanges} == {200}
    assert run.recorder.count("context:compaction") >= 3
    calls = run.explained["summary"]["calls"]
    asked = [data for data in run.recorder.named("llm:response") if data.get("purpose")]
    assert len(asked) == calls >= run.recorder.count("context:summary_finished") >= 1
    assert run.correction.reports == len(run.service.exchanges) - calls, "the meter learns from the session's own"
    assert any("in a model's words" in str(one.body) for one in run.service.exchanges)
