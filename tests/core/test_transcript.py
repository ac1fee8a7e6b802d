"""The transcript: entries are only ever appended, and a mark never points at another message than it did."""

from __future__ import annotations

import pytest

from amplifier_context_core.errors import NotLoaded
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.transcript.entry import Entry, seq_of
from amplifier_context_core.transcript.transcript import Transcript
from tests.core.drafts import transcript
from tests.messages import Message, call, result, says, system, user

TWO_TURNS = (system(), user("one"), call("a"), result("a"), says("one done"), user("two"), says("two done"))


def append(history: Transcript, raw: Message) -> Entry:
    message, info = parse_message(raw)
    entry = history.draft(message, info, 1, created="2026-01-01T00:00:00.000+00:00")
    history.append(entry)
    return entry


@pytest.mark.parametrize(("mark", "seq"), [("m123", 123), ("m007", 7)])
def test_a_mark_names_a_seq(mark: str, seq: int) -> None:
    assert seq_of(mark) == seq


@pytest.mark.parametrize("bad", ["", "x1", "m-1", "m 1", "m\u0661", "m" + "9" * 19])
def test_what_is_no_mark_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="no mark"):
        seq_of(bad)


def test_before_the_first_human_message_there_is_no_turn() -> None:
    history = transcript([system(), says("Welcome!")])
    assert history.turn_count == 0
    assert [entry.turn_id for entry in history.snapshot()] == ["a0", "a0"]


def test_a_snapshot_reads_like_a_list() -> None:
    history = transcript(TWO_TURNS)
    append_after = history.snapshot()
    append(history, user("later, and not in the snapshot"))
    listed = list(append_after)
    assert [append_after[i] for i in range(-7, 7)] == [listed[i] for i in range(-7, 7)]
    cuts = [(None, None), (2, 5), (-3, None), (None, -2), (5, 100), (100, 200), (4, 1)]
    steps = [(None, None, 2), (None, None, -1), (5, 1, -2), (-1, -100, -1)]
    for cut in (slice(*one) for one in (*cuts, *steps)):
        assert append_after[cut] == listed[cut], cut
    assert list(reversed(append_after)) == listed[::-1]
    for outside in (7, -8):
        with pytest.raises(IndexError):
            append_after[outside]


def test_of_a_revision_too_long_ago_nothing_is_known() -> None:
    history = transcript(TWO_TURNS)
    start = history.revision
    entries = list(history.snapshot())
    for _ in range(200):
        history.replace(0, entries)
    assert history.unchanged_since(start) == 0
    assert history.unchanged_since(history.revision - 5) == 6


def test_a_clear_leaves_nothing_unchanged() -> None:
    history = transcript(TWO_TURNS)
    start = history.revision
    history.clear()
    assert history.unchanged_since(start) == 0
    assert (len(history), history.turn_count, history.last) == (0, 0, None)


def test_instructions_are_no_part_of_a_turn_before_the_first_prompt() -> None:
    history = transcript([system(), {"role": "developer", "content": "x"}, call("a")])
    assert [entry.mark for entry in history.current_turn()] == ["m3"]


@pytest.mark.parametrize(("head", "first"), [(2, 2), (2, 4), (2, 6), (3, 7)])
def test_what_is_loaded_of_a_resumed_history_is_what_the_whole_one_holds_there(head: int, first: int) -> None:
    entries = list(transcript(TWO_TURNS).snapshot())
    turns = sum(1 for entry in entries[:first] if entry.human)
    parts = Transcript.resumed("s", entries[:head], entries[first:], length=7, last_seq=7, turns_before=turns)
    whole, partly = transcript(TWO_TURNS).snapshot(), parts.snapshot()
    assert (len(parts), partly.gap, parts.turn_count) == (7, range(head, first), sum(e.human for e in entries))
    for place in range(-7, 7):
        if place % 7 in partly.gap:
            with pytest.raises(NotLoaded):
                partly[place]
        else:
            assert partly[place].seq == whole[place].seq
            assert partly.find(partly[place].seq) is partly[place]
    for start in range(8):
        for stop in range(start, 8):
            if set(range(start, stop)) & set(partly.gap):
                with pytest.raises(NotLoaded):
                    partly[start:stop]
            else:
                assert [e.seq for e in partly[start:stop]] == [e.seq for e in whole[start:stop]]
    if parts.gap and len(entries) > first + 1:
        parts.replace(first + 1)
        assert (len(parts), parts.unchanged_since(0)) == (first + 1, first + 1 - whole.leading_count)
    parts.fill_gap(entries[head:first])
    assert [e.seq for e in parts.snapshot()][: first + 1] == [e.seq for e in entries][: first + 1]
