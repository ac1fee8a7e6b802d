"""The transcript: entries are only ever appended, and a mark never points at another message than it did."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.errors import NotLoaded
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.transcript.entry import Entry, seq_of
from amplifier_context_core.transcript.transcript import Snapshot, Transcript, is_finished
from tests.core.drafts import transcript
from tests.messages import Message, call, result, says, system, user

TWO_TURNS = (system(), user("one"), call("a"), result("a"), says("one done"), user("two"), says("two done"))


def append(history: Transcript, raw: Message) -> Entry:
    message, info = parse_message(raw)
    entry = history.draft(message, info, 1, created="2026-01-01T00:00:00.000+00:00")
    history.append(entry)
    return entry


def marks(history: Transcript) -> list[str]:
    return [entry.mark for entry in history.snapshot()]


# -- entries ----------------------------------------------------------------------------------------------------------


def test_an_entry_holds_what_was_measured_of_its_message() -> None:
    history = Transcript("session-1")
    message, info = parse_message(call("a", "b"))
    entry = history.draft(
        message, info, 17, created="c", completed="d", response=Response("gpt", "openai", Usage(10, 2, 3, 4), "stop")
    )
    assert (entry.seq, entry.mark) == (1, "m1")
    assert (entry.role, entry.call_ids, entry.answered_ids, entry.human) == ("assistant", ("a", "b"), (), False)
    assert (entry.tokens, entry.session_id, entry.created, entry.completed) == (17, "session-1", "c", "d")
    assert entry.response is not None
    assert entry.response.usage == Usage(10, 2, 3, 4)


def test_an_entry_is_complete_when_it_was_made_by_default() -> None:
    message, info = parse_message(user())
    assert Transcript().draft(message, info, 1, created="c").completed == "c"


def test_an_entry_cannot_be_changed() -> None:
    entry = append(Transcript(), user())
    with pytest.raises(AttributeError):
        entry.seq = 5  # type: ignore[misc]


def test_a_draft_is_no_part_of_the_history_and_its_seq_is_spent() -> None:
    history = Transcript()
    message, info = parse_message(user("refused by its store"))
    refused = history.draft(message, info, 1, created="")
    kept = append(history, user("kept"))
    assert (refused.seq, kept.seq) == (1, 2)
    assert marks(history) == ["m2"]


@pytest.mark.parametrize(("mark", "seq"), [("m1", 1), ("m123", 123), ("m007", 7)])
def test_a_mark_names_a_seq(mark: str, seq: int) -> None:
    assert seq_of(mark) == seq


@pytest.mark.parametrize(
    "bad", ["", "m", "1", "x1", "M1", "m-1", "m1a", "m 1", "m1.0", "m²", "m\u0661", "m" + "9" * 19, "mm1"]
)
def test_what_is_no_mark_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="no mark"):
        seq_of(bad)


# -- turns ------------------------------------------------------------------------------------------------------------


def test_a_human_message_and_what_follows_it_are_one_turn() -> None:
    history = transcript(TWO_TURNS)
    assert [entry.turn_id for entry in history.snapshot()] == ["a0", "u1", "a1", "a1", "a1", "u2", "a2"]
    assert history.turn_count == history.snapshot().turn_count == 2


def test_injected_user_messages_begin_no_turn() -> None:
    history = transcript([user("one"), user("note", metadata={"source": "hook"}), says("x")])
    assert [entry.turn_id for entry in history.snapshot()] == ["u1", "a1", "a1"]


def test_before_the_first_human_message_there_is_no_turn() -> None:
    history = transcript([system(), says("Welcome!")])
    assert history.turn_count == 0
    assert [entry.turn_id for entry in history.snapshot()] == ["a0", "a0"]


def test_the_count_of_turns_follows_edits() -> None:
    history = transcript(TWO_TURNS)
    history.replace(5)
    assert history.turn_count == 1
    assert append(history, user("again")).turn_id == "u2"


# -- append-only ------------------------------------------------------------------------------------------------------


def test_a_snapshot_does_not_see_later_appends() -> None:
    history = transcript(TWO_TURNS)
    before = history.snapshot()
    shown = list(before)
    append(history, user("three"))
    assert len(before) == 7
    assert list(before) == shown
    assert len(history.snapshot()) == 8


def test_a_snapshot_outlives_edits_and_a_clear() -> None:
    history = transcript((*TWO_TURNS, user("three"), call("b")))
    before = history.snapshot()
    shown = list(before)
    history.replace(7)
    append(history, user("instead"))
    history.replace(2)
    history.clear()
    append(history, user("again"))
    assert list(before) == shown
    assert before.find(9) is shown[8]


def test_taking_a_snapshot_copies_no_entry() -> None:
    history = transcript(TWO_TURNS)
    assert all(a is b for a, b in zip(history.snapshot(), history.snapshot(), strict=True))
    assert history.snapshot()._entries is history.snapshot()._entries  # pyright: ignore[reportPrivateUsage]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=12))
def test_a_snapshot_begins_with_each_earlier_one_whose_entries_are_still_there(
    edits: list[tuple[int, int, bool]],
) -> None:
    histories = [Transcript("s")]
    taken: list[Snapshot] = []
    for keep, added, is_forked in edits:
        history = histories[-1].fork() if is_forked else histories[keep % len(histories)]
        histories.append(history)
        if keep < 3:
            history.replace(min(keep, len(history)))
        for _ in range(added):
            append(history, {"role": "user", "content": "x"})
        taken.append(history.snapshot())
    for later in taken:
        for earlier in taken:
            same = len(earlier) <= len(later) and all(a is b for a, b in zip(earlier, later, strict=False))
            assert later.begins_with(earlier) is same


def test_a_snapshot_reads_like_a_list() -> None:
    history = transcript(TWO_TURNS)
    append_after = history.snapshot()
    append(history, user("later, and not in the snapshot"))
    listed = list(append_after)
    assert [append_after[i] for i in range(-7, 7)] == [listed[i] for i in range(-7, 7)]
    for cut in (
        slice(None),
        slice(2, 5),
        slice(-3, None),
        slice(None, -2),
        slice(5, 100),
        slice(100, 200),
        slice(4, 1),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(5, 1, -2),
        slice(-1, -100, -1),
    ):
        assert append_after[cut] == listed[cut], cut
    assert list(reversed(append_after)) == listed[::-1]
    for outside in (7, -8):
        with pytest.raises(IndexError):
            append_after[outside]


def test_entries_are_found_by_seq_also_where_a_host_inserted_some() -> None:
    history = transcript(TWO_TURNS)
    entries = list(history.snapshot())
    message, info = parse_message(result("late"))
    inserted = history.draft(message, info, 1, created="")
    history.replace(3, [inserted, *entries[3:]])
    snapshot = history.snapshot()
    for entry in snapshot:
        assert snapshot.find(entry.seq) is entry
    assert snapshot.find(99) is None
    assert snapshot.find(0) is None


def test_a_seq_is_never_given_again() -> None:
    history = transcript(TWO_TURNS)
    history.replace(2)
    assert append(history, user()).seq == 8
    history.clear()
    assert history.last_seq == 8
    assert append(history, user()).seq == 9


def test_several_entries_are_appended_in_their_order() -> None:
    history = Transcript()
    drafted = [history.draft(*parse_message(raw), 1, created="") for raw in (user("one"), says(), user("two"))]
    history.extend(drafted)
    history.extend(())
    assert marks(history) == ["m1", "m2", "m3"]
    assert history.turn_count == 2
    assert history.last is drafted[-1]


# -- what stayed the same ---------------------------------------------------------------------------------------------


def test_an_append_leaves_everything_before_it_unchanged() -> None:
    history = transcript(TWO_TURNS)
    revision = history.revision
    append(history, user())
    assert history.revision == revision
    assert history.unchanged_since(revision) == 8


def test_after_edits_the_common_beginning_of_all_of_them_is_unchanged() -> None:
    history = transcript(TWO_TURNS)
    start = history.revision
    entries = list(history.snapshot())
    history.replace(5)
    middle = history.revision
    history.replace(5, entries[5:])  # put back: yet a reader of the revision between saw five
    assert history.unchanged_since(start) == 4  # the system prompt is not counted
    assert history.unchanged_since(middle) == 4
    assert history.unchanged_since(history.revision) == 7
    history.replace(2, entries[3:])
    assert history.unchanged_since(start) == history.unchanged_since(middle) == 1


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


# -- forks ------------------------------------------------------------------------------------------------------------


def test_a_fork_shares_the_prefix_and_goes_its_own_way() -> None:
    parent = transcript(TWO_TURNS)
    child = parent.fork("child")
    mine, theirs = append(parent, user("parent")), append(child, user("child"))
    assert list(parent.snapshot())[:7] == list(child.snapshot())[:7]
    assert all(a is b for a, b in zip(list(parent.snapshot())[:7], list(child.snapshot())[:7], strict=True))
    assert parent.snapshot()[7] is mine
    assert child.snapshot()[7] is theirs
    assert (mine.session_id, theirs.session_id) == ("s", "child")


def test_a_fork_of_a_fork_and_a_fork_of_an_edited_history_are_apart() -> None:
    parent = transcript(TWO_TURNS)
    child = parent.fork("child")
    grandchild = child.fork("grandchild")
    append(grandchild, user("g"))
    append(parent, user("p"))
    child.replace(5)
    append(child, user("c"))
    assert [len(t) for t in (parent, child, grandchild)] == [8, 6, 8]
    assert [t.snapshot()[-1].message["content"] for t in (parent, child, grandchild)] == ["p", "c", "g"]


def test_a_fork_keeps_the_session_id_unless_it_gets_its_own() -> None:
    assert transcript(TWO_TURNS).fork().session_id == "s"


def test_the_count_of_turns_goes_on_in_a_fork() -> None:
    child = transcript(TWO_TURNS).fork("child")
    assert child.turn_count == 2
    assert append(child, user()).turn_id == "u3"


# -- the current turn -------------------------------------------------------------------------------------------------


def test_the_current_turn_is_the_newest_prompt_and_what_follows() -> None:
    history = transcript((*TWO_TURNS, user("three"), call("b"), result("b")))
    assert [entry.mark for entry in history.current_turn()] == ["m8", "m9", "m10"]


@pytest.mark.parametrize(
    ("rest", "finished"), [((), True), ([user("three")], False), ([user("three"), call("b")], False)]
)
def test_a_turn_is_finished_by_an_answer_without_calls(rest: Sequence[Message], finished: bool) -> None:
    assert is_finished(transcript((*TWO_TURNS, *rest)).current_turn()) is finished


def test_instructions_are_no_part_of_a_turn_before_the_first_prompt() -> None:
    history = transcript([system(), {"role": "developer", "content": "x"}, call("a")])
    assert [entry.mark for entry in history.current_turn()] == ["m3"]


def test_there_is_no_turn_in_an_empty_history() -> None:
    assert Transcript().current_turn() == []
    assert transcript([system()]).current_turn() == []


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
