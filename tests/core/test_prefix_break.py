"""When a provider writes a prefix again: how long pauses were, and how long each provider keeps what it cached."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.economics.cold_cache import (
    UNKNOWN_TTL,
    Pause,
    PrefixBreak,
    default_ttl,
    pause_of,
    rewrites_all,
)
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.timestamps import seconds_of
from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_core.outgoing.prefix import RequestPrefix
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.transcript.transcript import Snapshot, Transcript
from amplifier_context_core.view.candidate import ViewRequest
from amplifier_context_core.view.sent_view import SentViews
from tests.managers import new_manager
from tests.messages import result, says, user

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def history(*timed: tuple[dict[str, Any], float | str]) -> Snapshot:
    """A history of messages, each with its time: seconds since the start, or as written."""
    made = Transcript("s")
    for raw, at in timed:
        message, info = parse_message(raw)
        stamp = at if isinstance(at, str) else (START + timedelta(seconds=at)).isoformat(timespec="milliseconds")
        made.append(made.draft(message, info, 1, created=stamp))
    return made.snapshot()


def test_a_pause_is_the_time_from_the_newest_answer_to_the_newest_message() -> None:
    assert pause_of(history((user("q"), 0), (says("a"), 10), (user("on"), 400))) == Pause(2, 390.0)
    assert pause_of(history((says("a"), 10), (result("r"), 20), (result("s"), 900))) == Pause(1, 890.0)
    assert pause_of(history((says("a"), 0), (user("on"), 400), (says("b"), 410), (user("p"), 415))) == Pause(3, 5.0)
    assert pause_of(history((user("q"), 0), (user("r"), 9_000))) == pause_of(history()) == Pause()


@pytest.mark.parametrize("stamp", ["", "2026-13-45T00:00:00", "x" * 10_000])
def test_a_time_that_makes_no_sense_makes_no_pause(stamp: str) -> None:
    assert pause_of(history((says("a"), 0), (user("on"), stamp))).seconds == 0
    assert pause_of(history((says("a"), stamp), (user("on"), 9_000))).seconds == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(-1e6, 1e6)), max_size=8))
def test_no_pause_is_negative(talk: list[tuple[bool, float]]) -> None:
    assert pause_of(history(*((says("a") if answer else user("q"), at) for answer, at in talk))).seconds >= 0


@given(st.text(max_size=40))
def test_reading_a_time_never_fails(stamp: str) -> None:
    assert seconds_of(stamp) is None or isinstance(seconds_of(stamp), float)


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("1970-01-01T00:00:10.500+00:00", 10.5),
        ("1970-01-01T00:00:10", 10.0),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("1970-01-01T00:00:10Z", 10.0),
    ],
)
def test_times_are_read_with_and_without_an_offset(stamp: str, seconds: float) -> None:
    assert seconds_of(stamp) == seconds


@pytest.mark.parametrize(
    ("key", "seconds"),
    [
        (("anthropic", "claude-opus-5-5"), 300),
        (("github-copilot", "claude-sonnet-5"), 300),
        (("openai", "gpt-5.6"), 1_800),
        (("gemini", "gemini-3-pro"), 86_400),
        (("some_vendor", "something"), UNKNOWN_TTL),
    ],
)
def test_each_provider_keeps_a_prefix_for_its_own_time(key: tuple[str, str], seconds: int) -> None:
    assert default_ttl(key) == seconds


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (("openai", "gpt-5.6"), True),
        (("openai", "gpt-5.6-luna"), True),
        (("openai", ""), True),
        (("openai", "gpt-5.5"), False),
        (("azure-openai", "gpt-35-turbo"), False),  # Azure's name of GPT-3.5
        (("openai", "gpt-" + "9" * 5_000), False),
        (("anthropic", "claude-opus-5"), False),
        (("", ""), False),
    ],
)
def test_new_models_of_openai_write_a_changed_prefix_as_a_whole(key: tuple[str, str], found: bool) -> None:
    assert rewrites_all(key) is found


PAUSED = history((says("a"), 0), (user("on"), 301))


@pytest.mark.parametrize(("ttl", "found"), [(300, PrefixBreak.COLD), (301, None), (0, None)])
def test_the_cache_is_cold_after_a_pause_longer_than_its_time_to_live(ttl: int, found: PrefixBreak | None) -> None:
    limits = replace(new_manager().compactor.limits(1_000, ("", "")), cache_ttl=ttl)
    request = ViewRequest(limits, RequestPrefix(), (), approx_token_counter)
    assert SentViews().break_before(request, pause_of(PAUSED)) is found


async def test_a_change_that_makes_the_provider_write_all_again_is_known_before_the_request() -> None:
    """The hook for what may be put into a view when that costs nothing extra."""
    manager = new_manager(cache_ttl=300)
    await manager.add_message({"role": "user", "content": "Do it."})
    compactor, key = manager.compactor, ("anthropic", "m")

    def reason(key: tuple[str, str] = key, system: str = "", **tools: object) -> PrefixBreak | None:
        prompt = [RenderedMessage({"role": "system", "content": system}, 1)] if system else []
        prefix = RequestPrefix.of(key, tools, prompt)
        request = ViewRequest(compactor.limits(1_000, key), prefix, tuple(prompt), approx_token_counter)
        return compactor.sent.break_before(request, Pause())

    assert reason() is None, "before the first request nothing is known"
    await manager.get_messages_for_request(1_000, SimpleNamespace(name="anthropic", default_model="m"))
    assert reason() is None
    assert reason(("openai", "m")) is PrefixBreak.PROVIDER_CHANGE
    assert reason(system="Another.") is PrefixBreak.SYSTEM_PROMPT
    assert reason(read=SimpleNamespace(name="read")) is PrefixBreak.TOOLS
