"""Rounds: what must stay together does, in every order it may come."""

from __future__ import annotations

from typing import Any

from amplifier_context_core.rendering.rounds import REACH, Round, RoundList, rounds_with
from amplifier_context_core.transcript.entry import Entry
from tests.core.drafts import rounds, transcript
from tests.messages import Message, block, call, result, says, user


def marks(found: list[Round]) -> list[list[int]]:
    return [[entry.seq for entry in one.entries] for one in found]


def answers(*ids: str, text: str | None = None) -> Message:
    """A user message with tool results, as Anthropic spells them."""
    blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": id, "content": "out"} for id in ids]
    return user([*blocks, block(text)] if text else blocks)


def test_one_message_with_the_results_of_several_rounds_makes_them_one() -> None:
    found = rounds(user(), call("a"), call("b"), says("waiting"), answers("a", "b"), says())
    assert marks(found) == [[1], [2, 3, 5], [4], [6]]
    assert found[1].unanswered == ()
    found = rounds(user(), call("a"), call("b"), call("c"), says("waiting"), answers("a", "b", "c"), says())
    assert marks(found) == [[1], [2, 3, 4, 6], [5], [7]]


def test_words_of_a_person_beside_results_join_calls_that_nothing_follows() -> None:
    hook = user("note", metadata={"source": "hook"})
    assert marks(rounds(user(), call("a"), answers("a", text="And?"))) == [[1], [2, 3]]
    assert marks(rounds(user(), call("a"), call("b"), hook, answers("a", "b", text="And?"))) == [[1], [2, 3, 5], [4]]


def test_after_rounds_were_joined_results_still_find_their_calls() -> None:
    found = rounds(user(), call("a", "x"), says(), call("b"), call("c"), answers("a", "b"), result("c"), result("x"))
    assert marks(found) == [[1], [2, 4, 6, 8], [3], [5, 7]]
    assert all(not round_.unanswered for round_ in found)


def closed(*messages: Message) -> int:
    return RoundList(transcript(messages).snapshot()).closed


def test_a_round_with_an_open_call_is_not_closed_nor_is_what_follows_it() -> None:
    assert closed(user(), call("a", "b"), result("a")) == 1
    assert closed(user(), call("a"), call("b"), result("b")) == 1


def test_no_call_waits_behind_what_a_host_put_in_place_of_the_conversation() -> None:
    summary = user("This session is being continued from a previous conversation that ran out of context. On a.py.")
    note = user("note", metadata={"source": "hook"})
    assert closed(user(), call("a"), summary, says()) == 4
    assert closed(user(), call("a"), user("And?"), says()) == 4
    assert closed(user(), call("a"), note, says()) == 1


def test_a_replaced_result_is_waited_for_as_long_as_a_first_one() -> None:
    def entries(rounds: int) -> list[Entry]:
        talk = [user(), call("a"), result("a", "started"), result("a", "new"), user("And?"), says()]
        talk += [message for n in range(rounds) for message in (call(f"b{n}"), result(f"b{n}"))]
        made = transcript(talk).snapshot()
        return [*made[:2], *made[3:]]  # the place of the second is that of the first

    assert RoundList(entries(0)).final == 1
    assert RoundList(entries(29)).final == 1
    assert RoundList(entries(30)).final == 34


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
