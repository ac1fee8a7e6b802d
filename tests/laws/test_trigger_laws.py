"""The policy of compactions: when a view is compacted, how far, and when an attempt is repeated."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from amplifier_core import HookRegistry
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.config import Config
from amplifier_context_core.economics.meter import Meter, Prices
from amplifier_context_core.economics.trigger import (
    Growth,
    TokenLimits,
    back_off,
    cold_threshold,
    compaction_target,
    compaction_threshold,
    token_limits,
)
from amplifier_context_core.messages.timestamps import seconds_of
from amplifier_context_core.messages.usage import Usage
from amplifier_context_testing import EventRecorder
from tests.managers import valid

from .histories import Message, Step, conversations, flat
from .managers import new_manager

KEY = ("anthropic", "model")
TOKENS = st.integers(0, 2_000_000)


@st.composite
def limits(draw: st.DrawFn) -> TokenLimits:
    """Limits as a config and a meter give them, after any reports and refusals."""
    settings: dict[str, object] = {
        "compact_threshold": draw(st.floats(0.5, 1.0)),
        "target_usage": draw(st.floats(0.05, 0.45)),
        "auto_compact": draw(st.booleans()),
        "clear_at_least": draw(st.none() | st.integers(0, 50_000)),
    }
    meter = Meter()
    for counted, reported in draw(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=3)):
        meter.report(counted, Usage(reported), KEY)
    if draw(st.booleans()):
        meter.refused(draw(st.integers(1, 10**6)), KEY)
    return token_limits(Config.model_validate(settings), meter, draw(st.integers(1, 2_000_000)), KEY)


@st.composite
def growths(draw: st.DrawFn) -> Growth:
    checkpoint = draw(TOKENS)
    return Growth(
        checkpoint, draw(st.integers(0, checkpoint)), draw(st.integers(1, 10**6)), draw(st.integers(0, 5_000))
    )


@given(limits())
def test_limits_are_in_order(limits: TokenLimits) -> None:
    assert 1 <= limits.threshold <= max(1, limits.capacity)
    assert limits.target >= 1
    assert limits.min_freed >= 0
    assert limits.accepted <= limits.budget
    assert limits.reported(limits.capacity) <= limits.accepted


@given(limits(), growths() | st.none(), TOKENS, TOKENS)
def test_a_threshold_is_fixed_as_the_config_says_or_adaptive_up_to_the_capacity(
    limits: TokenLimits, growth: Growth | None, system: int, more: int
) -> None:
    """With a longer system prompt the first compaction comes no earlier."""
    adaptive = compaction_threshold(growth, limits, system, adaptive=True)
    assert compaction_threshold(growth, limits, system, adaptive=False) == limits.threshold
    assert adaptive <= limits.capacity
    assert growth or adaptive <= compaction_threshold(None, limits, system + more, adaptive=True)


PRICES = st.tuples(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(1, 4), st.floats(1, 4))


@given(limits(), growths(), TOKENS, st.integers(1, 100_000), PRICES)
def test_the_more_a_compaction_costs_the_later_it_comes_and_the_more_it_saves_the_sooner(
    limits: TokenLimits, growth: Growth, system: int, more: int, prices: tuple[float, float, float, float]
) -> None:
    def threshold(of: TokenLimits = limits, **changed: int) -> int:
        return compaction_threshold(replace(growth, **changed), of, system, adaptive=True)

    def priced(read: float, write: float) -> int:
        return threshold(replace(limits, prices=Prices(read, write)))

    base, usual = system + growth.checkpoint, threshold()
    assert usual >= min(limits.threshold, base + limits.min_freed), "it grew by less than a compaction must free"
    assert usual <= threshold(rewritten=growth.rewritten + more)
    assert usual <= threshold(replace(limits, rewrites_all=True)), "a changed prefix is written as a whole"
    assert min(base, usual) <= cold_threshold(usual, base) <= usual, "not before anything grew"
    (read, dearer_read), (write, dearer_write) = sorted(prices[:2]), sorted(prices[2:])
    assert priced(dearer_read, write) <= priced(read, write) <= priced(read, dearer_write)


@given(limits(), TOKENS)
def test_a_target_is_at_most_that_of_the_limits_and_never_far_below(limits: TokenLimits, threshold: int) -> None:
    target = compaction_target(threshold, limits)
    assert max(1, int(limits.target * 0.8)) <= target <= limits.target
    assert threshold < limits.threshold or target == limits.target


@given(limits(), TOKENS, st.integers(0, 10_000), st.booleans(), TOKENS, st.integers(0, 10_000))
def test_an_attempt_is_repeated_once_the_view_has_grown_enough_and_not_at_once(
    limits: TokenLimits, tokens: int, compactable: int, infeasible: bool, growth: int, closed: int
) -> None:
    """Above the capacity it is repeated as soon as there is more to compact, if that can help at all."""
    record = back_off(tokens, compactable, limits, infeasible=infeasible)
    assert record.postpones(tokens, compactable, limits.capacity)
    grown = tokens + growth
    postponed = record.postpones(grown, compactable + closed, limits.capacity)
    if grown > limits.capacity and not infeasible:
        assert postponed == (closed == 0)
    else:
        assert postponed == (growth < max(1, limits.min_freed))
    if not 0.97 * limits.capacity <= growth <= 1.03 * limits.capacity:
        assert not record.postpones(tokens, compactable, growth), "an attempt at another capacity says nothing"


def test_a_compaction_frees_what_the_config_says_and_aims_lower_where_it_writes_all_of_its_target() -> None:
    def found(model: str, **config: Any) -> TokenLimits:
        return token_limits(Config.model_validate(config), Meter(learn=False), 10_000, ("openai", model))

    assert found("gpt-5.5", clear_at_least=77).min_freed == 77
    assert [found(model, token_meter="estimate").target for model in ("gpt-5.5", "gpt-5.6")] == [5_000, 4_000]


# -- pauses: any conversation, any budget, any times -------------------------------------------------------------------
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
TTL = 300
GAPS = st.lists(st.sampled_from([0, 10, TTL, TTL + 1, 5_000, -400]), min_size=1, max_size=20)


def timed(messages: list[Message], gaps: list[int]) -> list[Message]:
    now, found = START, list[Message]()
    for number, message in enumerate(messages):
        now += timedelta(seconds=gaps[number % len(gaps)])
        found.append({**message, "metadata": {"timestamp": now.isoformat(timespec="milliseconds")}})
    return found


async def views(messages: list[Message], budget: int, **config: Any) -> tuple[list[list[Message]], list[str]]:
    """The view before and after each answer, and what triggered each compaction."""
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, ["context:compaction"])
    manager = new_manager(hooks=hooks, **config)
    found: list[list[Message]] = []
    for message in messages:
        await manager.add_message(message)
        found.append(valid(await manager.get_messages_for_request(token_budget=budget)))
    return found, [event["trigger"] for event in recorder.named("context:compaction")]


def pauses(messages: list[Message]) -> int:
    """Answers that are followed by a message more than the time to live later, before the next answer."""
    found, answered, counted = 0, None, True
    for message in messages:
        now = seconds_of(message["metadata"]["timestamp"]) or 0.0
        if message["role"] == "assistant":
            answered, counted = now, False
        elif answered is not None and not counted and now - answered > TTL:
            found, counted = found + 1, True
    return found


@given(conversations(), st.integers(200, 1_500), GAPS)
async def test_there_is_at_most_one_more_compaction_for_each_pause_and_every_view_is_valid(
    steps: list[Step], budget: int, gaps: list[int]
) -> None:
    messages = timed(flat(steps), gaps)
    _, triggers = await views(messages, budget, cache_ttl=TTL)
    assert triggers.count("cold cache") <= pauses(messages)


@given(conversations(), st.integers(200, 1_500), GAPS)
async def test_times_change_nothing_where_no_pause_outlasts_the_cache(
    steps: list[Step], budget: int, gaps: list[int]
) -> None:
    messages = flat(steps)
    short = timed(messages, [min(gap, TTL // 20) for gap in gaps])
    without, _ = await views(short, budget, cache_ttl=0)
    assert (await views(short, budget, cache_ttl=TTL * 100))[0] == without
    assert (await views(timed(messages, gaps), budget, cache_ttl=0))[0] == without
    plain = [{key: value for key, value in message.items() if key != "metadata"} for message in messages]
    assert (await views(plain, budget, cache_ttl=TTL))[0] == (await views(plain, budget, cache_ttl=0))[0]
