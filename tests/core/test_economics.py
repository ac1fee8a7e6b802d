"""What a request may cost: its budget, what providers report and correct, and when they write a prefix again."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from amplifier_core import ModelInfo
from amplifier_core.models import Pricing
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import load_config
from amplifier_context_core.economics.budget import Budget, budget_for, model_of, name_of, prices_of, provider_window
from amplifier_context_core.economics.cold_cache import Pause, pause_of, rewrites_all
from amplifier_context_core.economics.meter import Meter, Prices
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.messages.usage import Usage, measured, usage_of
from amplifier_context_core.transcript.transcript import Snapshot
from tests.core.drafts import transcript
from tests.messages import result, says, user


def provider(window: Any = None, answer: Any = None, **more: Any) -> Any:
    defaults = {"context_window": window, "max_output_tokens": answer, **more}
    return SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=defaults))


MODEL = {"id": "m", "display_name": "M", "context_window": 1_000, "max_output_tokens": 10}


def budget(**settings: Any) -> Budget:
    of_request = {name: settings.pop(name) for name in ("token_budget", "provider") if name in settings}
    defaults = {"output_reserve_fraction": 1.0, "safety_margin": 1_000}
    return budget_for(load_config({**defaults, **settings}), **of_request)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"token_budget": 5_000, "provider": provider(100_000)}, Budget(5_000)),
        ({"token_budget": 5_000, "max_tokens": 200_000}, Budget(5_000)),
        ({"provider": provider(100_000, 8_000)}, Budget(91_000)),
        ({"provider": provider(100_000, 8_000), "output_reserve_fraction": 0.5}, Budget(95_000)),
        ({}, Budget(200_000)),
        ({"max_tokens": 200_000}, Budget(200_000)),
        ({"token_budget": 300_000, "max_tokens": 200_000}, Budget(200_000, capped_from=300_000)),
        ({"provider": provider(301_000), "max_tokens": 200_000}, Budget(200_000, capped_from=300_000)),
    ],
)
def test_a_budget_is_the_callers_else_the_providers_else_the_configs_and_a_configured_maximum_caps(
    settings: dict[str, Any], expected: Budget
) -> None:
    assert budget(**settings) == expected


def test_an_impossible_explicit_budget_is_an_error_that_says_so() -> None:
    for bad in (0, True, 5.5, "100"):
        with pytest.raises(ConfigError, match=f"token_budget: must be at least 1 token.*{bad!r}"):
            budget(token_budget=bad)


def test_a_window_that_makes_no_sense_is_none_and_as_much_is_kept_free_as_a_sensible_longest_answer() -> None:
    for window in (0, True, "128000", float("inf"), 0.5, 10**9, 10**400, MagicMock()):
        assert provider_window(provider(window), 1.0, 1_000) is None
    for odd in (None, 0, -8_000, "8000", float("nan"), 10**400):
        assert provider_window(provider(100_000, odd), 1.0, 1_000) == 99_000
    for window, answer, found in ((8_192, 8_192, 4_096), (500, None, 250), (1, None, 1)):
        assert provider_window(provider(window, answer), 1.0, 1_000) == found, "half is kept free"


class Unreadable(dict[str, Any]):
    """A mapping or provider of which every question is an error."""

    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError("not connected")

    __bool__ = __getattr__ = get


async def later() -> Any:
    return {"context_window": 5}


@pytest.mark.parametrize(
    "odd",
    [
        *(object(), Unreadable(), MagicMock(), SimpleNamespace(get_info=5, get_model_info="x")),
        SimpleNamespace(get_info=later, get_model_info=later),
        SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=None)),
        *(
            SimpleNamespace(get_model_info=lambda info=info: info, get_info=lambda info=info: info)
            for info in (Unreadable(), {"pricing": Unreadable()}, SimpleNamespace(defaults=Unreadable()))
        ),
    ],
    ids=lambda odd: type(odd).__name__,
)
def test_a_provider_that_lacks_raises_or_talks_nonsense_falls_back(odd: Any) -> None:
    assert budget(provider=odd) == Budget(200_000)
    assert (model_of(odd), prices_of(odd), name_of(odd)) == (None, None, "")


def test_what_is_known_of_the_model_comes_before_the_defaults_and_names_are_found_where_they_are() -> None:
    both = provider(100_000)
    known = (SimpleNamespace(context_window=50_000, max_output_tokens=0), {"context_window": 60_000})
    for info, window in ((known[0], 50_000), (known[1], 60_000), ({"context_window": 0}, 100_000)):
        both.get_model_info = lambda info=info: info
        assert provider_window(both, 1.0, 0) == window
    named = (provider(1, model="a"), provider(1, default_model="b"), SimpleNamespace(default_model="c"), None)
    assert [model_of(one) for one in named] == ["a", "b", "c", None]
    assert name_of(SimpleNamespace(name="anthropic")) == "anthropic"


def test_prices_of_cached_tokens_are_read_from_the_model_info_and_impossible_ones_are_none() -> None:
    def priced(read: Any, write: Any = None, plain: float = 4.0) -> Prices | None:
        pricing = {"input_per_million": plain, "cache_read_per_million": read, "cache_write_per_million": write}
        infos: list[Any] = [{"pricing": pricing}]
        if not isinstance(write, str):
            infos.append(ModelInfo(**MODEL, pricing=Pricing(**pricing, output_per_million=20.0)))
        (found,) = {prices_of(SimpleNamespace(get_model_info=lambda info=info: info)) for info in infos}
        return found

    assert [priced(0.2, 5.0), priced(1.0)] == [Prices(0.05, 1.25), Prices(0.25, 1.0)]
    assert priced(0.4, "5") == Prices(0.1, 1.0)
    for impossible in (None, 0.0, 5.0, 1e-320):  # dearer than a plain token; the threshold would divide by the last
        assert priced(impossible) is None
    assert priced(0.4, 0.1) is priced(0.4, plain=float("inf")) is None


# -- usage: under the names of any provider ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "usage"),
    [
        ({"input_tokens": 5, "cache_read_tokens": 3, "cache_write_tokens": 1}, Usage(5, 0, 3, 1)),
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
        ({"input": 5, "output": 2}, Usage(5, 2)),
        ({"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1}, Usage(5, 0, 3, 1)),
        ({"input_tokens": 5, "output_tokens": None, "cache_read_tokens": "3"}, Usage(5)),
        ({"input_tokens": None, "prompt_tokens": 7}, Usage(7)),
        ({"input_tokens": 5, "prompt_tokens": 7}, Usage(5)),
        ({"input_tokens": 5, "cost_usd": "0.10"}, Usage(5, cost_usd="0.10")),
        ({"input_tokens": 5, "cost_usd": "0"}, Usage(5, cost_usd="0")),
        ({"input_tokens": 5, "cost_usd": Decimal("0.047")}, Usage(5, cost_usd="0.047")),
        *(({"input_tokens": 5, "cost_usd": cost}, Usage(5)) for cost in (0.1, True, "", "-1", "NaN", f"0.{'1' * 60}")),
        ({"input_tokens": 0}, Usage(0)),
        ({"input_tokens": 5, "cache_read_tokens": 10**400}, Usage(5)),
        *((odd, None) for odd in ({"output_tokens": 2}, {"input_tokens": -5}, {"input_tokens": 10**400})),
        ("Usage(input_tokens=5, output_tokens=2)", None),
    ],
    ids=str,
)
def test_usage_is_read_in_every_spelling_and_text_is_none(data: Any, usage: Usage | None) -> None:
    """The kernel turns a usage object on `provider:response` into text (docs/kernel.md)."""
    assert usage_of(data) == usage


# -- the meter: what a provider reports corrects what we count, within bounds ------------------------------------------
OPENAI, ANTHROPIC = ("openai", "gpt-5"), ("anthropic", "claude")


def reported(meter: Meter, counted: int, input_tokens: int, key: Any = OPENAI) -> Meter:
    meter.report(counted, Usage(input_tokens), key)
    return meter


def capacity(meter: Meter, budget: int) -> int:
    return meter.units(OPENAI).capacity(meter.accepted(budget, OPENAI))


def test_tools_and_instructions_are_learned_as_an_offset_and_a_counter_that_counts_too_much_is_corrected() -> None:
    meter = reported(Meter(), 10_000, 14_000)
    assert meter.units(OPENAI).measured
    assert (meter.estimate(10_000, OPENAI), meter.estimate(20_000, OPENAI)) == (14_000, 24_000)
    assert meter.units(OPENAI).capacity(24_000) == 20_000
    meter = reported(Meter(), 10_000, 8_000)
    assert (meter.estimate(10_000, OPENAI), meter.units(OPENAI).capacity(8_000)) == (8_000, 10_000)


def test_a_refusal_lowers_the_window_only_and_a_larger_request_that_was_accepted_raises_it_again() -> None:
    meter = Meter()
    meter.refused(50_000, OPENAI)
    assert meter.refused(100_000, OPENAI) == 45_000
    reported(meter, 95_000, 95_000)
    assert capacity(meter, 200_000) == 95_000


def test_another_tokenizer_is_learned_as_a_ratio_and_cache_writes_are_part_of_what_was_sent() -> None:
    assert measured(Usage(1_000, 50, cache_read_tokens=900, cache_write_tokens=200)) == 1_200, "reads are inside"
    meter = Meter()
    meter.report(1_000, Usage(1_000, 50, 900, 200), ANTHROPIC)
    assert meter.estimate(1_000, ANTHROPIC) == 1_200
    meter = Meter()
    for counted in range(10_000, 60_000, 2_000):
        reported(meter, counted, round(3_000 + 1.3 * counted), ANTHROPIC)
    assert meter.estimate(100_000, ANTHROPIC) == pytest.approx(133_000, rel=0.02)
    assert meter.correction(ANTHROPIC).ratio == pytest.approx(1.3, rel=0.02)


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


# -- when a provider writes a prefix again -----------------------------------------------------------------------------
def history(*timed: tuple[dict[str, Any], float | str]) -> Snapshot:
    """A history of messages, each with its time: seconds since the start, or as written."""
    start = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    stamps = [at if isinstance(at, str) else (start + timedelta(seconds=at)).isoformat() for _, at in timed]
    entries = transcript(message for message, _ in timed).snapshot()
    timed_entries = [one._replace(created=at, completed=at) for one, at in zip(entries, stamps, strict=True)]
    return Snapshot(timed_entries, len(timed_entries), 0)


def test_a_pause_is_the_time_from_the_newest_answer_to_the_newest_message() -> None:
    assert pause_of(history((user("q"), 0), (says("a"), 10), (user("on"), 400))) == Pause(2, 390.0)
    assert pause_of(history((says("a"), 10), (result("r"), 20), (result("s"), 900))) == Pause(1, 890.0)
    assert pause_of(history((says("a"), 0), (user("on"), 400), (says("b"), 410), (user("p"), 415))) == Pause(3, 5.0)
    assert pause_of(history((user("q"), 0), (user("r"), 9_000))) == pause_of(history()) == Pause()


@given(st.lists(st.tuples(st.booleans(), st.floats(-1e6, 1e6) | st.text(max_size=40)), max_size=8))
@example([(True, 0.0), (False, "2026-13-45T00:00:00")])
@example([(True, "x" * 10_000), (False, 9_000.0)])
def test_no_pause_is_negative_whatever_is_written_as_a_time(talk: list[tuple[bool, float | str]]) -> None:
    pause = pause_of(history(*((says("a") if answer else user("q"), at) for answer, at in talk)))
    assert pause.seconds >= 0
    assert pause.seconds == 0 or len([at for _, at in talk if isinstance(at, float)]) > 1


def test_new_models_of_openai_write_a_changed_prefix_as_a_whole() -> None:
    assert all(rewrites_all(("openai", model)) for model in ("gpt-5.6", "gpt-5.6-luna", ""))
    others = ("gpt-5.5", "gpt-35-turbo", "gpt-" + "9" * 5_000)  # the second is Azure's name of GPT-3.5
    assert not any(rewrites_all(("azure-openai", model)) for model in others)
    assert not any(rewrites_all(key) for key in (("anthropic", "claude-opus-5"), ("", "")))
