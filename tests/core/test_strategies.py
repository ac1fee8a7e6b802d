"""Strategies on a plain list of messages, for people without the kernel: whole rounds, pins and task stay."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest

from amplifier_context_core import (
    ClipToolOutputs,
    ContextManager,
    FitContextWindow,
    FoldRounds,
    Goal,
    PluginError,
    Strategy,
    load_config,
)
from amplifier_context_core.compaction.checkpoint import Draft
from amplifier_context_testing import WordCounter
from tests.core.lists import PINNED, score, talk
from tests.messages import Message, says, system, user


class Keeps(Strategy):
    """A plug-in's strategy as a newcomer writes it."""

    name = "keeps"

    def __init__(self, words: Sequence[str], minimum: int = 5, *, score: Callable[[Message], float] = score) -> None:
        self._words, self._minimum, self._score = words, minimum, score


def test_the_repr_of_a_strategy_shows_all_it_was_made_with() -> None:
    """A checkpoint serves another session only where the ladder has the same repr."""
    assert repr(Keeps(["a"], score=len)) == "Keeps(words=['a'], minimum=5, score=len)"
    assert repr(Keeps(["a"])) == repr(Keeps(words=["a"], minimum=5)) == "Keeps(words=['a'], minimum=5, score=score)"
    assert repr(copy.copy(Keeps(["a"]))) == repr(Keeps(["a"]))
    fit = repr(FitContextWindow(900, WordCounter(), tokens_per_media=7))
    assert fit.startswith("FitContextWindow(max_tokens=900, counter=WordCounter")
    assert fit.endswith("reserve_tokens=0, per_message_overhead=4, tokens_per_media=7)")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'words'"):
        Keeps()  # type: ignore[call-arg]


async def test_a_session_never_takes_over_what_the_same_strategy_made_with_other_arguments() -> None:
    class Shortens(Strategy):
        name = "shortens"

        def __init__(self, length: int) -> None:
            self._length = length

        def apply(self, draft: Draft, goal: Goal) -> Draft:
            return ClipToolOutputs(self._length).apply(draft, goal)

    async def view(length: int) -> str:
        manager = ContextManager(load_config({"token_counter": "heuristic"}), ladder=[Shortens(length)])
        kept.append(manager)
        for message in talk(40):
            await manager.add_message({**message, "metadata": {"timestamp": "2026-01-01T00:00:00Z"}})
        return str(await manager.get_messages_for_request(20_000))

    kept: list[ContextManager] = []
    long = await view(400)
    assert await view(40) != long
    assert await view(400) == long


class OnlyQuestions(Strategy):
    """Keeps what ends with a question mark."""

    name = "questions"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        kept = [p for p in draft.segments if p.protected_because or str(p.shown[-1].message["content"]).endswith("?")]
        return draft if len(kept) == len(draft.segments) else draft.with_segments(kept)


def test_a_strategy_of_ones_own_runs_on_a_plain_list_like_any_other() -> None:
    messages = [system("s"), user("task"), says("a"), user("b?"), says("pinned", metadata=PINNED), says("c")]
    assert OnlyQuestions().compact(messages) == [messages[0], messages[1], messages[3], messages[4]]
    questions = [user("task"), says("a?")]
    assert OnlyQuestions().compact(questions) is questions


def test_the_strategy_that_does_nothing_does_nothing() -> None:
    messages = talk()
    assert Strategy().compact(messages) is messages


@pytest.mark.parametrize("base", [Strategy, FoldRounds])
def test_a_strategy_that_must_be_awaited_is_refused_when_its_class_is_made(base: type[Strategy]) -> None:
    async def apply(self: Strategy, draft: Draft, goal: Goal) -> Draft:
        return draft

    with pytest.raises(PluginError, match=r"strategy .*Waits.*`def apply`.*context:pre_compact"):
        type("Waits", (base,), {"apply": apply})
