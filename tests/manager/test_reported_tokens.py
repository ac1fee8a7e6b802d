"""Every figure that a person or an event reads is in the provider's tokens, however far its counts are from ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, ContextOverflow, events
from amplifier_context_core.economics.meter import Correction, Meter
from amplifier_context_core.kernel import mount_manager
from amplifier_context_testing import EventRecorder, check_request
from tests.managers import feed, new_manager
from tests.messages import Message, rounds, size

BUDGET = 6_000
WINDOW = 8_000
KEY = ("own", "model-1")
PRE, POST, COMPACTION, WARNING, PREFIX_CHANGED, USAGE = events.EVENTS

Counted = Callable[[int], int]
"""What the provider reports for a view of so many tokens as this package counts them."""

PROVIDERS: list[Any] = [
    pytest.param(lambda counted: int(1.3 * counted), id="reports 1.3"),
    pytest.param(lambda counted: int(0.74 * counted) + 900, id="reports 0.74 and tool definitions"),
]


def provider() -> Any:
    defaults = {"context_window": WINDOW, "max_output_tokens": 1_000, "model": KEY[1]}
    return SimpleNamespace(name=KEY[0], get_info=lambda: SimpleNamespace(defaults=defaults))


class Running:
    """A session whose provider reports its own count of every request."""

    def __init__(self, manager: ContextManager, coordinator: Any, reported: Counted) -> None:
        self.manager = manager
        self.reported = reported
        self.coordinator = coordinator
        self.recorder = EventRecorder(coordinator.hooks, list(events.EVENTS))

    async def request(self) -> dict[str, Any]:
        """One request and its answer; what `explain` reports of its view."""
        view = await self.manager.get_messages_for_request(None, provider())
        assert check_request(view) == []
        explained = await self.manager.explain()
        usage = {"input_tokens": self.reported(size(view)), "output_tokens": 7}
        data = {"provider": KEY[0], "model": KEY[1], "status": "ok", "usage": usage}
        await self.coordinator.hooks.emit("llm:response", data)
        await self.manager.add_message({"role": "assistant", "content": "Yes."})
        return explained


async def running(reported: Counted, messages: list[Message] | None = None, **config: Any) -> Running:
    coordinator = MockCoordinator()
    manager = new_manager(hooks=coordinator.hooks, **config)
    await feed(manager, messages or [{"role": "user", "content": "Do the work."}])
    await mount_manager(coordinator, manager, "context-test")
    return Running(manager, coordinator, reported)


async def worked(reported: Counted, requests: int = 40, **config: Any) -> tuple[Running, list[dict[str, Any]]]:
    """A session of so many requests, two tool rounds between each, and what `explain` reported of each."""
    session = await running(reported, **config)
    explained: list[dict[str, Any]] = []
    for number in range(requests):
        await feed(session.manager, rounds(2, start=2 * number))
        explained.append(await session.request())
    return session, explained


def figures(text: str) -> list[int]:
    """The numbers in a sentence that are written with a thousands separator, or are shorter than 1,000."""
    return [int(found.replace(",", "")) for found in re.findall(r"(?<![\w,.])\d{1,3}(?:,\d{3})*(?![\w,.]*\d|%)", text)]


# --- what is reported of a view ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reported", PROVIDERS)
async def test_explain_and_events_report_figures_of_the_provider_that_agree_with_one_another(reported: Counted) -> None:
    session, explained = await worked(reported)
    for number, each in enumerate(explained):
        view, members = each["view"], each["floor"]["members"]
        if 4 <= number < 12:  # after a few reports, before a compaction
            assert view["tokens"] == pytest.approx(reported(view["counted"]), rel=0.1)
        for part in ("prefix_tokens", "chapter_tokens", "overhead_tokens"):
            assert 0 <= view[part] <= view["tokens"], part
        assert view["target"] < view["trigger"] <= view["budget"]
        assert view["tokens"] <= view["budget"]
        assert set(figures(view["why"].partition(" (")[0])) <= {view["trigger"], view["budget"]}
        shown = sum(row["tokens_after"] for row in each["rounds"]) + view["overhead_tokens"]
        assert shown == pytest.approx(view["tokens"], rel=0.15)
        assert each["floor"]["tokens"] <= view["tokens"] + 1
        assert each["floor"]["tokens"] == pytest.approx(sum(member["tokens"] for member in members), abs=len(members))
    units = session.manager.meter.units(KEY)
    everything = units.request(sum(entry.tokens for entry in session.manager.snapshot()))
    assert (await session.manager.explain())["history_tokens"] == pytest.approx(everything, rel=0.1)
    announced = session.recorder.named(PRE)
    assert announced
    for payload in announced:
        assert payload["target"] < payload["threshold"] <= payload["budget"] == BUDGET
        limit = payload["budget"] if payload["trigger"] == "hard limit" else payload["threshold"]
        assert payload["token_count"] > limit
        assert figures(payload["reason"]) == [payload["token_count"], limit]
    for payload in session.recorder.named(POST, COMPACTION):
        before, after = payload["before_tokens"], payload["after_tokens"]
        assert before - after == sum(step["freed"] for step in payload["strategies"])
        assert after <= payload["threshold"] <= payload["budget"]
        assert 0 < payload["prefix_given_up_tokens"] <= before
        assert payload["floor_tokens"] <= before


@given(
    offset=st.floats(0, 50_000),
    ratio=st.floats(0.5, 3),
    counted=st.integers(0, 200_000),
    budget=st.integers(1, 200_000),
)
def test_a_view_is_above_its_capacity_exactly_when_its_reported_size_is_above_the_budget(
    offset: float, ratio: float, counted: int, budget: int
) -> None:
    meter = Meter()
    meter.corrections[KEY] = Correction(offset, ratio, reports=1)
    units = meter.units(KEY)
    room = units.capacity(budget)
    if offset <= 0.5 * budget:  # what is sent beside the messages may be more than a budget holds
        assert (counted > room) == (units.request(counted) > budget) or room == 1
    assert units.part(counted) <= units.request(counted)
    for larger in (counted + 1, counted + 7):
        assert units.limit(counted) < units.request(larger)


# --- notices and errors -----------------------------------------------------------------------------------------------


async def test_a_view_over_its_budget_is_reported_with_the_tool_definitions_that_fill_it() -> None:
    beside = 3_000
    prompt: Message = {"role": "system", "content": "word " * 600}
    session = await running(lambda counted: counted + beside, [prompt], max_tokens=beside + 50)
    for number in range(3):
        await feed(session.manager, [{"role": "user", "content": f"Wish {number}."}])
        await session.request()
        session.manager.warnings.kinds.clear()  # every request may report it again
    over = [payload for payload in session.recorder.named(WARNING) if payload["reason"] == "overflow"]
    payload = over[-1]
    assert payload["budget"] == beside + 50
    assert f"the budget is {beside + 50:,}" in payload["message"]
    tools = next(member for member in payload["members"] if member["mark"] == "tool definitions")
    assert tools["tokens"] == pytest.approx(beside, rel=0.6)
    assert f"tool definitions {tools['tokens']:,} (learned from reported usage)" in payload["message"]
    needed = figures(payload["message"])[0]
    assert needed > beside + 50
    assert needed >= sum(member["tokens"] for member in payload["members"]) - len(payload["members"])


async def test_under_strict_the_error_names_the_budget_that_was_asked_for() -> None:
    prompt: Message = {"role": "system", "content": "word " * 100}
    session = await running(lambda counted: counted + 400, [prompt, {"role": "user", "content": "Hi."}], strict=True)
    for _ in range(3):
        await session.request()
    with pytest.raises(ContextOverflow, match=r"the budget is 420: .*tool definitions 4\d\d \(learned from"):
        await session.manager.get_messages_for_request(420, provider())
