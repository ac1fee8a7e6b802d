"""The policy of compactions: when a view is compacted, how far, and when an attempt is repeated."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from amplifier_core import HookRegistry
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, Plugins, load_config
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
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import EventRecorder

from .histories import Message, Step, conversations, flat
from .managers import valid

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


@given(TOKENS)
def test_what_a_compaction_must_free_is_that_of_the_config(tokens: int) -> None:
    assert token_limits(Config.model_validate({"clear_at_least": tokens}), Meter(), 10_000, KEY).min_freed == tokens


@given(limits(), growths() | st.none(), TOKENS)
def test_a_fixed_threshold_is_that_of_the_config(limits: TokenLimits, growth: Growth | None, system: int) -> None:
    assert compaction_threshold(growth, limits, system, adaptive=False) == limits.threshold


@given(limits(), growths() | st.none(), TOKENS)
def test_no_threshold_is_above_the_capacity(limits: TokenLimits, growth: Growth | None, system: int) -> None:
    assert compaction_threshold(growth, limits, system, adaptive=True) <= limits.capacity


@given(limits(), growths(), TOKENS)
def test_a_view_that_grew_by_less_than_a_compaction_must_free_is_left_alone(
    limits: TokenLimits, growth: Growth, system: int
) -> None:
    """Unless it is above the threshold of the config."""
    threshold = compaction_threshold(growth, limits, system, adaptive=True)
    assert threshold >= min(limits.threshold, system + growth.checkpoint + limits.min_freed)


@given(limits(), growths(), TOKENS, st.integers(1, 100_000))
def test_the_more_a_compaction_rewrites_the_later_it_comes(
    limits: TokenLimits, growth: Growth, system: int, more: int
) -> None:
    dearer = replace(growth, rewritten=growth.rewritten + more)
    cheap, dear = (compaction_threshold(one, limits, system, adaptive=True) for one in (growth, dearer))
    assert cheap <= dear


@given(limits(), TOKENS, TOKENS)
def test_a_longer_system_prompt_makes_the_first_compaction_no_earlier(
    limits: TokenLimits, system: int, more: int
) -> None:
    short, long = (compaction_threshold(None, limits, tokens, adaptive=True) for tokens in (system, system + more))
    assert short <= long


@given(limits(), TOKENS)
def test_a_target_is_at_most_that_of_the_limits_and_never_far_below(limits: TokenLimits, threshold: int) -> None:
    target = compaction_target(threshold, limits)
    assert target <= limits.target
    assert target >= max(1, int(limits.target * 0.8))
    if threshold >= limits.threshold:
        assert target == limits.target


@given(limits(), TOKENS, st.integers(0, 10_000), st.booleans())
def test_an_attempt_is_not_repeated_at_once(
    limits: TokenLimits, tokens: int, compactable: int, infeasible: bool
) -> None:
    record = back_off(tokens, compactable, limits, infeasible=infeasible)
    assert record.postpones(tokens, compactable, limits.capacity)


@given(limits(), TOKENS, st.integers(0, 10_000), st.booleans(), TOKENS, st.integers(0, 10_000))
def test_an_attempt_is_repeated_once_the_view_has_grown_enough(
    limits: TokenLimits, tokens: int, compactable: int, infeasible: bool, growth: int, closed: int
) -> None:
    """Above the capacity it is repeated as soon as there is more to compact, if that can help at all."""
    record = back_off(tokens, compactable, limits, infeasible=infeasible)
    grown = tokens + growth
    postponed = record.postpones(grown, compactable + closed, limits.capacity)
    if grown > limits.capacity and not infeasible:
        assert postponed == (closed == 0)
    else:
        assert postponed == (growth < max(1, limits.min_freed))


@given(limits(), TOKENS, st.integers(0, 10_000), st.booleans(), st.integers(1, 2_000_000))
def test_an_attempt_at_another_capacity_says_nothing(
    limits: TokenLimits, tokens: int, compactable: int, infeasible: bool, capacity: int
) -> None:
    record = back_off(tokens, compactable, limits, infeasible=infeasible)
    if not 0.97 * limits.capacity <= capacity <= 1.03 * limits.capacity:
        assert not record.postpones(tokens, compactable, capacity)


@given(limits(), growths(), TOKENS, st.floats(0.01, 1), st.floats(0.01, 1), st.floats(1, 4), st.floats(1, 4))
def test_a_dearer_read_makes_a_compaction_come_sooner_and_a_dearer_write_later(
    limits: TokenLimits, growth: Growth, system: int, read: float, other_read: float, write: float, other_write: float
) -> None:
    def threshold(read: float, write: float) -> int:
        return compaction_threshold(growth, replace(limits, prices=Prices(read, write)), system, adaptive=True)

    few, many = sorted((read, other_read))
    cheap, dear = sorted((write, other_write))
    assert threshold(many, write) <= threshold(few, write)
    assert threshold(read, cheap) <= threshold(read, dear)


@given(limits(), growths(), TOKENS)
def test_with_a_cold_cache_a_compaction_comes_no_later_and_not_before_anything_grew(
    limits: TokenLimits, growth: Growth, system: int
) -> None:
    threshold = compaction_threshold(growth, limits, system, adaptive=True)
    base = system + growth.checkpoint
    assert min(base, threshold) <= cold_threshold(threshold, base) <= threshold


@given(limits(), growths(), TOKENS)
def test_where_a_changed_prefix_is_written_as_a_whole_a_compaction_comes_no_sooner(
    limits: TokenLimits, growth: Growth, system: int
) -> None:
    whole = replace(limits, rewrites_all=True)
    assert compaction_threshold(growth, whole, system, adaptive=True) >= compaction_threshold(
        growth, limits, system, adaptive=True
    )


def test_where_a_compaction_writes_all_of_its_target_it_aims_lower() -> None:
    def target(key: tuple[str, str]) -> int:
        return token_limits(Config.model_validate({"token_meter": "estimate"}), Meter(learn=False), 10_000, key).target

    assert (target(("openai", "gpt-5.5")), target(("openai", "gpt-5.6"))) == (5_000, 4_000)


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
    shared_cache.clear()
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, ["context:compaction"])
    settings = load_config({"token_counter": "heuristic", **config})
    manager = ContextManager(settings, session_id="s", hooks=hooks, plugins=Plugins(), clock=lambda: START.isoformat())
    found: list[list[Message]] = []
    for message in messages:
        await manager.add_message(message)
        found.append(await manager.get_messages_for_request(token_budget=budget))
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
    found, triggers = await views(messages, budget, cache_ttl=TTL)
    assert triggers.count("cold cache") <= pauses(messages)
    for view in found:
        valid(view)


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
