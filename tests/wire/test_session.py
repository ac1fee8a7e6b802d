"""Whole sessions over the wire: kernel, loop, memory, client library, and a service that checks every request."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import EventRecorder, session
from amplifier_context_testing.demo.scripted_agent import explore_script
from amplifier_context_testing.wire.apis import Model
from amplifier_context_testing.wire.server import serving
from tests.wire.serving import APIS, service_of

pytestmark = pytest.mark.kernel

SUMMARY = "context-summary"
STORES: dict[str, Callable[[Path], dict[str, Any]]] = {  # the config of each module
    "context-simple": lambda _: {},
    "context-persistent": lambda folder: {"store": f"jsonl:{folder / 'sessions'}"},
    SUMMARY: lambda _: {"summary_spend": 10.0, "summary_output": ANSWER},  # so small a window has little money
}
# So small that an explored folder outgrows it.
WINDOW = 7_000  # tokens
ANSWER = 500


def plan(module: str, api: str, folder: Path, **context: Any) -> dict[str, Any]:
    provider = {"api": api, "context_window": WINDOW, "max_output_tokens": ANSWER}
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
    folder = tmp_path / "project"
    folder.mkdir()
    for part in range(12):
        lines = [f"def function_{part}_{line}(value): return function_{(part + 5) % 12}_{line}" for line in range(60)]
        (folder / f"part_{part}.py").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    ("api", "module"),  # the managers of the first two differ in their store alone
    [("openai", "context-simple"), ("anthropic", "context-persistent"), *((api, SUMMARY) for api in APIS)],
)
async def test_a_session_that_compacts_several_times_is_accepted_cached_and_measured(
    module: str, api: str, folder: Path, tmp_path: Path
) -> None:
    service = service_of(api, explore_script({"steps": 22}), Model("wire-1", WINDOW, ANSWER))
    recorder = EventRecorder(only=("context:", "llm:"))
    mounted = plan(module, api, folder, **STORES[module](tmp_path))
    async with serving(service) as address:
        mounted["providers"][0]["config"]["base_url"] = address
        async with session(mounted, recorder=recorder) as running:
            answers = [await running.execute(f"Look around, part {number}.") for number in range(2)]
            explained = await running.coordinator.get_capability("context.explain")()
            manager = running.coordinator.get("context")
            correction = manager.session.meter.correction(manager.compactor.last_sent.key)
    assert service.refusals == []
    assert {one.status for one in service.exchanges} == {200}
    assert recorder.count("context:compaction") >= 3
    assert all("I listed" in answer for answer in answers)
    bills = [one.bill for one in service.exchanges]
    hits = sum(bill.read > bill.tokens / 10 for bill in bills)  # the same tools are read by every request
    assert 30 < len(bills) > hits > 0.6 * len(bills), "after a compaction little is in the cache"
    # Hooks are given the usage of the service, in the kernel's words.
    responses = recorder.named("llm:response")
    sent = [data["usage"]["input_tokens"] + data["usage"]["cache_write_tokens"] for data in responses]
    assert sorted(sent) == sorted(bill.tokens for bill in bills)
    assert sum(data["usage"]["cache_read_tokens"] for data in responses) == sum(bill.read for bill in bills)
    # The meter has learned from the usage of the session's own answers; the figures of `explain` are the service's.
    own = [tokens for tokens, data in zip(sent, responses, strict=True) if not data.get("purpose")]
    assert (correction.last[1], correction.reports) == (own[-1], len(own))
    assert explained["view"]["tokens"] == pytest.approx(own[-1], rel=0.01)
    assert len(sent) - len(own) == explained.get("summary", {}).get("calls", 0)
    assert (len(sent) > len(own)) is (module == SUMMARY)
