"""When messages come where a clock is wanted."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.lab.clock import PACE, PAUSES, stamped, times

from .scripted import result, says, user

TALK: list[Message] = [message for turn in range(21) for message in (user(f"q{turn}"), says("a"), result("r"))]


def pauses(messages: list[Message], seed: str = "s", **more: frozenset[int]) -> dict[int, float]:
    """The pauses before messages, by index."""
    at = times(messages, seed, **more)
    gaps = [after - before for before, after in itertools.pairwise(at)]
    return {index: gap for index, gap in enumerate(gaps, 1) if gap != PACE}


def test_a_fifth_of_peoples_messages_is_followed_by_a_pause_before_the_next_one() -> None:
    found = pauses(TALK)
    assert len(found) == 4  # of twenty that have a next one
    assert all(TALK[index]["role"] == "user" for index in found)
    assert set(found.values()) <= set(PAUSES)


def test_what_the_host_wrote_ends_no_pause() -> None:
    assert pauses(TALK, host=frozenset(range(0, len(TALK), 3))) == {}


def test_a_session_of_one_instruction_has_no_pause() -> None:
    assert pauses([user("do it"), *[says("a")] * 30]) == {}


@given(seed=st.text(), count=st.integers(0, 60))
def test_the_clock_never_runs_back_and_the_same_seed_gives_the_same_times(seed: str, count: int) -> None:
    found = times(TALK[:count], seed)
    assert found == sorted(found) == times(TALK[:count], seed)
    assert len(found) == count


def test_messages_carry_their_time_and_keep_what_they_had() -> None:
    (one,) = stamped([{**user("q"), "metadata": {"kind": "x"}}], [90.5])
    assert one["metadata"] == {"kind": "x", "timestamp": "2026-01-05T09:01:30.500+00:00"}
