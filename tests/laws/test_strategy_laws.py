"""Laws of strategies run by themselves: any conversation, any strategy that drops or shortens."""

import copy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import (
    ClearToolOutputs,
    ClipToolOutputs,
    CondenseChapters,
    DropChapters,
    FitContextWindow,
    FoldRounds,
    Goal,
    KeepImportant,
    Plugins,
    Strategy,
    SupersedeStaleReads,
    TrimRounds,
    TruncateToolOutputs,
    approx_token_counter,
    count_tokens,
    load_config,
)
from amplifier_context_core.compaction.ladder import build_ladder, run_ladder
from amplifier_context_core.compaction.protected import Protection
from amplifier_context_core.compaction.strategies.base import draft_of
from amplifier_context_core.messages.parsing import SYSTEM_ROLES, is_human, parse_message
from amplifier_context_core.rendering.rounds import Round, rounds_of
from tests.core.drafts import transcript
from tests.messages import block, call, result, says, user

from .histories import ORDERLY_STEPS, Message, conversations, flat


def length(message: Message) -> float:
    return float(len(str(message.get("content"))))


DROPPING: st.SearchStrategy[Strategy] = st.one_of(
    st.builds(TrimRounds, st.integers(0, 6)),
    st.builds(FitContextWindow, st.integers(1, 3_000), reserve_tokens=st.integers(0, 500)),
    st.builds(KeepImportant, st.just(length), st.integers(0, 10)),
)
SHORTENING: st.SearchStrategy[Strategy] = st.one_of(
    st.builds(TruncateToolOutputs, st.integers(1, 400)),
    st.builds(ClipToolOutputs, st.integers(1, 400)),
    st.builds(ClearToolOutputs, st.integers(0, 5)),
    st.just(SupersedeStaleReads()),
)
FOLDING: st.SearchStrategy[Strategy] = st.one_of(
    st.builds(FoldRounds, st.floats(0.01, 1)), st.just(CondenseChapters()), st.just(DropChapters())
)
EVERY = st.one_of(DROPPING, SHORTENING, FOLDING)


def rounds(messages: list[Message]) -> list[Round]:
    """The rounds after the leading instructions; an entry's seq is the place of its message in the list."""
    entries = list(transcript(messages).snapshot())
    leading = next((i for i, entry in enumerate(entries) if entry.role not in SYSTEM_ROLES), len(entries))
    return rounds_of(entries[leading:])


def must_stay(messages: list[Message]) -> list[Message]:
    """Leading instructions, the round of the task, pinned rounds."""
    found = rounds(messages)
    kept = [round_ for round_ in found if round_.is_pinned]
    task = next((round_ for round_ in found if round_.is_human), None)
    places = {entry.seq - 1 for round_ in [*kept, *([task] if task else [])] for entry in round_.entries}
    leading = sum(len(round_.entries) for round_ in found)
    return [*messages[: len(messages) - leading], *(messages[place] for place in sorted(places))]


@given(conversations(), st.integers(50, 3_000), st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_no_strategy_of_core_breaks_the_contract_of_strategies(
    steps: list[Any], budget: int, shares: list[int]
) -> None:
    """The ladder skips a strategy that does, a view made larger included."""
    _, draft = draft_of(flat(steps), approx_token_counter)
    ladder = build_ladder(load_config({}), Plugins())
    for chapter_tokens in shares:
        goal = Goal(budget // 2, budget, chapter_tokens=chapter_tokens)
        protection = Protection(pin_tokens=budget // 4)
        done = run_ladder(draft, goal, ladder, protection, trigger=budget, recent_tokens=budget // 10)
        assert done.skipped == ()
        draft = done.draft


@given(conversations(), DROPPING)
def test_rounds_are_kept_whole_as_they_were_given_or_not_at_all(steps: list[Any], strategy: Strategy) -> None:
    messages = flat(steps)
    kept = {id(message) for message in strategy.compact(messages)}
    assert kept <= {id(message) for message in messages}
    for round_ in rounds(messages):
        assert len({id(messages[entry.seq - 1]) in kept for entry in round_.entries}) == 1


def outline(messages: list[Message]) -> list[Any]:
    infos = [parse_message(message)[1] for message in messages]
    return sorted((info.role, info.call_ids, info.answered_ids) for info in infos)


@given(conversations(), SHORTENING)
def test_shortening_keeps_every_message_its_ids_and_what_humans_wrote(steps: list[Any], strategy: Strategy) -> None:
    messages = flat(steps)
    done = strategy.compact(messages)
    assert outline(done) == outline(messages)
    spoken = [one["content"] for one in messages if is_human(one) and isinstance(one.get("content"), str)]
    assert {*spoken} <= {str(message.get("content")) for message in done}


# Results with a human's words beside them, in one message and in one round: both are the task.
TABLE = {"type": "tool_result", "tool_use_id": "a", "content": "row of a table\n" * 600}
RESULTS_AND_WORDS = user([TABLE, {**TABLE, "tool_use_id": "b", "content": ""}, block("Please fix cache_core.py:41.")])
REMINDER = says("ok", metadata={"source": "hook", "ephemeral": True})


@given(conversations(), EVERY)
@example([[RESULTS_AND_WORDS], [REMINDER]], TruncateToolOutputs(1))
@example([[call("b", "a"), result("b", "line of a log\n" * 60), RESULTS_AND_WORDS]], TruncateToolOutputs(4))
def test_prompt_task_and_pins_stay_verbatim_nothing_grows_and_what_was_given_is_not_changed(
    steps: list[Any], strategy: Strategy
) -> None:
    messages = flat(steps)
    before = copy.deepcopy(messages)
    done = strategy.compact(messages)
    assert {id(message) for message in must_stay(messages)} <= {id(message) for message in done}
    assert messages == before
    assert count_tokens(done) <= count_tokens(messages)


@given(conversations(ORDERLY_STEPS), EVERY)
def test_compacting_twice_is_compacting_once(steps: list[Any], strategy: Strategy) -> None:
    once = strategy.compact(flat(steps))
    assert strategy.compact(once) is once


@given(conversations(), st.integers(1, 3_000), st.integers(0, 500))
def test_a_window_is_kept_or_what_is_left_is_the_least_that_may_be(steps: list[Any], tokens: int, reserve: int) -> None:
    messages = flat(steps)
    done = FitContextWindow(tokens, reserve_tokens=reserve).compact(messages)
    if count_tokens(done) > tokens - reserve:
        found = rounds(messages)
        newest = {id(messages[entry.seq - 1]) for entry in found[-1].entries}
        least = {id(message) for message in must_stay(messages)} | newest
        assert {id(message) for message in done} == least


@given(conversations(), st.integers(0, 8))
def test_no_more_tool_rounds_are_kept_than_asked_for(steps: list[Any], keep: int) -> None:
    messages = flat(steps)
    kept = {id(message) for message in TrimRounds(keep).compact(messages)}
    task = next((round_ for round_ in rounds(messages) if round_.is_human), None)
    left = [one for one in rounds(messages) if one.is_tool_round and not one.is_pinned and one != task]
    assert sum(id(messages[one.head.seq - 1]) in kept for one in left) <= keep
