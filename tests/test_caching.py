"""docs/caching.md: what it says of a provider is what the lab's model of its cache does, and what the core assumes.

Every row of the first table has its checks here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.economics import trigger
from amplifier_context_core.economics.cold_cache import CACHE_TTLS, UNKNOWN_TTL, default_ttl
from amplifier_context_core.economics.meter import USUAL_PRICES
from amplifier_context_testing.caches import Bill, Cache, anthropic, any_prefix, bill, caches, openai
from amplifier_context_testing.caches.anthropic import Anthropic, Stability, breakpoints
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.caches.wire import Wire, Wires
from amplifier_context_testing.checks.message_shapes import Message
from tests.managers import ask, feed, new_manager
from tests.messages import rounds, work
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


def bills(cache: Cache, *views: list[Message]) -> list[Bill]:
    scale = TokenScale()
    return [cache.bill(Request.of(view, scale), 0.0) for view in views]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def says(text: str) -> Message:
    return {"role": "assistant", "content": text}


TALK = [user("one"), says("two"), user("three"), says("four"), user("five")]


def found_at_breakpoints(cell: str, make: Callable[[], Cache]) -> None:
    """Anthropic: a prefix that ended at no breakpoint is not found; one that did is, so many blocks before another."""
    assert bills(make(), TALK, [*TALK[:2], user("other"), says("talk")])[1].read == 0
    (blocks,) = re.findall(r"at most (\d+) blocks", cell)
    assert int(blocks) == anthropic.LOOK_BACK
    for between_them, is_found in ((int(blocks) - 2, True), (int(blocks), False)):  # two messages more are after them
        many: Message = {"role": "user", "content": [{"type": "text", "text": "t"}] * between_them}
        (_, later) = bills(make(), TALK[:2], [*TALK[:2], many, says("b"), user("p")])
        assert (later.read > 0) is is_found
    (most,) = re.findall(r"at most (\d+) breakpoints", cell)
    assert int(most) == 2 + MOST_IN_A_CONVERSATION  # of the system block and of the tools, which are not recorded


def found_exactly(cell: str, make: Callable[[], Cache]) -> None:
    """OpenAI from GPT-5.6 on: nothing is read but what ends at one of the latest places and was written there."""
    assert bills(make(), TALK, [*TALK[:3], says("other"), user("talk")])[1].read == 0
    assert bills(make(), TALK[:3], TALK)[1].read > 0
    (places,) = re.findall(r"the latest (\d+) places", cell)
    for more, is_found in ((int(places) - 1, True), (int(places), False)):
        later = [user("one"), *(user(f"n{number}") for number in range(more))]
        assert (bills(make(), [user("one")], later)[1].read > 0) is is_found
    (asked,) = re.findall(r"up to (\d+) more where it is asked to", cell)
    marked = [{**user(f"n{number}"), "metadata": {"cache_breakpoint": True}} for number in range(int(asked) + 2)]
    read = [bills(openai.OpenAI(honouring=True), [*marked, user("end")], marked[: end + 1])[1].read for end in range(5)]
    assert [bool(tokens) for tokens in read] == [False] * 2 + [True] * int(asked)


def found_anywhere(cell: str, make: Callable[[], Cache]) -> None:
    """OpenAI up to GPT-5.5 and Gemini: the longest prefix of any request before, wherever it ended."""
    first, second = bills(make(), TALK, [*TALK[:2], user("other"), says("talk")])
    assert second.read == sum(one.tokens for one in bills(make(), TALK[:2])) < first.tokens


FOUND: dict[str, Callable[[str, Callable[[], Cache]], None]] = {
    "Anthropic": found_at_breakpoints,
    "OpenAI from GPT-5.6 on": found_exactly,
    "OpenAI up to GPT-5.5": found_anywhere,
    "Gemini, implicit": found_anywhere,
}
MOST_IN_A_CONVERSATION = 2  # breakpoints


@pytest.mark.parametrize(("provider", "model"), MODELS)
def test_a_prefix_is_found_where_the_row_says(provider: str, model: str) -> None:
    def make() -> Cache:
        return Anthropic(Wires(), inferring=False) if model == "anthropic" else caches()[model]

    FOUND[provider](PROVIDERS[provider][2], make)


@given(st.lists(st.sampled_from([*TALK, {"role": "tool", "tool_call_id": "a", "content": "r"}]), max_size=40))
def test_no_conversation_gets_more_breakpoints_than_the_row_says(conversation: list[Message]) -> None:
    sent = Wires().of(Request.of(conversation, TokenScale()))
    assert len(breakpoints(sent.messages)) <= MOST_IN_A_CONVERSATION


@pytest.mark.parametrize("model", list(caches()))
def test_the_models_leave_out_least_lengths_and_steps_of_128_tokens_as_the_page_says(model: str) -> None:
    assert "leave out the least lengths and the steps of 128 tokens" in PAGE
    least = min(
        int(number.replace(",", "")) for row in rows("providers") for number in re.findall(r"\d[\d,]*\d", row[6])
    )
    first, again = bills(caches()[model], TALK, TALK)
    assert first.tokens < 128 < least
    assert 0 < again.read == first.written


def test_the_page_gives_gemini_the_longest_time_that_its_row_says() -> None:
    (hours,) = re.findall(r"at most (\d+) h", PROVIDERS["Gemini, implicit"][5])
    assert dict(CACHE_TTLS)["gemini"] == int(hours) * 3600


def test_the_times_to_live_the_core_assumes_are_listed_and_no_shorter_than_the_models() -> None:
    assert [(row[0].strip("`"), int(row[1])) for row in rows("ttl")] == [*CACHE_TTLS, ("any other", UNKNOWN_TTL)]
    assert default_ttl(("anthropic", "claude-opus-5-5")) == anthropic.TTL
    assert default_ttl(("openai", "gpt-5.6")) == openai.TTL
    assert default_ttl(("gemini", "")) >= any_prefix.TTL


# -- statements of the page --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("provider", "is_cached"), [("anthropic", True), ("", False)])
async def test_by_the_sign_of_stability_a_conversation_without_other_metadata_is_cached(
    provider: str, is_cached: bool
) -> None:
    manager = await feed(new_manager(), [{"role": "system", "content": "Be brief."}, *work(1)])
    cache, scale = Anthropic(Wires(), inferring=False, needs_metadata=True), TokenScale()
    found: list[Bill] = []
    for number in range(1, 6):
        await feed(manager, rounds(1, start=number))
        view = await ask(manager, 100_000, *([SimpleNamespace(name=provider)] if provider else []))
        found.append(cache.bill(Request.of(view, scale), 0.0))
    prompt = scale.tokens({"role": "system", "content": "Be brief."})
    assert all(one.read > prompt and not one.fresh for one in found[1:]) is is_cached
    assert all(one.read == prompt and one.fresh for one in found[1:]) is not is_cached


def test_the_share_of_growth_after_which_a_pause_compacts_is_the_one_the_core_has() -> None:
    (share,) = re.findall(r"grown more than ([\d.]+) of the way", PAGE.replace("\n", " "))
    assert float(share) == trigger._NEARLY_DUE


class Changed(Stability):
    """Change 1 of the page: a request that is shorter, and changed by more than before, is a new baseline."""

    FEW = 2  # messages; the page says "a few"

    def unstable(self, sent: Wire) -> int:
        key = (sent.system.prefix if sent.system else 0, sent.messages[0].prefix)
        before, estimate = self._before.get(key, ([], 0))
        found = super().unstable(sent)
        if len(sent.messages) < len(before) and found > estimate + self.FEW:
            self._before[key] = (self._before[key][0], estimate)
            return estimate
        return found


def as_changed() -> Anthropic:
    cache = Anthropic(Wires(), inferring=True)
    cache._stability = Changed()
    return cache


CHAPTER = {**user("what was done"), "metadata": {"source": "context-compaction"}}
GROWN = [[user("q"), *(says(f"a{i}") for i in range(end))] for end in range(2, 30)]
FOLDED = [[user("q"), CHAPTER, *(says(f"a{i}") for i in range(25, end))] for end in range(30, 40)]


def test_with_the_first_change_a_compaction_costs_what_it_costs_without_inference() -> None:
    declared = bills(Anthropic(Wires(), inferring=False), *GROWN, *FOLDED)
    assert bills(as_changed(), *GROWN, *FOLDED) == declared
    shipped = bills(Anthropic(Wires(), inferring=True), *GROWN, *FOLDED)
    assert shipped[len(GROWN)].fresh > declared[len(GROWN)].fresh


def test_with_the_first_change_a_regenerated_tail_is_still_inferred() -> None:
    views = [[user("q"), *(says(f"a{i}") for i in range(end)), user(f"status {end}")] for end in range(2, 30)]
    assert bills(as_changed(), *views) == bills(Anthropic(Wires(), inferring=True), *views)
    assert bills(as_changed(), *views)[-1].fresh > 0, "the tail gets no breakpoint"
