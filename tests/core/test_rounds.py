"""Rounds: what must stay together does, in every order it may come."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.rendering.rounds import REACH, Round, RoundList, rounds_of, rounds_with
from amplifier_context_core.transcript.entry import Entry
from tests.core.drafts import rounds, transcript
from tests.messages import Message, block, call, result, says, system, user


def marks(found: list[Round]) -> list[list[int]]:
    return [[entry.seq for entry in one.entries] for one in found]


def answers(*ids: str, text: str | None = None) -> Message:
    """A user message with tool results, as Anthropic spells them."""
    blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": id, "content": "out"} for id in ids]
    return user([*blocks, block(text)] if text else blocks)


def test_a_call_and_its_result_are_one_round_and_others_are_rounds_of_their_own() -> None:
    found = rounds(user(), call("a"), result("a"), says())
    assert marks(found) == [[1], [2, 3], [4]]
    assert [round_.is_tool_round for round_ in found] == [False, True, False]


def test_parallel_calls_and_their_results_in_any_order_are_one_round() -> None:
    assert marks(rounds(user(), call("a", "b", "c"), result("c"), result("a"), result("b"), says())) == [
        [1],
        [2, 3, 4, 5],
        [6],
    ]


def test_a_late_result_comes_to_its_call() -> None:
    found = rounds(user(), call("a", "b"), result("a"), user("Still there?"), result("b"), says())
    assert marks(found) == [[1], [2, 3, 5], [4], [6]]
    assert found[1].unanswered == ()


def test_a_result_without_its_call_is_a_round_of_its_own() -> None:
    assert marks(rounds(result("lost"), user(), result("lost2"))) == [[1], [2], [3]]


def test_an_id_used_again_is_paired_by_position() -> None:
    found = rounds(user(), call("a"), result("a", "1"), call("a"), result("a", "2"))
    assert marks(found) == [[1], [2, 3], [4, 5]]


def test_of_two_open_calls_of_one_id_the_newest_is_answered_first() -> None:
    found = rounds(user(), call("a"), call("a"), result("a", "of the newer"), result("a", "of the older"))
    assert marks(found) == [[1], [2, 5], [3, 4]]


def test_an_id_used_twice_in_one_message_needs_two_results() -> None:
    found = rounds(user(), call("a", "a"), result("a"), result("a"), result("a"))
    assert marks(found) == [[1], [2, 3, 4], [5]]
    assert rounds(call("a", "a"), result("a"))[0].unanswered == ("a",)


def test_a_second_result_for_an_answered_call_is_an_orphan() -> None:
    assert marks(rounds(user(), call("a"), result("a"), result("a"))) == [[1], [2, 3], [4]]


def test_one_message_with_the_results_of_several_rounds_makes_them_one() -> None:
    found = rounds(user(), call("a"), call("b"), says("waiting"), answers("a", "b"), says())
    assert marks(found) == [[1], [2, 3, 5], [4], [6]]
    assert found[1].unanswered == ()
    found = rounds(user(), call("a"), call("b"), call("c"), says("waiting"), answers("a", "b", "c"), says())
    assert marks(found) == [[1], [2, 3, 4, 6], [5], [7]]


RETIRED = {"amplifier:instruction": {"disposition": "retired"}}


def test_a_message_joins_calls_that_are_left_out_only_if_it_answers_nothing_else() -> None:
    """With them it is left out itself."""
    found = rounds(user(), call("a", metadata=RETIRED), call("b"), answers("a", "b"), says())
    assert marks(found) == [[1], [2], [3, 4], [5]]
    assert [round_.unanswered for round_ in found] == [(), ("a",), (), ()]
    assert marks(rounds(user(), call("a", "b", metadata=RETIRED), says(), answers("a", "b"))) == [[1], [2, 4], [3]]
    assert marks(rounds(user(), call("a", metadata=RETIRED), answers("a", "lost"))) == [[1], [2], [3]]


def test_words_of_a_person_stay_in_their_place_though_a_late_result_is_with_them() -> None:
    """The result stays with them, as one without its call."""
    found = rounds(user(), call("a"), user("Still there?"), answers("a", text="Never mind."), says())
    assert marks(found) == [[1], [2], [3], [4], [5]]
    assert found[1].unanswered == ("a",)
    assert marks(rounds(user(), call("a"), says("waiting"), answers("a", text="And?"))) == [[1], [2], [3], [4]]
    assert marks(rounds(user(), call("a"), call("b"), says(), call("c"), answers("a", "c", text="And?"))) == [
        [1],
        [2],
        [3],
        [4],
        [5, 6],
    ]


def test_words_of_a_person_beside_results_join_calls_that_nothing_follows() -> None:
    hook = user("note", metadata={"source": "hook"})
    assert marks(rounds(user(), call("a"), answers("a", text="And?"))) == [[1], [2, 3]]
    assert marks(rounds(user(), call("a"), call("b"), hook, answers("a", "b", text="And?"))) == [[1], [2, 3, 5], [4]]


def test_words_of_a_person_do_not_join_a_call_that_is_left_out() -> None:
    assert marks(rounds(call("a", metadata=RETIRED), user(), says(), answers("a", text="And?"))) == [[1], [2], [3], [4]]
    assert marks(rounds(call("a", metadata=RETIRED), answers("a", text="And?"))) == [[1], [2]]


def test_after_rounds_were_joined_results_still_find_their_calls() -> None:
    found = rounds(user(), call("a", "x"), says(), call("b"), call("c"), answers("a", "b"), result("c"), result("x"))
    assert marks(found) == [[1], [2, 4, 6, 8], [3], [5, 7]]
    assert all(not round_.unanswered for round_ in found)


def test_calls_on_a_user_message_wait_for_nothing() -> None:
    found = rounds(user("x", tool_calls=[{"id": "a", "tool": "f"}]), result("a"))
    assert marks(found) == [[1], [2]]
    assert found[0].unanswered == ()


def test_an_assistant_message_that_answers_and_calls_waits_for_its_own_calls() -> None:
    both = says([{"type": "tool_result", "tool_call_id": "a", "output": "x"}], tool_calls=[{"id": "b", "tool": "f"}])
    found = rounds(user(), call("a"), both, result("b"))
    assert marks(found) == [[1], [2, 3, 4]]
    assert found[1].unanswered == ()


def test_an_assistant_message_that_answers_itself_is_whole() -> None:
    both = says([{"type": "tool_result", "tool_call_id": "a", "output": "x"}], tool_calls=[{"id": "a", "tool": "f"}])
    history = RoundList(transcript([user(), both, says()]).snapshot())
    assert marks(history.rounds) == [[1], [2], [3]]
    assert history.rounds[1].unanswered == ()
    assert history.closed == 3


# -- open and closed --------------------------------------------------------------------------------------------------


def closed(*messages: Message) -> int:
    return RoundList(transcript(messages).snapshot()).closed


def test_everything_is_closed_when_all_calls_are_answered() -> None:
    assert closed(user(), call("a"), result("a"), says()) == 3


def test_a_round_with_an_open_call_is_not_closed_nor_is_what_follows_it() -> None:
    assert closed(user(), call("a", "b"), result("a")) == 1
    assert closed(user(), call("a"), call("b"), result("b")) == 1


def test_a_call_stays_open_until_a_newer_human_message_was_answered() -> None:
    assert closed(user(), call("a"), user("Hello?")) == 1
    assert closed(user(), call("a"), user("Hello?"), says("Yes.")) == 4
    assert closed(user(), call("a"), user("note", metadata={"ephemeral": True}), says("Yes.")) == 1


def test_a_call_is_waited_for_through_many_rounds_but_not_for_ever() -> None:
    later = [message for n in range(40) for message in (call(f"b{n}"), result(f"b{n}"))]
    assert closed(user(), call("a"), *later[:20]) == 1
    assert closed(user(), call("a"), *later) == 42


def test_a_call_is_waited_for_through_32_rounds() -> None:
    """docs/reference.md has the limit."""
    talk = [user(), call("a"), *(message for n in range(31) for message in (call(f"b{n}"), result(f"b{n}")))]
    assert closed(*talk) == 1
    assert closed(*talk, call("last"), result("last")) == 34


def test_a_replaced_result_is_waited_for_as_long_as_a_first_one() -> None:
    def entries(rounds: int) -> list[Entry]:
        talk = [user(), call("a"), result("a", "started"), result("a", "new"), user("And?"), says()]
        talk += [message for n in range(rounds) for message in (call(f"b{n}"), result(f"b{n}"))]
        made = transcript(talk).snapshot()
        return [*made[:2], *made[3:]]  # the place of the second is that of the first

    assert RoundList(entries(0)).final == 1
    assert RoundList(entries(29)).final == 1
    assert RoundList(entries(30)).final == 34


def test_a_result_that_comes_after_that_still_finds_its_call() -> None:
    assert marks(rounds(user(), call("a"), user("Hello?"), says("Yes."), result("a"))) == [[1], [2, 5], [3], [4]]


def test_an_id_that_was_given_up_can_be_used_again() -> None:
    found = rounds(user(), call("a"), user("Hello?"), says("Yes."), call("a"), result("a"))
    assert marks(found) == [[1], [2], [3], [4], [5, 6]]
    assert found[1].unanswered == ("a",)


# -- growing ----------------------------------------------------------------------------------------------------------

GROWING = (
    system(),
    user(),
    call("a", "b"),
    result("b"),
    call("a"),
    user("and?", metadata={"source": "hook"}),
    answers("a", "a"),
    user("Well?"),
    call("c"),
    result("x"),
    says(),
    result("c"),
)


@pytest.mark.parametrize("end", range(len(GROWING) + 1))
def test_growing_by_one_gives_the_same_rounds_as_starting_over(end: int) -> None:
    entries = list(transcript(GROWING[:end]).snapshot())
    grown = RoundList()
    for entry in entries:
        before = list(grown.rounds)
        changed = grown.add(entry)
        assert all(a is b for a, b in zip(before[:changed], grown.rounds, strict=False)), "changed before its index"
    assert grown.rounds == rounds_of(entries)
    assert sorted(e.seq for round_ in grown.rounds for e in round_.entries) == [e.seq for e in entries]


# -- what a round knows of itself -------------------------------------------------------------------------------------


def test_a_round_knows_its_span_and_its_cost() -> None:
    round_ = rounds(user(), call("a"), user("between"), result("a"))[1]
    assert (round_.first, round_.last, round_.head.seq) == (2, 4, 2)
    assert round_.tokens == sum(entry.tokens for entry in round_.entries) > 0


@pytest.mark.parametrize(
    ("metadata", "pinned"),
    [({"pinned": True}, True), ({"pinned": "yes"}, False), ({"pinned": 1}, False), (None, False)],
)
def test_a_round_is_pinned_by_any_of_its_messages(metadata: dict[str, Any] | None, pinned: bool) -> None:
    assert rounds(call("a"), result("a", metadata=metadata))[0].is_pinned is pinned


def test_a_round_that_carries_loaded_tools_is_known() -> None:
    assert rounds(call("a", metadata={"openai:tool_search_items": []}), result("a"))[0].holds_loaded_tools
    assert not rounds(call("a"), result("a"))[0].holds_loaded_tools


def test_the_round_of_an_entry_is_the_same_alone_and_among_others() -> None:
    talk = [
        user(),
        call("a", "b"),
        result("a"),
        *(user() for _ in range(2 * REACH + 9)),
        call("c"),
        result("c"),
        says(),
    ]
    history = transcript(talk).snapshot()
    wanted = {1, 2, 3, 9, REACH + 5, *range(len(talk) - 3, len(talk) + 1)}
    together = rounds_with(wanted | {len(talk) + 1}, history)
    assert {seq: together[seq] for seq in wanted} == {seq: rounds_with({seq}, history)[seq] for seq in wanted}
    assert marks([together[3], together[len(talk) - 1]]) == [[2, 3], [len(talk) - 2, len(talk) - 1]]
    assert together.keys() == wanted


@pytest.mark.parametrize(("between", "found"), [(REACH - 1, [1, REACH + 1]), (REACH, [REACH + 2])])
def test_the_rest_of_a_round_is_looked_for_within_reach(between: int, found: list[int]) -> None:
    history = transcript([call("a"), *(user() for _ in range(between)), result("a")]).snapshot()
    assert marks([*rounds_with({between + 2}, history).values()]) == [found]
