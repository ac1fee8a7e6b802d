"""What summaries may cost, across processes too: no report and no failure is a way around the limits."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.stores import MemoryStore
from amplifier_context_summary.config import SummaryConfig, load_summary_config
from amplifier_context_summary.limits import Limits, Prices, prices_of
from tests.messages import rounds, work
from tests.summary.scripted import HeldBack, Provider, drive, good, summary_manager, until_asked, view_of
from tests.writers import ERRORS, Writer, response_of

pytestmark = pytest.mark.kernel
SESSION = work(90, output=900)
ONE_CALL = SESSION[:43]
SHARE = 0.6
# Errors of a request that the provider refused, so that it costs nothing.
FREE = {"RateLimitError", "QuotaExceededError", "AuthenticationError", "AccessDeniedError", "ContextLengthError"}
FREE |= {"InvalidRequestError", "NotFoundError", "ConfigurationError"}
IMPLAUSIBLE = (
    SimpleNamespace(input_tokens=0, output_tokens=0),
    SimpleNamespace(input_tokens=-5, output_tokens=-5),
    SimpleNamespace(input_tokens="4000", output_tokens="90"),
    SimpleNamespace(input_tokens=10**400, output_tokens=90),
    {"input_tokens": None, "cache_read_tokens": 10**9},
)


def reporting(usage: object) -> Provider:
    """A provider that reports the same usage for each answer, whatever it is."""
    return Provider(lambda request, number: response_of(good(request, number)).model_copy(update={"usage": usage}))


async def spent(provider: Any, messages: list[Any] = SESSION, **config: Any) -> Any:
    """The manager of a session at its end; no back-off lasts from one request to the next."""
    keys: dict[str, Any] = {"summary_spend": SHARE, "summary_output": 400, **config}
    manager = summary_manager(provider, **keys)
    now = [0.0]
    manager.writer.asking.clock = lambda: now[0]
    for message in messages:
        await drive(manager, [message])
        now[0] += 4_000
    return manager


async def test_a_call_costs_what_its_provider_reports_and_an_implausible_report_what_no_report_costs() -> None:
    unreported = (await spent(reporting(None), ONE_CALL)).limits
    assert unreported.summary_cost > 1_000
    for usage in IMPLAUSIBLE:
        reported = (await spent(reporting(usage), ONE_CALL)).limits
        assert (reported.calls, reported.summary_cost) == (unreported.calls, unreported.summary_cost), usage
    reported = (await spent(reporting(SimpleNamespace(input_tokens=20_000, output_tokens=5_000)), ONE_CALL)).limits
    assert reported.summary_cost == 20_000 + 5 * 5_000


async def test_a_model_that_writes_more_than_it_was_asked_for_is_expected_to_do_so_again() -> None:
    manager = summary_manager(
        reporting(SimpleNamespace(input_tokens=1_000, output_tokens=1_500)), summary_spend=SHARE, summary_output=400
    )
    now = [0.0]
    manager.writer.asking.clock = lambda: now[0]
    calls = 1  # of the first one no more is known than what it was asked for
    for message in SESSION:
        await drive(manager, [message])
        now[0] += 4_000
        if manager.limits.calls > calls:
            calls = manager.limits.calls
            assert manager.limits.summary_cost <= SHARE * manager.limits.session_cost
    assert calls > 2


@pytest.mark.parametrize("kind", ["broken", "cancelled", "nothing", *(f"error:{name}" for name in ERRORS)])
async def test_a_call_without_an_answer_counts_its_input_unless_the_provider_refused_it(kind: str) -> None:
    manager = await spent(Writer(kind), ONE_CALL)
    assert manager.limits.calls >= 1
    cost = manager.limits.summary_cost
    assert (cost == 0) is (kind.removeprefix("error:") in FREE)
    assert cost == 0 or cost > 1_000


async def test_of_a_range_as_much_is_read_as_its_digest_saves_at_the_prices_of_both_models() -> None:
    async def read(price: float, **config: Any) -> int:
        own, writer = Writer(name="own", pricing=(1.0, 5.0)), Writer(pricing=(price, 5 * price))
        manager = summary_manager(None, summary_provider="writer", **config)
        manager.writer.providers = lambda: {"own": own, "writer": writer}
        await drive(manager, ONE_CALL, own)
        assert own.asked == [], "the provider of the config is asked, and no other"
        return len(str(writer.asked[0].messages[1].content))

    assert await read(0.2) > await read(3.0)
    assert await read(0.2) > await read(0.2, summary_input=500)


@pytest.mark.parametrize("kind", ["error:ProviderUnavailableError", "empty", "cancelled"])
async def test_a_provider_that_never_answers_takes_no_more_than_the_share(kind: str) -> None:
    writer = Writer(kind)
    manager = await spent(writer, max_summary_calls=1_000)
    assert manager.limits.calls > 1
    assert manager.limits.summary_cost <= SHARE * manager.limits.session_cost + 4_000, "at most one call more"


async def test_a_request_costs_its_estimate_until_a_plausible_report_however_often_its_view_is_asked_for() -> None:
    manager = summary_manager(None)
    await drive(manager, SESSION[:21])
    estimated = manager.limits.session_cost
    for tokens in (0, 1, 100, 100_000_000):
        await view_of(manager)
        manager.on_response(Response(usage=Usage(tokens)))
        assert manager.limits.session_cost == estimated
    manager.on_response(Response(usage=Usage(6_000)))
    reported = manager.limits.session_cost
    assert estimated != reported > 6_000
    await view_of(manager)
    assert manager.limits.session_cost == reported


async def test_only_the_first_call_by_hand_need_not_be_earned() -> None:
    provider = Provider(good)
    manager = summary_manager(provider, summary_spend=0.001)
    await drive(manager, SESSION[:27])
    await manager.compact()
    assert len(provider.requests) == 1
    await drive(manager, SESSION[27:61])
    await manager.compact()
    assert len(provider.requests) == 1


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("kind", "config"),
    [("good", {"max_summary_calls": 1}), ("good", {"max_summary_tokens": 1}), ("error:ProviderUnavailableError", {})],
)
async def test_a_resumed_session_has_made_the_calls_of_the_process_before(kind: str, config: dict[str, Any]) -> None:
    store = MemoryStore()
    first = summary_manager(Writer(kind), store=store, **config)
    await drive(first, SESSION[:41])
    assert first.limits.calls == 1
    await first.close()
    writer = Writer(kind)
    again = summary_manager(writer, store=store, **config)
    await drive(again, rounds(30, start=100, output=900))
    assert again.compactor.compactions > first.compactor.compactions
    assert writer.asked == []
    assert again.limits.summary_cost == first.limits.summary_cost


async def test_a_failure_is_saved_before_handlers_hear_of_it() -> None:
    """A handler may hang or end the process."""
    store, hooks, saved = MemoryStore(), HookRegistry(), list[int]()

    async def look(event: str, data: dict[str, Any]) -> HookResult:
        state = json.loads(await store.load_checkpoint("s") or b"{}")
        saved.append(state["extra"]["context-summary"]["limits"]["failures"])
        return HookResult(action="continue")

    hooks.register("context:summary_failed", look, 0, name="test")
    manager = summary_manager(Writer("error:ProviderUnavailableError"), store=store, hooks=hooks)
    await drive(manager, SESSION[:41])
    await manager.close()
    assert saved == [1]


@pytest.mark.parametrize("now", [NOW - 86_400 * 400, NOW + 86_400])
def test_a_clock_that_was_set_makes_no_session_wait_for_ever(now: float) -> None:
    made = Limits(session_cost=1e6)
    made.failed(NOW, 100.0)
    assert made.refusal(SummaryConfig(summary_spend=0.1), now, 10) == ""
    made.failed(now)
    assert 0 < made.waits(now) <= 3_600


async def test_a_call_that_the_end_of_a_process_cancels_is_paid() -> None:
    store, provider = MemoryStore(), HeldBack()
    first = summary_manager(provider, store=store)
    await until_asked(first, provider, SESSION)
    await first.close()
    again = summary_manager(None, store=store)
    await again.ready()
    assert again.limits.calls == 1
    assert again.limits.summary_cost > 1_000


def test_a_forked_call_of_former_versions_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave the key out"):
        load_summary_config({"summary_call": "fork"})


@pytest.mark.parametrize("saved", [None, [], {"calls": -1}, {"session_cost": float("nan")}, {"recent": [[1]]}])
def test_saved_limits_that_make_no_sense_are_left_out(saved: object) -> None:
    made = Limits()
    made.restore(saved)
    assert made == Limits()


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


@pytest.mark.parametrize("odd", [10**400, float("inf"), float("nan"), -1, True, "4", None])
def test_prices_are_those_of_the_provider_if_they_make_sense(odd: Any) -> None:
    pricing = {"input_per_million": 4.0, "output_per_million": 20, "cache_read_per_million": 0.4}
    for given in (pricing, SimpleNamespace(**pricing)):
        assert prices_of(given) == Prices(4.0, 0.4, 5.0, 20.0)
    assert prices_of({"input_per_million": odd, "output_per_million": odd}) is None
