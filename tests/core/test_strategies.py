"""Strategies on a plain list of messages: whole rounds, pins and task stay; chapters, and what folders may answer."""

import copy
import dataclasses
import re
import time
from collections.abc import Callable, Sequence

import pytest

from amplifier_context_core import Goal, PluginError, Strategy, SupersedeStaleReads
from amplifier_context_core.compaction.checkpoint import DigestEntry, Draft, Fact
from amplifier_context_core.compaction.identifiers import identifiers, with_parts
from amplifier_context_core.compaction.strategies.folding import CondenseChapters, DropChapters, FoldRounds, fold
from amplifier_context_core.compaction.strategies.outputs import ClearToolOutputs, ClipToolOutputs, TruncateToolOutputs
from amplifier_context_core.compaction.strategies.windows import FitContextWindow, TrimRounds
from amplifier_context_core.rendering.quoting import TAG
from amplifier_context_testing import WordCounter
from tests.core.drafts import LONG, digests, draft, score, talk
from tests.messages import Message, call, result, says, user


class Keeps(Strategy):
    """A plug-in's strategy as a newcomer writes it."""

    name = "keeps"

    def __init__(self, words: Sequence[str], minimum: int = 5, *, score: Callable[[Message], float] = score) -> None:
        self._words, self._minimum, self._score = words, minimum, score


def test_the_repr_of_a_strategy_shows_all_it_was_made_with() -> None:
    """A checkpoint of a host is restored only where the ladder has the same repr."""
    assert repr(Keeps(["a"], score=len)) == "Keeps(words=['a'], minimum=5, score=len)"
    assert repr(Keeps(["a"])) == repr(Keeps(words=["a"], minimum=5)) == "Keeps(words=['a'], minimum=5, score=score)"
    assert repr(copy.copy(Keeps(["a"]))) == repr(Keeps(["a"]))
    fit = repr(FitContextWindow(900, WordCounter(), tokens_per_media=7))
    assert fit.startswith("FitContextWindow(max_tokens=900, counter=WordCounter")
    assert fit.endswith("reserve_tokens=0, per_message_overhead=4, tokens_per_media=7)")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'words'"):
        Keeps()  # type: ignore[call-arg]


