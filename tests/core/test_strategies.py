"""Strategies on a plain list of messages, for people without the kernel: whole rounds, pins and task stay."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from amplifier_context_core import (
    ClearToolOutputs,
    ClipToolOutputs,
    CondenseChapters,
    ContextManager,
    DropChapters,
    FitContextWindow,
    FoldRounds,
    Goal,
    InvalidMessage,
    KeepImportant,
    Strategy,
    SupersedeStaleReads,
    TrimRounds,
    TruncateToolOutputs,
    count_message_tokens,
    count_tokens,
    load_config,
)
from amplifier_context_core.compaction.checkpoint import DigestEntry, Draft, Fact
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.compaction.strategies.folding import fold
from amplifier_context_core.rendering.quoting import TAG
from amplifier_context_testing import WordCounter, check_request, conversations
from amplifier_context_testing.checks.conversation_builder import image_block

from .support import Message, block, call, draft, result, says, system, user

LONG = "\n".join(f"row {number:04d} of the table" for number in range(200))
PINNED = {"pinned": True}


def talk(rounds: int = 6, output: str = LONG) -> list[Message]:
    """A system prompt, the task, tool rounds with a word between them, another prompt, an answer."""
    messages = [system("Be careful."), user("The task: fix src/loader.py.")]
    for number in range(rounds):
        messages += [call(f"c{number}", path=f"src/m{number}.py"), result(f"c{number}", f"{number}\n{output}")]
    return [*messages, says("Half way."), user("Go on."), call("last"), result("last", output), says("Done.")]


def score(message: Message) -> float:
    return 10.0 if "important" in str(message.get("content")) else 1.0


EVERY: list[Strategy] = [
    Strategy(),
    TrimRounds(2),
    TruncateToolOutputs(100),
    FitContextWindow(900),
    ClearToolOutputs(1),
    ClipToolOutputs(100),
    KeepImportant(score, keep=3),
    SupersedeStaleReads(),
    FoldRounds(),
    CondenseChapters(),
    DropChapters(),
]


def whole(messages: list[Message]) -> None:
    """Assert that every result follows its call, and that every answered call still has its result."""
    assert check_request([{**m, "content": m["content"] or ""} for m in messages]) == []


# -- what holds for all of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", EVERY, ids=repr)
async def test_rounds_stay_whole_and_prompt_and_task_and_pins_stay_verbatim(strategy: Strategy) -> None:
    messages = talk()
    messages[6] = {**messages[6], "metadata": PINNED}
    done = await strategy.compact(messages)
    whole(done)
    assert done[:2] == messages[:2]
    assert messages[6] in done
    assert [m for m in done if m.get("tool_calls") and m["tool_calls"][0]["id"] == "c2"]


@pytest.mark.parametrize("strategy", EVERY, ids=repr)
async def test_the_list_given_is_not_changed_nor_its_messages(strategy: Strategy) -> None:
    messages = talk()
    before = copy.deepcopy(messages)
    await strategy.compact(messages)
    assert messages == before


@pytest.mark.parametrize("strategy", EVERY, ids=repr)
async def test_the_same_list_comes_back_where_there_was_nothing_to_do(strategy: Strategy) -> None:
    for messages in ([], [system("x")], [user("x")], [system("x"), user("x"), user("y", metadata=PINNED)]):
        assert await strategy.compact(messages) is messages


@pytest.mark.parametrize("strategy", EVERY, ids=repr)
async def test_nothing_is_made_larger(strategy: Strategy) -> None:
    for conversation in conversations():
        done = await strategy.compact(conversation.messages)
        assert count_tokens(done) <= count_tokens(conversation.messages), conversation.name


@pytest.mark.parametrize("strategy", EVERY, ids=repr)
async def test_the_same_list_gives_the_same_result(strategy: Strategy) -> None:
    assert await strategy.compact(talk()) == await strategy.compact(talk())


@pytest.mark.parametrize("strategy", EVERY, ids=repr)
async def test_compacting_twice_is_compacting_once(strategy: Strategy) -> None:
    once = await strategy.compact(talk())
    assert await strategy.compact(once) is once


@pytest.mark.parametrize("strategy", EVERY, ids=repr)
async def test_a_malformed_message_is_refused_by_its_field(strategy: Strategy) -> None:
    with pytest.raises(InvalidMessage, match="role"):
        await strategy.compact([user("x"), {"content": "y"}])


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

        async def apply(self, draft: Draft, goal: Goal) -> Draft:
            return await ClipToolOutputs(self._length).apply(draft, goal)

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


def test_every_strategy_has_a_name_and_a_telling_repr() -> None:
    assert len({strategy.name for strategy in EVERY}) == len(EVERY)
    for strategy in EVERY:
        assert type(strategy).__name__ in repr(strategy)


# -- TrimRounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, ["last"]), (3, ["c4", "c5", "last"]), (7, None), (99, None)])
async def test_the_newest_tool_rounds_are_kept_and_all_that_is_no_tool_round(keep: int, left: list[str] | None) -> None:
    messages = talk()
    done = await TrimRounds(keep).compact(messages)
    if left is None:
        assert done is messages
    else:
        assert [m["tool_calls"][0]["id"] for m in done if m.get("tool_calls")] == left
        assert [m for m in done if not m.get("tool_calls") and m["role"] != "tool"] == [
            m for m in messages if not m.get("tool_calls") and m["role"] != "tool"
        ]


async def test_tool_rounds_are_counted_not_messages_or_calls() -> None:
    messages = [user(), call("a"), result("a"), call("b", "c", "d"), result("b"), result("c"), result("d"), says()]
    assert await TrimRounds(1).compact(messages) == [messages[0], *messages[3:]]


@pytest.mark.parametrize("bad", [-1, -100])
def test_fewer_than_no_rounds_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="max_rounds"):
        TrimRounds(bad)


# -- TruncateToolOutputs ----------------------------------------------------------------------------------------------


async def test_long_outputs_are_clipped_in_place_at_any_age() -> None:
    messages = talk()
    done = await TruncateToolOutputs(300).compact(messages)
    assert [m["role"] for m in done] == [m["role"] for m in messages]
    for before, after in zip(messages, done, strict=True):
        if before["role"] == "tool":
            assert len(after["content"]) <= 300
            assert after["content"].endswith("row 0199 of the table")
            assert {**after, "content": ""} == {**before, "content": ""}
        else:
            assert after is before


async def test_truncating_is_idempotent_and_gives_the_same_object_the_second_time() -> None:
    for size in (10, 47, 100, 1_000):
        once = await TruncateToolOutputs(size).compact(talk())
        assert await TruncateToolOutputs(size).compact(once) is once
        assert await TruncateToolOutputs(size + 500).compact(once) is once


async def test_outputs_in_blocks_are_truncated_too() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "a", "content": LONG}, block(LONG)]
    done = await TruncateToolOutputs(100).compact([user(), call("a"), user(blocks)])
    assert len(done[2]["content"][0]["content"]) <= 100
    assert done[2]["content"][1] == block(LONG)


@pytest.mark.parametrize("size", [99, 103])
async def test_no_output_is_longer_than_it_may_be_by_a_character(size: int) -> None:
    done = await TruncateToolOutputs(size).compact([user(), call("a"), result("a", "x" * (size + 1))])
    assert len(done[2]["content"]) <= size


async def test_a_pinned_output_is_not_truncated() -> None:
    messages = [user(), call("a"), result("a", LONG, metadata=PINNED), says()]
    assert (await TruncateToolOutputs(100).compact(messages))[2] == messages[2]


async def test_results_in_the_blocks_of_a_tool_message_are_truncated_in_place() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": LONG} for id in "ab"]
    done = await TruncateToolOutputs(100).compact([user(), call("a", "b"), {"role": "tool", "content": blocks}])
    assert [one["tool_use_id"] for one in done[2]["content"]] == ["a", "b"]
    assert all(len(one["content"]) <= 100 for one in done[2]["content"])


@pytest.mark.parametrize("make", [TruncateToolOutputs, ClipToolOutputs])
@pytest.mark.parametrize("bad", [0, -1, True, 5.5, "100"])
def test_an_impossible_length_is_refused(make: Callable[[Any], Strategy], bad: Any) -> None:
    with pytest.raises(ValueError, match="max_chars"):
        make(bad)


# -- FitContextWindow -------------------------------------------------------------------------------------------------


async def fitted(messages: list[Message], tokens: int, **settings: Any) -> list[Message]:
    counter = WordCounter()
    done = await FitContextWindow(tokens, counter, **settings).compact(messages)
    whole(done)
    return done


def words(number: int, **more: Any) -> Message:
    """A prompt of so many words, four tokens of framing beside them."""
    return user(" ".join(["word"] * number), **more)


async def test_the_newest_rounds_that_fit_are_kept() -> None:
    messages = [words(6), *[says(f"a{n} b c d e f") for n in range(10)]]  # each 10 tokens
    assert await fitted(messages, 35) == [messages[0], *messages[-2:]]
    assert await fitted(messages, 40) == [messages[0], *messages[-3:]]
    assert await fitted(messages, 110) is messages


async def test_tokens_can_be_reserved_for_the_answer() -> None:
    messages = [words(6), *[says(f"a{n} b c d e f") for n in range(10)]]
    assert await fitted(messages, 60, reserve_tokens=20) == await fitted(messages, 40)
    assert await fitted(messages, 130, reserve_tokens=20) is messages


async def test_the_framing_of_a_message_is_counted_as_told() -> None:
    messages = [words(6), *[says(f"a{n} b c d e f") for n in range(10)]]
    assert len(await fitted(messages, 30, per_message_overhead=0)) == 5
    assert len(await fitted(messages, 30, per_message_overhead=4)) == 3


async def test_media_is_counted_as_told() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    messages = [words(6), user([sound]), says("a b c d e f"), words(6)]
    assert await FitContextWindow(100, WordCounter(), tokens_per_media=60).compact(messages) is messages
    assert await FitContextWindow(100, WordCounter(), tokens_per_media=90).compact(messages) == [
        messages[0],
        *messages[2:],
    ]


async def test_images_are_counted_by_their_size() -> None:
    messages = [words(6), user([image_block(750, 100)]), words(6)]
    assert await fitted(messages, 124) is messages
    assert await fitted(messages, 123) == [messages[0], messages[2]]


async def test_prompt_task_and_newest_round_are_kept_though_they_do_not_fit() -> None:
    messages = [system("a b c"), words(50), call("a"), result("a", "x y z"), call("b"), result("b", LONG)]
    assert await fitted(messages, 10) == [*messages[:2], *messages[4:]]
    assert await fitted(messages, 10, reserve_tokens=100) == [*messages[:2], *messages[4:]]


async def test_pins_are_kept_and_take_their_room() -> None:
    pinned = says("p q r s t u", metadata=PINNED)
    messages = [words(6), says("a b c d e f"), pinned, *[says(f"a{n} b c d e f") for n in range(6)]]
    assert await fitted(messages, 40) == [messages[0], pinned, *messages[-2:]]


async def test_a_round_is_kept_whole_or_not_at_all() -> None:
    messages = [words(1), call("a", "b"), result("a", "x " * 10), result("b", "y " * 10), says("done")]
    assert await fitted(messages, 20) == [messages[0], messages[4]]


@pytest.mark.parametrize(
    ("settings", "name"), [((0, {}), "max_tokens"), ((10, {"reserve_tokens": -1}), "reserve_tokens")]
)
def test_an_impossible_window_is_refused(settings: tuple[int, dict[str, int]], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        FitContextWindow(settings[0], **settings[1])


# -- ClearToolOutputs and ClipToolOutputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 3, 6])
async def test_all_outputs_but_the_newest_are_cleared_and_say_where_they_are(keep: int) -> None:
    messages = talk()
    done = await ClearToolOutputs(keep).compact(messages)
    outputs = [(b["content"], a["content"]) for b, a in zip(messages, done, strict=True) if b["role"] == "tool"]
    for before, after in outputs[: 7 - keep]:
        assert "cleared" in after
        assert f"{len(before):,} characters" in after
    assert all(before == after for before, after in outputs[7 - keep :])
    assert "m4" in done[3]["content"]


async def test_more_to_keep_than_there_is_clears_nothing() -> None:
    messages = talk()
    assert await ClearToolOutputs(100).compact(messages) is messages


@pytest.mark.parametrize("bad", [-1, True, 1.5, "2"])
def test_an_impossible_number_to_keep_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="keep_last"):
        ClearToolOutputs(bad)


async def test_an_empty_output_is_not_cleared() -> None:
    messages = [user(), call("a"), result("a", ""), says()]
    assert await ClearToolOutputs(0).compact(messages) is messages


@pytest.mark.parametrize("strategy", [ClearToolOutputs(0), ClipToolOutputs(200)], ids=repr)
async def test_a_short_form_the_tool_made_is_used_in_place_of_a_generic_one(strategy: Strategy) -> None:
    messages = [user(), call("a"), result("a", LONG, metadata={"compact_summary": "two hundred rows"}), says()]
    done = await strategy.compact(messages)
    assert done[2]["content"] == "two hundred rows"
    assert await strategy.compact(done) is done


@pytest.mark.parametrize("strategy", [ClearToolOutputs(0), ClipToolOutputs(50)], ids=repr)
async def test_a_short_form_longer_than_the_output_is_not_used(strategy: Strategy) -> None:
    messages = [user(), call("a"), result("a", "short " * 5, metadata={"compact_summary": LONG}), says()]
    assert (await strategy.compact(messages))[2]["content"] == "short " * 5


async def test_old_outputs_are_clipped_to_head_and_tail() -> None:
    done = await ClipToolOutputs(200).compact(talk())
    assert all(len(m["content"]) <= 200 for m in done if m["role"] == "tool")
    assert done[3]["content"].startswith("0\nrow 0000")
    assert "m4" in done[3]["content"]


# -- SupersedeStaleReads ----------------------------------------------------------------------------------------------


def reading(*paths: str) -> list[Message]:
    messages = [user()]
    for number, path in enumerate(paths):
        messages += [call(f"c{number}", path=path), result(f"c{number}", f"{path} version {number}\n{LONG}")]
    return [*messages, says()]


async def test_of_the_same_call_made_again_only_the_latest_result_is_kept() -> None:
    messages = reading("a", "b", "a", "c", "a")
    done = await SupersedeStaleReads().compact(messages)
    assert "m10" in done[2]["content"]
    assert "m10" in done[6]["content"]
    for kept in (4, 8, 10):
        assert done[kept] is messages[kept]


async def test_another_tool_or_other_arguments_are_another_call() -> None:
    messages = [user(), call("a", name="read"), result("a", LONG), call("b", name="write"), result("b", LONG), says()]
    assert await SupersedeStaleReads().compact(messages) is messages
    different = reading("a", "b", "c")
    assert await SupersedeStaleReads().compact(different) is different


async def test_a_later_call_that_was_not_answered_supersedes_nothing() -> None:
    messages = [user(), call("a"), result("a", LONG), call("b"), user("Stop.")]
    assert await SupersedeStaleReads().compact(messages) is messages


async def test_arguments_in_another_spelling_are_the_same_call() -> None:
    blocks = [{"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}]
    listed = [{"id": "b", "tool": "read", "arguments": {"path": "x"}}]
    messages = [user(), says(blocks), result("a", LONG), says("", tool_calls=listed), result("b", LONG), says()]
    assert "superseded" in (await SupersedeStaleReads().compact(messages))[2]["content"]


async def test_two_equal_calls_in_one_message_do_not_make_each_other_stale() -> None:
    messages = [user(), call("a", "b"), result("a", "older\n" + LONG), result("b", "newer\n" + LONG), says()]
    assert await SupersedeStaleReads().compact(messages) is messages


async def test_of_two_equal_calls_of_one_id_one_result_is_kept() -> None:
    messages = [user(), call("a", "a"), result("a", "older\n" + LONG), result("a", "newer\n" + LONG), says()]
    done = await SupersedeStaleReads().compact(messages)
    assert any(LONG in str(m["content"]) for m in done)


async def test_a_stale_read_that_is_pinned_stays() -> None:
    messages = reading("a", "a")
    messages[2]["metadata"] = PINNED
    assert await SupersedeStaleReads().compact(messages) is messages


# -- KeepImportant ----------------------------------------------------------------------------------------------------


async def test_the_least_important_rounds_go_first_and_the_order_stays() -> None:
    messages = [user("task"), says("a"), says("important b"), says("c"), says("important d"), says("e")]
    assert await KeepImportant(score, keep=2).compact(messages) == [messages[0], messages[2], messages[4]]
    assert await KeepImportant(score, keep=3).compact(messages) == [messages[0], messages[2], messages[4], messages[5]]
    assert await KeepImportant(score, keep=5).compact(messages) is messages


async def test_a_round_is_as_important_as_its_most_important_message() -> None:
    messages = [user("task"), call("a"), result("a", "important"), call("b"), result("b", "x"), says("y")]
    assert await KeepImportant(score, keep=1).compact(messages) == messages[:3]


async def test_keeping_none_leaves_what_must_stay() -> None:
    messages = [system("s"), user("task"), says("a"), user("b", metadata=PINNED)]
    assert await KeepImportant(score, keep=0).compact(messages) == [messages[0], messages[1], messages[3]]


def test_fewer_than_none_to_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="keep"):
        KeepImportant(score, keep=-1)


async def test_inside_a_ladder_it_drops_only_until_the_goal_is_met() -> None:
    made = draft(user("task"), says("a " * 400), says("important " * 200), says("c " * 400))
    target = made.tokens - 100
    done = await KeepImportant(score).apply(made, Goal(target=target, budget=10_000))
    assert done.tokens <= target
    assert done.segments == made.segments[2:]


# -- FoldRounds and chapters ------------------------------------------------------------------------------------------


async def test_old_rounds_become_chapters_that_name_them() -> None:
    messages = talk()
    done = await FoldRounds().compact(messages)
    chapters = [m for m in done if "context_record" in str(m["content"])]
    assert chapters
    text = "\n".join(m["content"] for m in chapters)
    for number in range(6):
        assert f"src/m{number}.py" in text
    assert count_tokens(done) < 0.6 * count_tokens(messages)


async def test_short_messages_are_not_folded_where_a_chapter_would_cost_more() -> None:
    messages = [user("task"), says("ok"), says("fine")]
    assert await FoldRounds().compact(messages) is messages


@pytest.mark.parametrize("bad", [0, -0.1, 1.1])
def test_an_impossible_share_for_a_line_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="line_share"):
        FoldRounds(bad)


async def chapters_of(rounds: int) -> Draft:
    messages: list[Message] = []
    for chapter in range(rounds):
        messages.append(user(f"prompt {chapter} " * 40))
        for n in range(5):
            names = "\n".join(f"src/part_{chapter}_{n}/name_{line}.py" for line in range(40))
            messages += [call(f"c{chapter}{n}", path=f"src/part_{chapter}_{n}"), result(f"c{chapter}{n}", names)]
    made = draft(*messages)
    return await FoldRounds().apply(made, Goal(target=1, budget=100_000, human_tokens=1 << 40))


async def test_chapters_within_their_share_are_left_byte_identical() -> None:
    made = await chapters_of(6)
    goal = Goal(target=1, budget=100_000, chapter_tokens=made.tokens)
    assert await CondenseChapters().apply(made, goal) is made
    assert await DropChapters().apply(made, goal) is made


async def test_chapters_that_outgrow_their_share_are_condensed_below_it() -> None:
    made = await chapters_of(10)
    before = sum(segment.tokens for segment in made.segments if segment.chapter)
    done = await CondenseChapters().apply(made, Goal(target=1, budget=100_000, chapter_tokens=before * 3 // 4))
    after = sum(segment.tokens for segment in done.segments if segment.chapter)
    assert 0 < after <= before * 3 // 4
    assert [p.shown for p in done.segments if not p.chapter] == [p.shown for p in made.segments if not p.chapter]


async def test_chapters_that_cannot_be_condensed_further_are_the_same_draft() -> None:
    small = draft(*[m for n in range(9) for m in (user(f"p {n} " * 40), call(f"c{n}"), result(f"c{n}", LONG))])
    made = await FoldRounds().apply(small, Goal(target=1, budget=100_000, human_tokens=1 << 40))
    done = await CondenseChapters().apply(made, Goal(target=1, budget=100_000, chapter_tokens=made.tokens // 20))
    assert done.messages == made.messages
    assert done is made


@pytest.mark.parametrize("length", [4, 24, 29])
async def test_a_chapter_that_condensing_would_make_longer_is_left_alone(length: int) -> None:
    """Leaving a line out costs a line that states it."""
    given = draft(says("a"), says("b")).segments
    goal = Goal(target=0, budget=0, chapter_tokens=24)
    entries = [
        DigestEntry.of(segment.round, [Fact(f"{segment.mark} {'x' * size}")], goal.counter)
        for segment, size in zip(given, (29, length), strict=True)
        if segment.round
    ]
    made = Draft((fold(given, entries, goal, "mine"),))
    assert await CondenseChapters().apply(made, goal) is made


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
    assert len(lines) == 5
    assert "<" not in "".join(lines[1:-1])
    assert folded.chapter is not None
    assert (folded.first, folded.last, folded.chapter.left_out, folded.original_tokens) == (
        given[0].first,
        given[1].last,
        1,
        sum(segment.tokens for segment in given),
    )


async def test_the_oldest_chapters_are_dropped_first_and_only_above_their_share() -> None:
    made = await chapters_of(6)
    sizes = [segment.tokens for segment in made.segments if segment.chapter]
    done = await DropChapters().apply(made, Goal(target=1, budget=100_000, chapter_tokens=sum(sizes[2:])))
    kept = [segment for segment in done.segments if segment.chapter]
    assert kept == [segment for segment in made.segments if segment.chapter][2:]


async def test_rules_of_people_stay_when_the_rest_of_their_chapter_is_dropped() -> None:
    rules = [f"Never rename the table orders_{n} without a review." for n in range(6)]
    asked = [user(f"{rule} The rest of it is fine with me, go on as you see fit.") for rule in rules]
    given = draft(*asked).segments
    goal = Goal(target=0, budget=0, chapter_tokens=150)
    entries = [
        digest_round(segment.round, set(), goal.counter, share=0.25) for segment in given if segment.round is not None
    ]
    made = Draft((fold(given, entries, goal, "mine"),))
    done = await DropChapters().apply(made, goal)
    assert done.tokens < made.tokens
    text = done.messages[0]["content"]
    assert all(rule in text for rule in rules)
    assert "go on" not in text
    fewer = await DropChapters().apply(made, dataclasses.replace(goal, chapter_tokens=100))
    assert fewer.tokens <= 100
    assert 0 < sum(rule in fewer.messages[0]["content"] for rule in rules) < len(rules)
    assert rules[-1] in fewer.messages[0]["content"], "the oldest rules go first"
    assert not (await DropChapters().apply(made, dataclasses.replace(goal, chapter_tokens=10))).segments


@pytest.mark.parametrize("left", [{"recent": frozenset({99})}, {"human_tokens": 1}, {"settled": 1}])
async def test_chapters_within_their_share_are_dropped_as_a_last_resort_only(left: dict[str, Any]) -> None:
    folded = await chapters_of(12)
    assert await DropChapters().apply(folded, Goal(target=0, budget=folded.tokens - 1, **left)) is folded
    assert await DropChapters().apply(folded, Goal(target=0, budget=folded.tokens - 1)) is not folded


async def test_chapters_that_leave_no_room_are_condensed_when_all_else_was_given() -> None:
    folded = await chapters_of(12)
    ceiling = int(folded.tokens * 0.8)
    assert await CondenseChapters().apply(folded, Goal(target=0, budget=0, ceiling=ceiling, human_tokens=1)) is folded
    done = await CondenseChapters().apply(folded, Goal(target=0, budget=0, ceiling=ceiling))
    assert 0.3 * folded.tokens < done.tokens <= ceiling * 1.05


async def test_humans_words_are_folded_with_all_around_them_but_not_before_what_is_settled() -> None:
    words = "I would like all of the tables of the report to be printed in colour, and then sent to the depot. " * 3
    made = draft(*[m for n in range(6) for m in (user(f"{n}: {words}"), says(f"{n}: yes. {words}"))])
    settled = made.segments[5].last
    done = await FoldRounds().apply(made, Goal(target=0, budget=0, settled=settled))
    whole_again = await FoldRounds().apply(done, Goal(target=0, budget=0))
    assert [segment.mark for segment in done.segments if segment.is_human] == ["m1", "m3", "m5"]
    assert not any(segment.is_human for segment in whole_again.segments)
    assert len([segment for segment in whole_again.segments if segment.chapter]) == 1


async def test_a_goal_that_is_met_is_left_alone() -> None:
    made = draft(*talk())
    met = Goal(target=made.tokens, budget=made.tokens)
    for strategy in (
        FoldRounds(),
        ClipToolOutputs(10),
        ClearToolOutputs(0),
        SupersedeStaleReads(),
        KeepImportant(score),
    ):
        assert await strategy.apply(made, met) is made, strategy


@pytest.mark.parametrize("strategy", [FoldRounds(), ClipToolOutputs(100), ClearToolOutputs(0)], ids=repr)
async def test_old_rounds_give_before_new_ones_and_no_more_than_asked_for(strategy: Strategy) -> None:
    made = draft(*talk(rounds=20))
    target = made.tokens * 3 // 4
    done = await strategy.apply(made, Goal(target=target, budget=100_000))
    assert done.tokens <= target
    assert done.segments[-12:] == made.segments[-12:]


@pytest.mark.parametrize("strategy", [FoldRounds(), ClipToolOutputs(10), ClearToolOutputs(0)], ids=repr)
async def test_what_is_recent_is_not_touched(strategy: Strategy) -> None:
    made = draft(*talk())
    recent = frozenset(segment.first for segment in made.segments[2:])
    done = await strategy.apply(made, Goal(target=1, budget=100_000, recent=recent))
    assert [segment for segment in done.segments if segment.first in recent] == list(made.segments[2:])


# -- a strategy of one's own ------------------------------------------------------------------------------------------


class OnlyQuestions(Strategy):
    """Keeps what ends with a question mark."""

    name = "questions"

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        kept = [p for p in draft.segments if p.protected_because or str(p.shown[-1].message["content"]).endswith("?")]
        return draft if len(kept) == len(draft.segments) else draft.with_segments(kept)


async def test_a_strategy_of_ones_own_runs_on_a_plain_list_like_any_other() -> None:
    messages = [system("s"), user("task"), says("a"), user("b?"), says("pinned", metadata=PINNED), says("c")]
    assert await OnlyQuestions().compact(messages) == [messages[0], messages[1], messages[3], messages[4]]
    questions = [user("task"), says("a?")]
    assert await OnlyQuestions().compact(questions) is questions


async def test_the_strategy_that_does_nothing_does_nothing() -> None:
    messages = talk()
    assert await Strategy().compact(messages) is messages


async def test_messages_that_stay_are_the_very_objects_that_were_given() -> None:
    messages = talk()
    given = {id(message) for message in messages}
    assert all(id(message) in given for message in await TrimRounds(1).compact(messages))


async def test_the_counter_of_a_window_is_asked_for_every_message_once() -> None:
    counter = WordCounter()
    messages = [words(6), *[says(f"a{n} b c d e f") for n in range(10)]]
    await FitContextWindow(10_000, counter).compact(messages)
    assert counter.calls == len(messages)
    assert count_message_tokens(messages[0], counter) == 10
