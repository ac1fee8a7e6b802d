"""FoldRounds on a list of messages: chapters, and what folders may answer."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from amplifier_context_core import (
    ClearToolOutputs,
    ClipToolOutputs,
    CondenseChapters,
    DropChapters,
    FoldRounds,
    Goal,
    Strategy,
)
from amplifier_context_core.compaction.checkpoint import DigestEntry, Draft, Fact
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.compaction.identifiers import identifiers, with_parts
from amplifier_context_core.compaction.strategies.folding import fold
from amplifier_context_core.rendering.quoting import TAG
from tests.core.drafts import draft
from tests.core.lists import LONG, talk
from tests.messages import Message, call, result, says, user


@pytest.mark.parametrize("bad", [0, -0.1, 1.1])
def test_an_impossible_share_for_a_line_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="line_share"):
        FoldRounds(bad)


def chapters_of(rounds: int) -> Draft:
    messages: list[Message] = []
    for chapter in range(rounds):
        messages.append(user(f"prompt {chapter} " * 40))
        for n in range(5):
            names = "\n".join(f"src/part_{chapter}_{n}/name_{line}.py" for line in range(40))
            messages += [call(f"c{chapter}{n}", path=f"src/part_{chapter}_{n}"), result(f"c{chapter}{n}", names)]
    made = draft(*messages)
    return FoldRounds().apply(made, Goal(target=1, budget=100_000, human_tokens=1 << 40))


def test_chapters_within_their_share_are_left_byte_identical() -> None:
    made = chapters_of(6)
    goal = Goal(target=1, budget=100_000, chapter_tokens=made.tokens)
    assert CondenseChapters().apply(made, goal) is made
    assert DropChapters().apply(made, goal) is made


def test_chapters_that_cannot_be_condensed_further_are_the_same_draft() -> None:
    small = draft(*[m for n in range(9) for m in (user(f"p {n} " * 40), call(f"c{n}"), result(f"c{n}", LONG))])
    made = FoldRounds().apply(small, Goal(target=1, budget=100_000, human_tokens=1 << 40))
    goal = Goal(target=1, budget=100_000, chapter_tokens=made.tokens // 20)
    drafts = [made]
    while len(drafts) < 9 and (done := CondenseChapters().apply(drafts[-1], goal)) is not drafts[-1]:
        drafts.append(done)
    assert 1 < len(drafts) < 9
    assert [one.tokens for one in drafts] == sorted({one.tokens for one in drafts}, reverse=True)


@pytest.mark.parametrize("length", [4, 14, 26])
def test_a_chapter_that_condensing_would_make_longer_is_left_alone(length: int) -> None:
    """Leaving a line out costs the words that state it."""
    given = draft(says("a"), says("b")).segments
    goal = Goal(target=0, budget=0, chapter_tokens=24)
    entries = [
        DigestEntry.of(segment.round, [Fact(f"{segment.mark} {'x' * size}")], goal.counter)
        for segment, size in zip(given, (10, length), strict=True)
        if segment.round
    ]
    made = Draft((fold(given, entries, goal, "mine"),))
    assert CondenseChapters().apply(made, goal) is made


@pytest.mark.parametrize("hostile", [f"</{TAG}>", f"<\n/{TAG.upper()}>", "two\nlines", "cut \ud83d"])
def test_no_fact_of_a_plug_in_can_close_its_chapter(hostile: str) -> None:
    given = draft(says("a"), says("b")).segments
    goal = Goal(target=0, budget=0)
    fact = Fact(f"m1 {hostile}", hostile, (hostile,), (1.0,))
    assert given[0].round
    folded = fold(given, [DigestEntry.of(given[0].round, [fact], goal.counter)], goal, "mine")
    text = folded.shown[0].message["content"]
    lines = text.encode().decode().split("\n")
    assert lines[0] == f"<{TAG}>"
    assert lines[-1] == f"</{TAG}>"
    assert len(lines) == 4
    assert "<" not in "".join(lines[1:-1])
    assert folded.chapter is not None
    assert (folded.first, folded.last, folded.chapter.left_out, folded.original_tokens) == (
        given[0].first,
        given[1].last,
        1,
        sum(segment.tokens for segment in given),
    )


def test_the_oldest_chapters_are_dropped_first_and_only_above_their_share() -> None:
    made = chapters_of(6)
    sizes = [segment.tokens for segment in made.segments if segment.chapter]
    done = DropChapters().apply(made, Goal(target=1, budget=100_000, chapter_tokens=sum(sizes[2:])))
    kept = [segment for segment in done.segments if segment.chapter]
    assert kept == [segment for segment in made.segments if segment.chapter][2:]


def test_rules_of_people_stay_when_the_rest_of_their_chapter_is_dropped() -> None:
    rules = [f"Never rename the table orders_{n} without a review." for n in range(6)]
    asked = [user(f"{rule} The rest of it is fine with me, go on as you see fit.") for rule in rules]
    given = draft(*asked).segments
    goal = Goal(target=0, budget=0, chapter_tokens=150)
    entries = [
        digest_round(segment.round, set(), goal.counter, share=0.25) for segment in given if segment.round is not None
    ]
    made = Draft((fold(given, entries, goal, "mine"),))
    done = DropChapters().apply(made, goal)
    assert done.tokens < made.tokens
    text = done.messages[0]["content"]
    assert all(rule in text for rule in rules)
    assert "go on" not in text
    fewer = DropChapters().apply(made, dataclasses.replace(goal, chapter_tokens=100))
    assert fewer.tokens <= 100
    assert 0 < sum(rule in fewer.messages[0]["content"] for rule in rules) < len(rules)
    assert rules[-1] in fewer.messages[0]["content"], "the oldest rules go first"
    assert not (DropChapters().apply(made, dataclasses.replace(goal, chapter_tokens=10))).segments


@pytest.mark.parametrize("left", [{"recent": frozenset({99})}, {"human_tokens": 1}, {"folded_up_to": 1}])
def test_chapters_within_their_share_are_dropped_as_a_last_resort_only(left: dict[str, Any]) -> None:
    folded = chapters_of(12)
    assert DropChapters().apply(folded, Goal(target=0, budget=folded.tokens - 1, **left)) is folded
    assert DropChapters().apply(folded, Goal(target=0, budget=folded.tokens - 1)) is not folded


def test_chapters_that_leave_no_room_are_condensed_when_all_else_was_given() -> None:
    folded = chapters_of(12)
    ceiling = int(folded.tokens * 0.8)
    assert CondenseChapters().apply(folded, Goal(target=0, budget=0, ceiling=ceiling, human_tokens=1)) is folded
    done = CondenseChapters().apply(folded, Goal(target=0, budget=0, ceiling=ceiling))
    assert 0.3 * folded.tokens < done.tokens <= ceiling * 1.05


def test_humans_words_are_folded_with_all_around_them_but_none_before_the_end_of_the_newest_chapter() -> None:
    words = "I would like all of the tables of the report to be printed in colour, and then sent to the depot. " * 3
    made = draft(*[m for n in range(6) for m in (user(f"{n}: {words}"), says(f"{n}: yes. {words}"))])
    folded_up_to = made.segments[5].last
    done = FoldRounds().apply(made, Goal(target=0, budget=0, folded_up_to=folded_up_to))
    whole_again = FoldRounds().apply(done, Goal(target=0, budget=0))
    assert [segment.mark for segment in done.segments if segment.is_human] == ["m1", "m3", "m5"]
    assert not any(segment.is_human for segment in whole_again.segments)
    assert len([segment for segment in whole_again.segments if segment.chapter]) == 1


def seconds_to_fold(made: Draft) -> float:
    begun = time.thread_time()
    folded = FoldRounds().apply(made, Goal(target=0, budget=0, human_tokens=1 << 40))
    assert len([segment for segment in folded.segments if segment.chapter]) == 300
    return time.thread_time() - begun


def test_a_chapter_takes_no_longer_where_very_many_names_are_shown_already() -> None:
    answer = says("It is done, as was asked for. " * 20)
    names = [user("\n".join(f"part_{n}/{line:x}.py" for line in range(3_000))) for n in range(30)]
    begun = time.thread_time()
    shown = identifiers("\n".join(str(message["content"]) for message in names), 1 << 20)
    assert len({*with_parts(shown)}) > len(shown) == 90_000
    reading = time.thread_time() - begun
    few = seconds_to_fold(draft(*[m for n in range(300) for m in (user(f"Go on, {n}."), answer)]))
    many = seconds_to_fold(draft(*names, *[m for n in range(300) for m in (user(f"Go on, {n}."), answer)]))
    assert many < 3 * (few + reading)  # with a copy of the names for each chapter 8 times as much


@pytest.mark.parametrize("strategy", [FoldRounds(), ClipToolOutputs(100), ClearToolOutputs(0)], ids=repr)
def test_old_rounds_give_before_new_ones_and_no_more_than_asked_for(strategy: Strategy) -> None:
    made = draft(*talk(rounds=20))
    target = made.tokens * 3 // 4
    done = strategy.apply(made, Goal(target=target, budget=100_000))
    assert done.tokens <= target
    assert done.segments[-12:] == made.segments[-12:]
