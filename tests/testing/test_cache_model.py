"""The meter: a provider's cache, played."""

from __future__ import annotations

from amplifier_context_testing import WordCounter
from amplifier_context_testing.replay.cache_model import RequestMeter

ONE = {"role": "user", "content": "one two three"}
TWO = {"role": "assistant", "content": "four five"}
THREE = {"role": "user", "content": "six"}


def meter() -> RequestMeter:
    return RequestMeter(WordCounter())


def test_a_request_that_only_grew_is_read_from_the_cache_up_to_what_is_new() -> None:
    scales = meter()
    first = scales.weigh([ONE])
    assert (first.weight.tokens, first.weight.cached) == (7, 0)
    scales.keep(first)
    second = scales.weigh([ONE, TWO, THREE]).weight
    assert (second.tokens, second.cached, second.shared) == (7 + 6 + 5, 7, 1)


def test_a_change_early_on_costs_the_whole_cache() -> None:
    scales = meter()
    scales.keep(scales.weigh([ONE, TWO]))
    assert scales.weigh([{**ONE, "content": "one two four"}, TWO]).weight.cached == 0


def test_a_change_of_metadata_costs_nothing() -> None:
    scales = meter()
    scales.keep(scales.weigh([ONE, TWO]))
    assert scales.weigh([{**ONE, "metadata": {"timestamp": "now"}}, TWO]).weight.shared == 2
