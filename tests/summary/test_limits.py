"""Limits across processes: a session that is opened for each turn makes no more calls than one that stays open."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core.stores import MemoryStore
from amplifier_context_summary.config import SummaryConfig
from amplifier_context_summary.limits import Limits, Prices, prices_of
from tests.messages import rounds, work
from tests.summary.scripted import HeldBack, drive, summary_manager, until_asked
from tests.writers import Writer

SESSION = work(60, output=900)[:41]
MORE = rounds(30, start=100, output=900)
CONFIG = SummaryConfig(summary_spend=0.1)
NOW = 1_800_000_000.0


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("good", {"max_summary_calls": 1}),
        ("good", {"max_summary_tokens": 1}),
        ("error:ProviderUnavailableError", {}),
    ],
)
async def test_a_resumed_session_has_made_the_calls_of_the_process_before(kind: str, config: dict[str, Any]) -> None:
    store = MemoryStore()
    first = summary_manager(Writer(kind), store=store, **config)
    await drive(first, SESSION)
    assert first.limits.calls == 1
    await first.close()
    writer = Writer(kind)
    again = summary_manager(writer, store=store, **config)
    await drive(again, MORE)
    assert again.compactor.compactions > first.compactor.compactions
    assert writer.asked == []
    assert again.limits.summary_cost == first.limits.summary_cost
    await again.close()


@pytest.mark.kernel
async def test_a_call_that_the_end_of_a_process_cancels_is_paid() -> None:
    store, provider = MemoryStore(), HeldBack()
    first = summary_manager(provider, store=store)
    await until_asked(first, provider, SESSION)
    await first.close()
    again = summary_manager(None, store=store)
    await again.ready()
    assert again.limits.calls == 1
    assert again.limits.summary_cost > 1_000
    await again.close()


@pytest.mark.kernel
async def test_a_failure_is_saved_before_handlers_hear_of_it() -> None:
    """A handler may hang or end the process."""
    store, hooks, waits = MemoryStore(), HookRegistry(), list[bool]()

    async def look(event: str, data: dict[str, Any]) -> HookResult:
        saved = json.loads(await store.load_checkpoint("s") or b"{}")
        waits.append(saved["extra"]["context-summary"]["limits"]["failures"] > 0)
        return HookResult(action="continue")

    hooks.register("context:summary_failed", look, 0, name="test")
    manager = summary_manager(Writer("error:ProviderUnavailableError"), store=store, hooks=hooks)
    await drive(manager, SESSION)
    await manager.close()
    assert waits == [True]


def limits() -> Limits:
    made = Limits(session_cost=1e6)
    made.begin(NOW, 10)
    made.summary_cost += 50.0
    made.failed(NOW, 100.0)
    return made


def test_what_is_restored_is_what_was_saved() -> None:
    again = Limits()
    again.restore(limits().dump())
    assert again == limits()
    assert again.waits(NOW + 40) == 60


@pytest.mark.parametrize(
    "saved",
    [None, 5, [], {"calls": -1}, {"session_cost": float("nan")}, {"recent": [[1]]}, {"not_before": "soon"}],
)
def test_saved_limits_that_make_no_sense_are_left_out(saved: object) -> None:
    made = Limits()
    made.restore(saved)
    assert made == Limits()


@pytest.mark.parametrize("now", [NOW - 86_400 * 400, NOW + 86_400])
def test_a_clock_that_was_set_makes_no_session_wait_for_ever(now: float) -> None:
    made = limits()
    assert made.refusal(CONFIG, now, 10) == ""
    made.failed(now)
    assert 0 < made.waits(now) <= 3_600


def test_the_tokens_of_calls_leave_room_for_the_longest_answer_of_the_next_one() -> None:
    config = SummaryConfig(max_summary_tokens=1_000, summary_output=400)
    made = Limits()
    made.begin(NOW, 300)
    assert made.refusal(config, NOW, 300) == ""
    assert made.refusal(config, NOW, 301) == "max_summary_tokens"
    assert made.refusal(config, NOW + 601, 301) == ""


@pytest.mark.parametrize(("price", "share"), [(0.2, 0.024), (1.0, 0.12), (3.0, 0.12)])
def test_the_default_share_is_smaller_for_a_cheaper_model(price: float, share: float) -> None:
    made = Limits(session_cost=1_000.0, summary_cost=10.0)
    assert made.left(SummaryConfig(), price, by_hand=False) == pytest.approx(1_000 * share - 10)
    assert made.left(SummaryConfig(summary_spend=0.12), price, by_hand=False) == 110


def test_prices_are_those_of_the_provider() -> None:
    pricing = {"input_per_million": 4.0, "output_per_million": 20, "cache_read_per_million": 0.4}
    for given in (pricing, SimpleNamespace(**pricing)):
        assert prices_of(given) == Prices(4.0, 0.4, 5.0, 20.0)


@pytest.mark.parametrize("price", [10**400, float("inf"), float("nan"), -1, True, "4", None])
def test_a_price_that_makes_no_sense_is_none(price: Any) -> None:
    assert prices_of({"input_per_million": price, "output_per_million": price}) is None
