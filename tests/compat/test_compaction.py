"""Compaction: no call is separated from its result, recent messages stay, and quoted text gives no instructions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ConfigError, PluginError
from amplifier_context_core.compat import MemoryContextStore, compact_context
from amplifier_context_core.messages.parsing import is_human, parse_message
from amplifier_context_core.rendering.rounds import Round, rounds_of
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Transcript
from tests.compat.conversations import Scribe, of

from ..laws.histories import conversations, flat
from .samples import calls, dicts, law, talk, user


def entries_of(messages: list[dict[str, Any]]) -> list[Entry]:
    history = Transcript("s")
    for raw in messages:
        history.append(history.draft(*parse_message(raw), 0, created=""))
    return list(history.snapshot())


def bodies(messages: list[dict[str, Any]]) -> list[Round]:
    """Return the rounds after the leading instructions."""
    entries = entries_of(messages)
    leading = next((n for n, entry in enumerate(entries) if entry.role not in ("system", "developer")), len(entries))
    return rounds_of(entries[leading:])


def is_old(round_: Round, recent: int) -> bool:
    return round_.last <= recent and not (round_.is_pinned or round_.holds_loaded_tools or round_.unanswered)


# -- what comes out ----------------------------------------------------------------------------------------------------


async def test_older_messages_become_one_and_recent_ones_stay() -> None:
    scribe = Scribe("The user asked eleven questions.")
    context = await of(*talk(22))
    compacted = await compact_context(context, scribe, max_messages=20, keep_recent=4)
    assert compacted is not None
    assert len(compacted) == 5
    assert compacted[1:] == talk(22)[-4:]
    assert compacted[0].role == "user"
    assert "The user asked eleven questions." in compacted[0].text
    assert "18 earlier messages" in compacted[0].text
    assert all(f"| {message.text}\n" in scribe.prompt for message in talk(22)[:18])
    assert "question 18" not in scribe.prompt


async def test_pinned_messages_stay() -> None:
    pinned = {"role": "user", "content": "The licence is MIT.", "metadata": {"pinned": True}}
    compacted = await compact_context(await of(user(), pinned, *talk(6)), Scribe(), max_messages=2, keep_recent=1)
    assert compacted is not None
    assert dicts(compacted[1:2]) == [pinned]
    assert len(compacted) == 3


async def test_a_summary_is_summarised_with_what_came_after_it_but_not_alone() -> None:
    scribe = Scribe("first summary")
    compacted = await compact_context(await of(*talk(8)), scribe, max_messages=4, keep_recent=4)
    assert compacted is not None
    assert await compact_context(await of(*compacted), scribe, max_messages=4, keep_recent=4) is None
    again = await compact_context(await of(*compacted, user("new")), Scribe("2nd"), max_messages=4, keep_recent=4)
    assert again is not None
    assert "first summary" not in again[0].text
    assert len(again) == 5


async def test_a_call_that_still_waits_for_its_result_is_kept() -> None:
    compacted = await compact_context(await of(*talk(4), calls("a")), Scribe(), max_messages=2, keep_recent=0)
    assert compacted is not None
    assert compacted[1:] == [calls("a")]


# -- rounds ------------------------------------------------------------------------------------------------------------


async def test_a_call_that_was_never_answered_and_is_long_past_is_summarised() -> None:
    compacted = await compact_context(await of(user(), calls("a"), *talk(6)), Scribe(), max_messages=2, keep_recent=2)
    assert compacted is not None
    assert len(compacted) == 3


@law
@given(conversations(), st.integers(0, 12), st.integers(0, 25))
async def test_in_any_conversation_no_round_is_split_and_order_and_words_stay(
    steps: list[Any], keep_recent: int, max_messages: int
) -> None:
    before = [{**raw, "place": place} for place, raw in enumerate(flat(steps))]
    context = await of(*before)
    compacted = await compact_context(context, Scribe(), max_messages=max_messages, keep_recent=keep_recent)
    assert dicts(await context.get_history()) == before
    recent = len(before) - keep_recent
    rounds = bodies(before)
    if compacted is None:
        assert len(before) <= max_messages or not any(is_old(round_, recent) for round_ in rounds)
        return
    assert len(before) > max_messages
    after = dicts(compacted)
    leading = len(before) - sum(len(round_.entries) for round_ in rounds)
    summary = after.pop(leading)
    assert not is_human(summary)
    assert not parse_message(summary)[1].answered_ids
    places = [raw["place"] for raw in after]
    assert after == [before[place] for place in places], "verbatim"
    assert places == sorted(places), "in their order"
    assert set(range(leading)) | set(range(recent, len(before))) <= set(places)
    for round_ in rounds:
        kept = [entry.message["place"] in places for entry in round_.entries]
        assert all(kept) or not any(kept), "whole or not at all"
        assert any(kept) or round_.last <= recent
    assert len(after) < len(before)
    assert dicts(await (await MemoryContextStore.from_history(compacted)).get_history()) == dicts(compacted)


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("summary", ["  \n\t", None])
async def test_no_summary_is_an_error_and_nothing_is_lost(summary: Any) -> None:
    context = await of(*talk(5))
    with pytest.raises(PluginError, match=r"^complete: must return the text of a summary"):
        await compact_context(context, Scribe(summary), max_messages=1, keep_recent=1)
    assert await context.get_history() == talk(5)


@pytest.mark.parametrize("problem", [RuntimeError("rate limit"), asyncio.CancelledError()])
async def test_what_the_model_raises_comes_through_and_nothing_is_lost(problem: BaseException) -> None:
    context = await of(*talk(5))
    with pytest.raises(type(problem)) as caught:
        await compact_context(context, Scribe(problem), max_messages=1, keep_recent=1)
    assert caught.value is problem or isinstance(problem, asyncio.CancelledError)
    assert await context.get_history() == talk(5)


@pytest.mark.parametrize("name", ["max_messages", "keep_recent"])
@pytest.mark.parametrize("value", [-1, "6"])
async def test_an_impossible_number_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: must be a whole number from 0 to"):
        await compact_context(await of(*talk(30)), Scribe(), **{name: value})
