"""Laws of strategies run by themselves: any conversation, any strategy that drops or shortens."""

import copy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import Goal, Plugins, Strategy, SupersedeStaleReads, approx_token_counter, load_config
from amplifier_context_core.compaction.ladder import build_ladder, run_ladder
from amplifier_context_core.compaction.protected import Protection
from amplifier_context_core.compaction.strategies.base import draft_of
from amplifier_context_core.compaction.strategies.folding import CondenseChapters, DropChapters, FoldRounds
from amplifier_context_core.compaction.strategies.outputs import ClearToolOutputs, ClipToolOutputs, TruncateToolOutputs
from amplifier_context_core.compaction.strategies.windows import FitContextWindow, KeepImportant, TrimRounds
from amplifier_context_core.messages.parsing import blocks_of, is_human, parse_message
from amplifier_context_core.messages.tokens import count_tokens
from tests.core.drafts import rounds_after_instructions
from tests.messages import block, call, result, says, user

from .histories import ORDERLY_STEPS, Message, conversations, flat


def length(message: Message) -> float:
    return float(len(str(message.get("content"))))


EVERY: st.SearchStrategy[Strategy] = st.one_of(
    st.builds(TrimRounds, st.integers(0, 6)),
    st.builds(FitContextWindow, st.integers(1, 3_000), reserve_tokens=st.integers(0, 500)),
    st.builds(KeepImportant, st.just(length), st.integers(0, 10)),
    st.builds(TruncateToolOutputs, st.integers(1, 400)),
    st.builds(ClipToolOutputs, st.integers(1, 400)),
    st.builds(ClearToolOutputs, st.integers(0, 5)),
    st.builds(FoldRounds, st.floats(0.01, 1)),
    st.sampled_from([SupersedeStaleReads(), CondenseChapters(), DropChapters()]),
)


def must_stay(messages: list[Message]) -> list[Message]:
    """Leading instructions, the round of the task, pinned rounds."""
    found = rounds_after_instructions(messages)
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


SHORTENING = (TruncateToolOutputs, ClipToolOutputs, ClearToolOutputs, SupersedeStaleReads)


def outline(messages: list[Message]) -> list[Any]:
    infos = [parse_message(message)[1] for message in messages]
    return sorted((info.role, info.call_ids, info.answered_ids) for info in infos)


# Results with a human's words beside them, in one message and in one round: both are the task.
TABLE = {"type": "tool_result", "tool_use_id": "a", "content": "row of a table\n" * 600}
RESULTS_AND_WORDS = user([TABLE, {**TABLE, "tool_use_id": "b", "content": ""}, block("Please fix cache_core.py:41.")])
REMINDER = says("ok", metadata={"source": "hook", "ephemeral": True})


def words(messages: list[Message]) -> list[Any]:
    """What people wrote, in texts and beside results."""
    people = [message for message in messages if is_human(message)]
    texts = [one for message in people for one in blocks_of(message) if one["type"] == "text"]
    return [*texts, *(message["content"] for message in people if isinstance(message.get("content"), str))]


@given(conversations(), EVERY)
@example([[RESULTS_AND_WORDS], [REMINDER]], TruncateToolOutputs(1))
@example([[call("b", "a"), result("b", "line of a log\n" * 60), RESULTS_AND_WORDS]], TruncateToolOutputs(4))
@example([[user("task"), call("a", "b"), RESULTS_AND_WORDS, REMINDER]], TruncateToolOutputs(9))
def test_prompt_task_and_pins_stay_verbatim_nothing_grows_and_what_was_given_is_not_changed(
    steps: list[Any], strategy: Strategy
) -> None:
    messages = flat(steps)
    before = copy.deepcopy(messages)
    done = strategy.compact(messages)
    assert {id(message) for message in must_stay(messages)} <= {id(message) for message in done}
    assert messages == before
    assert count_tokens(done) <= count_tokens(messages)
    if isinstance(strategy, SHORTENING):
        assert outline(done) == outline(messages)
        assert words(done) == words(messages)
    if isinstance(strategy, (TrimRounds, FitContextWindow, KeepImportant)):  # rounds are kept whole or not at all
        kept = {id(message) for message in done}
        assert all(
            len({id(messages[one.seq - 1]) in kept for one in each.entries}) == 1
            for each in rounds_after_instructions(messages)
        )


@given(conversations(ORDERLY_STEPS), EVERY)
def test_compacting_twice_is_compacting_once(steps: list[Any], strategy: Strategy) -> None:
    once = strategy.compact(flat(steps))
    assert strategy.compact(once) is once
