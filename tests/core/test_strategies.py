"""Strategies on a plain list of messages, for people without the kernel: whole rounds, pins and task stay."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from amplifier_context_core import (
    ClearToolOutputs,
    ClipToolOutputs,
    ContextManager,
    FitContextWindow,
    FoldRounds,
    Goal,
    KeepImportant,
    PluginError,
    Strategy,
    SupersedeStaleReads,
    TrimRounds,
    TruncateToolOutputs,
    load_config,
)
from amplifier_context_core.compaction.checkpoint import Draft
from amplifier_context_testing import WordCounter
from tests.core.lists import LONG, PINNED, score, talk
from tests.messages import Message, call, result, says, system, user


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


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, ["last"]), (3, ["c4", "c5", "last"]), (7, None), (99, None)])
def test_the_newest_tool_rounds_are_kept_and_all_that_is_no_tool_round(keep: int, left: list[str] | None) -> None:
    messages = talk()
    done = TrimRounds(keep).compact(messages)
    if left is None:
        assert done is messages
    else:
        assert [m["tool_calls"][0]["id"] for m in done if m.get("tool_calls")] == left
        assert [m for m in done if not m.get("tool_calls") and m["role"] != "tool"] == [
            m for m in messages if not m.get("tool_calls") and m["role"] != "tool"
        ]


def test_media_is_counted_as_configured() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    messages = [user("word " * 6), user([sound]), says("a b c d e f"), user("word " * 6)]
    assert FitContextWindow(100, WordCounter(), tokens_per_media=60).compact(messages) is messages
    assert FitContextWindow(100, WordCounter(), tokens_per_media=90).compact(messages) == [messages[0], *messages[2:]]


@pytest.mark.parametrize(
    ("settings", "name"), [((0, {}), "max_tokens"), ((10, {"reserve_tokens": -1}), "reserve_tokens")]
)
def test_an_impossible_window_is_refused(settings: tuple[int, dict[str, int]], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        FitContextWindow(settings[0], **settings[1])


def test_keeping_none_leaves_what_must_stay() -> None:
    messages = [system("s"), user("task"), says("a"), user("b", metadata=PINNED)]
    assert KeepImportant(score, keep=0).compact(messages) == [messages[0], messages[1], messages[3]]


def test_results_in_the_blocks_of_a_tool_message_are_truncated_in_place() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": LONG} for id in "ab"]
    done = TruncateToolOutputs(100).compact([user(), call("a", "b"), {"role": "tool", "content": blocks}])
    assert [one["tool_use_id"] for one in done[2]["content"]] == ["a", "b"]
    assert all(len(one["content"]) <= 100 for one in done[2]["content"])


@pytest.mark.parametrize("keep", [0, 1, 3, 6, 9])
def test_all_outputs_but_the_newest_are_cleared_and_say_where_they_are(keep: int) -> None:
    messages = talk()
    done = ClearToolOutputs(keep).compact(messages)
    outputs = [(b["content"], a["content"]) for b, a in zip(messages, done, strict=True) if b["role"] == "tool"]
    cleared = max(0, 7 - keep)
    for before, after in outputs[:cleared]:
        assert "cleared" in after
        assert f"{len(before):,} characters" in after
    assert all(before == after for before, after in outputs[cleared:])
    assert ("m4" in done[3]["content"]) == (cleared > 0)


@pytest.mark.parametrize("bad", [-1, True, 1.5, "2"])
def test_an_impossible_number_to_keep_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="keep_last"):
        ClearToolOutputs(bad)


@pytest.mark.parametrize("strategy", [ClearToolOutputs(0), ClipToolOutputs(200)], ids=repr)
def test_a_short_form_the_tool_made_is_used_in_place_of_a_generic_one(strategy: Strategy) -> None:
    messages = [user(), call("a"), result("a", LONG, metadata={"compact_summary": "two hundred rows"}), says()]
    done = strategy.compact(messages)
    assert done[2]["content"] == "two hundred rows"
    assert strategy.compact(done) is done


def reading(*paths: str) -> list[Message]:
    messages = [user()]
    for number, path in enumerate(paths):
        messages += [call(f"c{number}", path=path), result(f"c{number}", f"{path} version {number}\n{LONG}")]
    return [*messages, says()]


def test_of_the_same_call_made_again_only_the_latest_result_is_kept() -> None:
    messages = reading("a", "b", "a", "c", "a")
    done = SupersedeStaleReads().compact(messages)
    assert "m10" in done[2]["content"]
    assert "m10" in done[6]["content"]
    for kept in (4, 8, 10):
        assert done[kept] is messages[kept]


def test_another_tool_or_other_arguments_are_another_call() -> None:
    messages = [user(), call("a", name="read"), result("a", LONG), call("b", name="write"), result("b", LONG), says()]
    assert SupersedeStaleReads().compact(messages) is messages
    different = reading("a", "b", "c")
    assert SupersedeStaleReads().compact(different) is different


def test_arguments_in_another_spelling_are_the_same_call() -> None:
    blocks = [{"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}]
    listed = [{"id": "b", "tool": "read", "arguments": {"path": "x"}}]
    messages = [user(), says(blocks), result("a", LONG), says("", tool_calls=listed), result("b", LONG), says()]
    assert "superseded" in (SupersedeStaleReads().compact(messages))[2]["content"]
