"""The policy of compactions: when a view is compacted, how far, and when an attempt is repeated."""

from __future__ import annotations

from dataclasses import replace

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
from amplifier_context_core.messages.usage import Usage

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
