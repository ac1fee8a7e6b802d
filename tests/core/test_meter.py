"""The meter: what a provider reports corrects what we count, within bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from amplifier_context_core.messages.usage import Usage, measured
from amplifier_context_core.view.meter import Meter

OPENAI, ANTHROPIC = ("openai", "gpt-5"), ("anthropic", "claude")


def reported(meter: Meter, counted: int, input_tokens: int, key: Any = OPENAI) -> Meter:
    meter.report(counted, Usage(input_tokens), key)
    return meter


# -- before any report ------------------------------------------------------------------------------------------------


def test_openais_counts_are_taken_as_they_are_and_others_with_a_margin() -> None:
    meter = Meter()
    assert (
        meter.estimate(1_000, OPENAI)
        == meter.estimate(1_000, ("azure", "x"))
        == meter.estimate(1_000, ("", ""))
        == 1_000
    )
    assert meter.estimate(1_000, ANTHROPIC) > 1_000
    assert meter.capacity(10_000, ANTHROPIC) < 10_000
    assert not meter.units(ANTHROPIC).measured


def test_a_meter_that_does_not_learn_corrects_nothing() -> None:
    meter = reported(Meter(learn=False), 1_000, 5_000, ANTHROPIC)
    assert meter.estimate(1_000, ANTHROPIC) == 1_000
    assert meter.capacity(10_000, ANTHROPIC) == 10_000
    assert not meter.units(ANTHROPIC).measured


# -- learning ---------------------------------------------------------------------------------------------------------


def test_tools_and_instructions_are_learned_as_an_offset() -> None:
    meter = reported(Meter(), 10_000, 14_000)
    assert meter.units(OPENAI).measured
    assert meter.estimate(10_000, OPENAI) == 14_000
    assert meter.estimate(20_000, OPENAI) == 24_000
    assert meter.capacity(24_000, OPENAI) == 20_000


def test_another_tokenizer_is_learned_as_a_ratio() -> None:
    meter = Meter()
    for counted in range(10_000, 60_000, 2_000):
        reported(meter, counted, round(3_000 + 1.3 * counted), ANTHROPIC)
    assert meter.estimate(100_000, ANTHROPIC) == pytest.approx(133_000, rel=0.02)
    assert meter.correction(ANTHROPIC).ratio == pytest.approx(1.3, rel=0.02)


def test_the_newest_report_is_matched() -> None:
    meter = Meter()
    for counted, size in [(1_000, 4_000), (5_000, 9_000), (5_100, 9_100), (20_000, 21_000), (20_500, 30_000)]:
        reported(meter, counted, size)
        assert meter.estimate(counted, OPENAI) == pytest.approx(size, rel=0.001)


def test_a_counter_that_counts_too_much_is_corrected_downwards() -> None:
    meter = reported(Meter(), 10_000, 8_000)
    assert meter.estimate(10_000, OPENAI) == 8_000
    assert meter.capacity(8_000, OPENAI) == 10_000


def test_anthropics_cache_writes_are_part_of_what_was_sent_and_cache_reads_are_inside() -> None:
    assert measured(Usage(1_000, 50, cache_read_tokens=900, cache_write_tokens=200)) == 1_200
    meter = Meter()
    meter.report(1_000, Usage(1_000, 50, 900, 200), ANTHROPIC)
    assert meter.estimate(1_000, ANTHROPIC) == 1_200


def test_each_provider_and_model_is_learned_for_itself() -> None:
    meter = reported(Meter(), 10_000, 14_000)
    assert meter.estimate(10_000, ("openai", "gpt-4")) == 10_000
    assert not meter.units(("openai", "gpt-4")).measured


def test_a_model_not_named_is_taken_for_the_one_last_seen_of_its_provider() -> None:
    meter = reported(Meter(), 10_000, 14_000, ANTHROPIC)
    assert meter.estimate(10_000, ("anthropic", "")) == 14_000


@pytest.mark.parametrize(("counted", "size"), [(0, 5_000), (-5, 5_000), (1_000, 0)])
def test_a_report_that_says_nothing_teaches_nothing(counted: int, size: int) -> None:
    meter = reported(Meter(), counted, size)
    assert not meter.units(OPENAI).measured
    assert meter.estimate(1_000, OPENAI) == 1_000


# -- within bounds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_no_reports_whatever_they_say_lead_it_out_of_its_bounds(seed: int) -> None:
    chance = random.Random(seed)
    meter = Meter()
    for _ in range(200):
        meter.report(
            int(10 ** chance.uniform(0, 7)),
            Usage(int(10 ** chance.uniform(0, 9)), 0, 0, int(10 ** chance.uniform(0, 6))),
            OPENAI,
        )
        known = meter.correction(OPENAI)
        assert 0.5 <= known.ratio <= 3.0
        assert known.offset >= 0
        assert meter.capacity(200_000, OPENAI) >= 200_000 * 0.1 / 3 - 1
        assert meter.capacity(1, OPENAI) >= 1


@pytest.mark.parametrize("counted", [3, 400, 5_000, 100_000])
def test_one_odd_report_does_not_leave_a_view_without_room(counted: int) -> None:
    meter = reported(Meter(), counted, 50_000_000)
    assert meter.capacity(200_000, OPENAI) >= 6_000


def test_an_odd_report_is_forgotten_by_the_next_ones() -> None:
    meter = reported(Meter(), 10_000, 40_000_000)
    for counted in range(10_000, 40_000, 1_000):
        reported(meter, counted, counted + 2_000)
    assert meter.estimate(40_000, OPENAI) == pytest.approx(42_000, rel=0.05)


def test_a_thousand_models_do_not_fill_the_memory() -> None:
    meter = Meter()
    for number in range(1_000):
        assert reported(meter, 1_000, 1_200, ("p", f"m{number}")).capacity(1_000, ("p", f"m{number}")) > 0
    assert len(meter.corrections) <= 256  # pyright: ignore[reportPrivateUsage]


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refused_request_lowers_the_window() -> None:
    meter = Meter()
    assert meter.refused(100_000, OPENAI) == 90_000
    assert meter.capacity(200_000, OPENAI) == 90_000
    assert meter.capacity(50_000, OPENAI) == 50_000


def test_each_refusal_lowers_it_further_but_never_to_nothing() -> None:
    meter = Meter()
    windows = [meter.refused(100_000, OPENAI), meter.refused(90_000, OPENAI), meter.refused(81_000, OPENAI)]
    assert windows == sorted(windows, reverse=True)
    for _ in range(200):
        meter.refused(10, OPENAI)
    assert meter.capacity(200_000, OPENAI) >= 200


def test_a_refusal_never_raises_the_window() -> None:
    meter = Meter()
    meter.refused(50_000, OPENAI)
    assert meter.refused(100_000, OPENAI) == 45_000


def test_a_larger_request_that_was_accepted_raises_it_again() -> None:
    meter = Meter()
    meter.refused(100_000, OPENAI)
    reported(meter, 95_000, 95_000)
    assert meter.capacity(200_000, OPENAI) == 95_000


def test_a_meter_that_does_not_learn_still_heeds_a_refusal() -> None:
    meter = Meter(learn=False)
    meter.refused(100_000, OPENAI)
    assert meter.capacity(200_000, OPENAI) == 90_000
