"""The meter: what a provider reports corrects what we count, within bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from amplifier_context_core.economics.meter import Meter
from amplifier_context_core.messages.usage import Usage, measured

OPENAI, ANTHROPIC = ("openai", "gpt-5"), ("anthropic", "claude")


def reported(meter: Meter, counted: int, input_tokens: int, key: Any = OPENAI) -> Meter:
    meter.report(counted, Usage(input_tokens), key)
    return meter


def capacity(meter: Meter, budget: int) -> int:
    return meter.units(OPENAI).capacity(meter.accepted(budget, OPENAI))


def test_tools_and_instructions_are_learned_as_an_offset() -> None:
    meter = reported(Meter(), 10_000, 14_000)
    assert meter.units(OPENAI).measured
    assert meter.estimate(10_000, OPENAI) == 14_000
    assert meter.estimate(20_000, OPENAI) == 24_000
    assert meter.units(OPENAI).capacity(24_000) == 20_000


def test_another_tokenizer_is_learned_as_a_ratio() -> None:
    meter = Meter()
    for counted in range(10_000, 60_000, 2_000):
        reported(meter, counted, round(3_000 + 1.3 * counted), ANTHROPIC)
    assert meter.estimate(100_000, ANTHROPIC) == pytest.approx(133_000, rel=0.02)
    assert meter.correction(ANTHROPIC).ratio == pytest.approx(1.3, rel=0.02)


def test_a_counter_that_counts_too_much_is_corrected_downwards() -> None:
    meter = reported(Meter(), 10_000, 8_000)
    assert meter.estimate(10_000, OPENAI) == 8_000
    assert meter.units(OPENAI).capacity(8_000) == 10_000


def test_anthropics_cache_writes_are_part_of_what_was_sent_and_cache_reads_are_inside() -> None:
    assert measured(Usage(1_000, 50, cache_read_tokens=900, cache_write_tokens=200)) == 1_200
    meter = Meter()
    meter.report(1_000, Usage(1_000, 50, 900, 200), ANTHROPIC)
    assert meter.estimate(1_000, ANTHROPIC) == 1_200


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
        assert capacity(meter, 200_000) >= 200_000 * 0.1 / 3 - 1
        assert capacity(meter, 1) >= 1


def test_a_refusal_never_raises_the_window() -> None:
    meter = Meter()
    meter.refused(50_000, OPENAI)
    assert meter.refused(100_000, OPENAI) == 45_000


def test_a_larger_request_that_was_accepted_raises_it_again() -> None:
    meter = Meter()
    meter.refused(100_000, OPENAI)
    reported(meter, 95_000, 95_000)
    assert capacity(meter, 200_000) == 95_000
