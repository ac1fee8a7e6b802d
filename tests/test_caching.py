"""docs/caching.md: what it says of a provider is what the lab's model of its cache does, and what the core assumes."""

from __future__ import annotations

import pytest

from amplifier_context_core.view.cold_cache import CACHE_TTLS, UNKNOWN_TTL, default_ttl
from amplifier_context_core.view.meter import USUAL_PRICES
from amplifier_context_testing.lab.caches import Bill, anthropic, any_prefix, bill, caches, openai
from amplifier_context_testing.lab.request import Request
from amplifier_context_testing.lab.token_scale import TokenScale
from tests.pages import between, read

PAGE = read("docs/caching.md")


def rows(name: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in between(PAGE, name).split("\n")[2:]]


PROVIDERS = {row[0]: row for row in rows("providers")}
MODELS = [(row[0], model.strip("` ")) for row in rows("providers") for model in row[1].split(",")]
LIVES = {"anthropic": anthropic.TTL, "declared": anthropic.TTL, "openai": openai.TTL, "prefix": any_prefix.TTL}


@pytest.mark.parametrize(("provider", "model"), MODELS)
def test_prices_are_those_of_the_models(provider: str, model: str) -> None:
    read_price, write_price = float(PROVIDERS[provider][3]), float(PROVIDERS[provider][4])
    assert read_price == bill.READ == USUAL_PRICES.read
    if model == "prefix":
        assert Bill(10, 20, 30).plain_price == pytest.approx(read_price * 10 + write_price * 20 + 30)
    else:
        assert Bill(10, 20, 30).price == pytest.approx(read_price * 10 + write_price * 20 + 30)
        assert write_price == USUAL_PRICES.write


@pytest.mark.parametrize(("provider", "model"), MODELS)
def test_times_to_live_are_those_of_the_models(provider: str, model: str) -> None:
    stated = PROVIDERS[provider][5]
    if stated.endswith(" s"):
        seconds = float(stated.removesuffix(" s"))
        assert seconds == LIVES[model]
        view = Request.of([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}] * 2, TokenScale())
        cache = caches()[model]
        cache.bill(view, 0.0)
        assert cache.bill(view, seconds).read > 0
        assert cache.bill(view, 2 * seconds + 1).read == 0


def test_limits_of_the_models_are_in_the_text() -> None:
    assert f"at most {anthropic.LOOK_BACK} blocks before" in PROVIDERS["Anthropic"][2]
    assert f"the latest {openai.PLACES} places" in PROVIDERS["OpenAI from GPT-5.6 on"][2]


def test_every_model_of_the_lab_without_the_mark_is_in_the_table() -> None:
    assert {model for _, model in MODELS} == {name for name in caches() if not name.endswith("+")}


def test_the_times_to_live_the_core_assumes_are_listed_and_no_shorter_than_the_models() -> None:
    assert [(row[0].strip("`"), int(row[1])) for row in rows("ttl")] == [*CACHE_TTLS, ("any other", UNKNOWN_TTL)]
    assert default_ttl(("anthropic", "claude-opus-5-5")) == anthropic.TTL
    assert default_ttl(("openai", "gpt-5.6")) == openai.TTL
    assert default_ttl(("gemini", "")) >= any_prefix.TTL
