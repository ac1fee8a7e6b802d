"""`context.usage()`: how full the window is by kind, what is left until a compaction, and when it is announced."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.events import COMPACTION, EVENTS, PRE_COMPACT, USAGE
from amplifier_context_core.items import ContextItem
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_testing import EventRecorder
from tests.manager.measured import Counting, measure
from tests.managers import feed
from tests.messages import rounds, work

BUDGET = 8_000


def manager_with(recorder: EventRecorder | None = None, **config: Any) -> ContextManager:
    settings = load_config({"max_tokens": BUDGET, "token_counter": "heuristic", **config})
    hooks = HookRegistry()
    if recorder is not None:
        recorder.attach(hooks, EVENTS)
    return ContextManager(settings, session_id="used", hooks=hooks)


async def until_compacted(manager: ContextManager, number: int = 200) -> int:
    """Work until a compaction; return how many rounds that took."""
    before = manager.compactor.compactions
    for count in range(number):
        await feed(manager, rounds(1, start=count))
        await manager.get_messages_for_request()
        if manager.compactor.compactions > before:
            return count
    raise AssertionError("no compaction")


async def test_the_kinds_add_up_to_what_is_used_and_what_is_free_to_the_size() -> None:
    manager = await feed(manager_with(), [{"role": "system", "content": "Be careful. " * 20}, *work(6)])
    await manager.pin("m4")
    await until_compacted(manager)
    usage = await manager.usage()
    assert sum(usage["kinds"].values()) == usage["used"]
    assert usage["used"] + usage["free"] == usage["size"] == BUDGET
    assert [kind for kind, tokens in usage["kinds"].items() if tokens] == [
        "system",
        "pins",
        "people",
        "chapters",
        "rounds",
    ]


async def test_without_a_compaction_nothing_is_a_chapter() -> None:
    manager = await feed(manager_with(), [{"role": "assistant", "content": "Welcome."}])
    await manager.pool.add(ContextItem("Look at this.", "a report", "r1"))
    result = await measure(manager, Counting())
    await result["transaction"].commit()
    kinds = (await manager.usage())["kinds"]
    assert kinds["rounds"]
    assert not kinds["chapters"]


async def test_it_names_the_threshold_above_which_the_next_request_is_compacted() -> None:
    recorder = EventRecorder()
    manager = await feed(manager_with(recorder, cadence="fixed"), work(1))
    await manager.get_messages_for_request()
    compaction = (await manager.usage())["compaction"]
    assert compaction["left"] == compaction["above"] - (await manager.usage())["used"]
    await until_compacted(manager)
    (announced,) = recorder.named(PRE_COMPACT)
    assert announced["threshold"] == compaction["above"] < announced["token_count"]


async def test_the_requests_that_are_left_are_about_those_until_the_compaction() -> None:
    manager = await feed(manager_with(cadence="fixed"), work(1))
    await until_compacted(manager)
    await feed(manager, rounds(3, start=300))
    await manager.get_messages_for_request()
    expected = (await manager.usage())["compaction"]["requests"]
    needed = await until_compacted(manager)
    assert expected is not None
    assert abs(expected - needed) <= max(2, needed // 3)


async def test_what_the_provider_reported_counts_tool_definitions_and_is_unknown_after_a_compaction() -> None:
    manager = await feed(manager_with(), work(1))
    provider = SimpleNamespace(name="p")
    await manager.get_messages_for_request(None, provider)
    usage = await manager.usage()
    assert (usage["reported"], usage["kinds"]["tools"]) == (None, 0)
    manager.on_response(Response("m", "p", Usage(usage["used"] + 700, 10), "stop", None))
    await manager.add_message({"role": "assistant", "content": "Read."})
    await manager.get_messages_for_request(None, provider)
    reported = await manager.usage()
    assert (reported["reported"], reported["figure"]) == (usage["used"] + 700, "measured")
    assert reported["kinds"]["tools"] > 0
    await until_compacted(manager)
    assert (await manager.usage())["reported"] is None
    assert "unknown since the last compaction" in await manager.describe()


async def test_a_cold_cache_costs_more_than_a_warm_one() -> None:
    manager = await feed(manager_with(), work(10))
    await manager.get_messages_for_request()
    cost = (await manager.usage())["next_request"]
    assert 0 < cost["growth"] < cost["warm"] < cost["cold"]


async def test_the_event_is_emitted_once_for_each_twentieth_and_after_a_compaction() -> None:
    recorder = EventRecorder()
    manager = await feed(manager_with(recorder), work(1))
    await until_compacted(manager)
    steps = [20 * data["used"] // data["size"] for data in recorder.named(USAGE)]
    assert len(steps) > 3
    assert all(one != other for one, other in pairwise(steps))
    assert steps[-1] < steps[-2]
    names = [event.name for event in recorder.records if event.name in (USAGE, COMPACTION)]
    assert names[-2:] == [COMPACTION, USAGE]
    before = len(recorder.named(USAGE))
    await manager.get_messages_for_request()
    assert len(recorder.named(USAGE)) == before


@pytest.mark.parametrize("width", [44, 100])
async def test_the_text_has_a_row_for_each_kind_and_fits_its_width(width: int) -> None:
    manager = await feed(manager_with(), work(20))
    await manager.get_messages_for_request()
    lines = (await manager.describe(width)).split("\n")
    rows = [line.split()[0] for line in lines if line.endswith(("█", "·"))]
    assert rows == [*(await manager.usage())["kinds"], "free"]
    assert max(map(len, lines)) <= width