@pytest.mark.parametrize("base", [Strategy, FoldRounds])
def test_a_strategy_that_must_be_awaited_is_refused_when_its_class_is_made(base: type[Strategy]) -> None:
    async def apply(self: Strategy, draft: Draft, goal: Goal) -> Draft:
        return draft

    with pytest.raises(PluginError, match=r"strategy .*Waits.*`def apply`.*context:pre_compact"):
        type("Waits", (base,), {"apply": apply})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((lambda bad=bad: ClearToolOutputs(bad), "keep_last") for bad in (-1, True, 1.5, "2")),
        *((lambda bad=bad: FoldRounds(bad), "line_share") for bad in (0, 1.1)),
        (lambda: FitContextWindow(10, reserve_tokens=-1), "reserve_tokens"),
    ],
)
def test_an_impossible_argument_is_refused_by_its_name(make: Callable[[], Strategy], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make()


def test_the_newest_tool_rounds_are_kept_and_all_that_is_no_tool_round() -> None:
    messages = talk()
    assert TrimRounds(7).compact(messages) is messages
    done = TrimRounds(3).compact(messages)
    assert [m["tool_calls"][0]["id"] for m in done if m.get("tool_calls")] == ["c4", "c5", "last"]
    others = [m for m in messages if not m.get("tool_calls") and m["role"] != "tool"]
    assert [m for m in done if not m.get("tool_calls") and m["role"] != "tool"] == others


def test_results_in_the_blocks_of_a_tool_message_are_truncated_in_place() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": LONG} for id in "ab"]
    done = TruncateToolOutputs(100).compact([user(), call("a", "b"), {"role": "tool", "content": blocks}])
    assert [one["tool_use_id"] for one in done[2]["content"]] == ["a", "b"]
    assert all(len(one["content"]) <= 100 for one in done[2]["content"])


def test_all_outputs_but_the_newest_are_cleared_and_say_where_they_are() -> None:
    messages = talk()
    done = ClearToolOutputs(3).compact(messages)
    outputs = [(b["content"], a["content"]) for b, a in zip(messages, done, strict=True) if b["role"] == "tool"]
    assert all("cleared" in after and f"{len(before):,} characters" in after for before, after in outputs[:4])
    assert all(before == after for before, after in outputs[4:])
    assert "m4" in done[3]["content"]


@pytest.mark.parametrize("strategy", [ClearToolOutputs(0), ClipToolOutputs(200)], ids=repr)
def test_a_short_form_the_tool_made_is_used_in_place_of_a_generic_one(strategy: Strategy) -> None:
    messages = [user(), call("a"), result("a", LONG, metadata={"compact_summary": "two hundred rows"}), says()]
    done = strategy.compact(messages)
    assert done[2]["content"] == "two hundred rows"
    assert strategy.compact(done) is done


def test_of_the_same_call_made_again_only_the_latest_result_is_kept() -> None:
    calls = [m for n, path in enumerate("abaca") for m in (call(f"c{n}", path=path), result(f"c{n}", f"{n}\n{LONG}"))]
    messages = [user(), *calls, says()]
    done = SupersedeStaleReads().compact(messages)
    assert ["m10" in done[at]["content"] for at in (2, 6)] == [True, True]
    assert all(done[kept] is messages[kept] for kept in (4, 8, 10)), "another argument is another call"
    other_tool = [user(), call("a", name="read"), result("a", LONG), call("b", name="write"), result("b", LONG), says()]
    assert SupersedeStaleReads().compact(other_tool) is other_tool
    blocks = [{"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}]
    listed = [{"id": "b", "tool": "read", "arguments": {"path": "x"}}]
    spelled = [user(), says(blocks), result("a", LONG), says("", tool_calls=listed), result("b", LONG), says()]
    assert "superseded" in SupersedeStaleReads().compact(spelled)[2]["content"]


# -- folding -----------------------------------------------------------------------------------------------------------
def chapters_of(rounds: int) -> Draft:
    messages: list[Message] = []
    for chapter in range(rounds):
        messages.append(user(f"prompt {chapter} " * 40))
        for n in range(5):
            names = "\n".join(f"src/part_{chapter}_{n}/name_{line}.py" for line in range(40))
            messages += [call(f"c{chapter}{n}", path=f"src/part_{chapter}_{n}"), result(f"c{chapter}{n}", names)]
    made = draft(*messages)
    return FoldRounds().apply(made, Goal(target=1, budget=100_000, human_tokens=1 << 40))


def test_chapters_within_their_share_are_left_byte_identical_and_above_it_the_oldest_are_dropped_first() -> None:
    made = chapters_of(6)
    goal = Goal(target=1, budget=100_000, chapter_tokens=made.tokens)
    assert CondenseChapters().apply(made, goal) is made
    assert DropChapters().apply(made, goal) is made
    chapters = [segment for segment in made.segments if segment.chapter]
    done = DropChapters().apply(made, dataclasses.replace(goal, chapter_tokens=sum(one.tokens for one in chapters[2:])))
    assert [segment for segment in done.segments if segment.chapter] == chapters[2:]


def test_a_chapter_takes_no_longer_where_very_many_names_are_shown_already() -> None:
    def seconds_to_fold(*more: Message) -> float:
        made = draft(
            *more, *[m for n in range(300) for m in (user(f"Go on, {n}."), says("It is done, as asked. " * 20))]
        )
        begun = time.thread_time()
        folded = FoldRounds().apply(made, Goal(target=0, budget=0, human_tokens=1 << 40))
        assert len([segment for segment in folded.segments if segment.chapter]) == 300
        return time.thread_time() - begun

    names = [user("\n".join(f"part_{n}/{line:x}.py" for line in range(3_000))) for n in range(30)]
    begun = time.thread_time()
    shown = identifiers("\n".join(str(message["content"]) for message in names), 1 << 20)
    assert len({*with_parts(shown)}) > len(shown) == 90_000
    reading = time.thread_time() - begun
    # With a copy of the names for each chapter it was eight times as much.
    assert seconds_to_fold(*names) < 3 * (seconds_to_fold() + reading)


@pytest.mark.parametrize("hostile", [f"</{TAG}>", f"<\n/{TAG.upper()}>", "two\nlines", "cut \ud83d"])
def test_no_fact_of_a_plug_in_can_close_its_chapter(hostile: str) -> None:
    given = draft(says("a"), says("b")).segments
    goal = Goal(target=0, budget=0)
    fact = Fact(f"m1 {hostile}", hostile, (hostile,), (1.0,))
    assert given[0].round
    folded = fold(given, [DigestEntry.of(given[0].round, [fact], goal.counter)], goal, "mine")
    text = folded.shown[0].message["content"]
    assert re.fullmatch(rf"<{TAG}>\n[^<\n]*\n[^<\n]*\n</{TAG}>", text.encode().decode())
    assert (folded.first, folded.last, folded.chapter.left_out) == (given[0].first, given[1].last, 1)
    assert folded.original_tokens == sum(segment.tokens for segment in given)


def test_rules_of_people_stay_when_the_rest_of_their_chapter_is_dropped() -> None:
    rules = [f"Never rename the table orders_{n} without a review." for n in range(6)]
    asked = [user(f"{rule} The rest of it is fine with me, go on as you see fit.") for rule in rules]
    goal = Goal(target=0, budget=0, chapter_tokens=150)
    made = Draft((fold(draft(*asked).segments, digests(*asked), goal, "mine"),))
    text = DropChapters().apply(made, goal).messages[0]["content"]
    assert all(rule in text for rule in rules)
    assert "go on" not in text
    fewer = DropChapters().apply(made, dataclasses.replace(goal, chapter_tokens=100))
    assert fewer.tokens <= 100
    assert rules[0] not in fewer.messages[0]["content"], "the oldest rules go first"
    assert rules[-1] in fewer.messages[0]["content"]
    assert not (DropChapters().apply(made, dataclasses.replace(goal, chapter_tokens=10))).segments


def test_chapters_that_leave_no_room_are_condensed_when_all_else_was_given_until_they_stay_the_same() -> None:
    folded = chapters_of(12)
    ceiling = int(folded.tokens * 0.8)
    assert CondenseChapters().apply(folded, Goal(target=0, budget=0, ceiling=ceiling, human_tokens=1)) is folded
    done = CondenseChapters().apply(folded, Goal(target=0, budget=0, ceiling=ceiling))
    assert 0.3 * folded.tokens < done.tokens <= ceiling * 1.05
    goal = Goal(target=1, budget=100_000, chapter_tokens=folded.tokens // 20)
    drafts = [folded]
    while len(drafts) < 9 and (done := CondenseChapters().apply(drafts[-1], goal)) is not drafts[-1]:
        drafts.append(done)
    assert 1 < len(drafts) < 9
    assert [one.tokens for one in drafts] == sorted({one.tokens for one in drafts}, reverse=True)


def test_humans_words_are_folded_with_all_around_them_but_none_before_the_end_of_the_newest_chapter() -> None:
    words = "I would like all of the tables of the report to be printed in colour, and then sent to the depot. " * 3
    made = draft(*[m for n in range(6) for m in (user(f"{n}: {words}"), says(f"{n}: yes. {words}"))])
    folded_up_to = made.segments[5].last
    done = FoldRounds().apply(made, Goal(target=0, budget=0, folded_up_to=folded_up_to))
    whole_again = FoldRounds().apply(done, Goal(target=0, budget=0))
    assert [segment.mark for segment in done.segments if segment.is_human] == ["m1", "m3", "m5"]
    assert not any(segment.is_human for segment in whole_again.segments)
    assert len([segment for segment in whole_again.segments if segment.chapter]) == 1
