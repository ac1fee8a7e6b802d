"""docs/caching.md: what it says of a provider is what the lab's model of its cache does, and what the core assumes.

Every row of the first table has its checks here.
"""

import pytest

from amplifier_context_core.economics.cold_cache import CACHE_TTLS, UNKNOWN_TTL, default_ttl
from amplifier_context_core.economics.meter import USUAL_PRICES
from amplifier_context_testing.caches import Bill, anthropic, caches, openai
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from tests.messages import says, user
from tests.pages import between, read

PAGE = read("docs/caching.md")


def rows(name: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in between(PAGE, name).split("\n")[2:]]


PROVIDERS = {row[0]: row for row in rows("providers")}
MODELS = [(row[0], model.strip("` ")) for row in rows("providers") for model in row[1].split(",")]
LIVES = {"anthropic": anthropic.TTL, "declared": anthropic.TTL, "openai": openai.TTL, "prefix": openai.PREFIX_TTL}


@pytest.mark.parametrize(("provider", "model"), MODELS)
def test_prices_and_times_to_live_are_those_of_the_models(provider: str, model: str) -> None:
    reads, writes, stated = PROVIDERS[provider][3:6]
    price = Bill(10, 20, 30).plain_price if model == "prefix" else Bill(10, 20, 30).price
    assert price == pytest.approx(float(reads) * 10 + float(writes) * 20 + 30)
    assert float(reads) == USUAL_PRICES.read
    assert model == "prefix" or float(writes) == USUAL_PRICES.write
    if stated.endswith(" s"):
        seconds = float(stated.removesuffix(" s"))
        assert seconds == LIVES[model]
        view = Request.of([user("q"), says("a")] * 2, TokenScale())
        cache = caches()[model]
        cache.bill(view, 0.0)
        assert cache.bill(view, seconds).read > 0
        assert cache.bill(view, 2 * seconds + 1).read == 0


def test_the_times_to_live_the_core_assumes_are_listed_and_no_shorter_than_the_models() -> None:
    assert [(row[0].strip("`"), int(row[1])) for row in rows("ttl")] == [*CACHE_TTLS, ("any other", UNKNOWN_TTL)]
    assert default_ttl(("anthropic", "claude-opus-5-5")) == anthropic.TTL
    assert default_ttl(("openai", "gpt-5.6")) == openai.TTL
    assert default_ttl(("gemini", "")) >= openai.PREFIX_TTL
