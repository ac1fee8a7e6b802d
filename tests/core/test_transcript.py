"""The transcript: marks, turns, snapshots, and its alignment with what a host hands in or a store holds."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.economics.meter import Units
from amplifier_context_core.errors import NotLoaded
from amplifier_context_core.history.reconcile import Change, reconcile
from amplifier_context_core.messages.parsing import NO_RESULT, ParsedMessage, parse_message
from amplifier_context_core.transcript.alignment import Order, align
from amplifier_context_core.transcript.entry import Entry, seq_of
from amplifier_context_core.transcript.matching import alignment_of
from amplifier_context_core.transcript.transcript import Snapshot, Transcript
from amplifier_context_core.view.directions import check_pin
from tests.core.drafts import transcript
from tests.managers import feed, new_manager
from tests.messages import Message, call, result, says, system, user

TWO_TURNS = (system(), user("one"), call("a"), result("a"), says("one done"), user("two"), says("two done"))


def test_a_mark_names_a_seq_and_what_is_no_mark_is_refused() -> None:
    assert [seq_of(mark) for mark in ("m123", "m007")] == [123, 7]
    for bad in ("", "x1", "m-1", "m 1", "m\u0661", "m" + "9" * 19):
        with pytest.raises(ValueError, match="no mark"):
            seq_of(bad)


def test_a_snapshot_reads_like_a_list() -> None:
    history = transcript(TWO_TURNS)
    append_after = history.snapshot()
    history.append(history.draft(*parse_message(user("later, and not in the snapshot")), 1, created=""))
    listed = list(append_after)
    assert [append_after[i] for i in range(-7, 7)] == [listed[i] for i in range(-7, 7)]
    cuts = [(2, 5), (-3, None), (None, -2), (5, 100), (4, 1), (None, None, 2), (5, 1, -2), (-1, -100, -1)]
    assert [append_after[slice(*cut)] for cut in cuts] == [listed[slice(*cut)] for cut in cuts]
    assert list(reversed(append_after)) == listed[::-1]
    for outside in (7, -8):
        with pytest.raises(IndexError):
            append_after[outside]


def test_of_a_revision_too_long_ago_nothing_is_known() -> None:
    history = transcript(TWO_TURNS)
    start = history.revision
    for _ in range(200):
        history.replace(0, list(history.snapshot()))
    assert (history.unchanged_since(start), history.unchanged_since(history.revision - 5)) == (0, 6)


@pytest.mark.parametrize(("head", "first"), [(2, 2), (2, 4), (2, 6), (3, 7)])
def test_what_is_loaded_of_a_resumed_history_is_what_the_whole_one_holds_there(head: int, first: int) -> None:
    entries = list(transcript(TWO_TURNS).snapshot())
    turns = sum(1 for entry in entries[:first] if entry.human)
    parts = Transcript.resumed("s", entries[:head], entries[first:], length=7, last_seq=7, turns_before=turns)
    whole, partly = transcript(TWO_TURNS).snapshot(), parts.snapshot()
    assert (len(parts), partly.gap, parts.turn_count) == (7, range(head, first), sum(e.human for e in entries))
    parts_of_it = [slice(start, stop) for start in range(8) for stop in range(start, 8)]
    for cut in (*parts_of_it, *(slice(place, place + 1) for place in range(-7, -1))):
        if {*range(7)[cut]} & {*partly.gap}:
            with pytest.raises(NotLoaded):
                partly[cut]
        else:
            assert [partly.find(one.seq) for one in partly[cut]] == list(whole[cut])
    if parts.gap and len(entries) > first + 1:
        parts.replace(first + 1)
        assert (len(parts), parts.unchanged_since(0)) == (first + 1, first + 1 - whole.leading_count)
    parts.fill_gap(entries[head:first])
    assert [e.seq for e in parts.snapshot()][: first + 1] == [e.seq for e in entries][: first + 1]


class CountingSnapshot(Snapshot):
    """A history that counts how many of its entries are read."""

    read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Iterator[Entry]:
        for entry in super().__iter__():
            self.read += 1
            yield entry


def test_a_pin_reads_each_message_a_few_times_however_many_are_pinned() -> None:
    entries = list(transcript([user()] * 3_000).snapshot())
    history = CountingSnapshot(entries, len(entries), 0)
    check_pin(entries[1_500], history, range(1, 3_001), capacity=10_000_000, units=Units(), pin_share=0.9)
    assert len(entries) <= history.read <= 3 * len(entries)


# -- alignment: an echo is distinguished from an edit ------------------------------------------------------------------
def aligned(stored: list[Message], incoming: list[Message]) -> Order:
    return align(list(transcript(stored).snapshot()), [parse_message(message) for message in incoming])


async def test_a_time_that_is_no_text_is_stored_as_it_came() -> None:
    odd = [user("x", metadata={"timestamp": stamp}) for stamp in (1732132.5, 1732132, {"at": "2026"}, True)]
    assert await (await feed(new_manager(), odd)).get_messages() == odd


def test_an_empty_list_empties_the_history_and_another_tool_is_another_call() -> None:
    assert aligned([system(), user("Fix the loader."), call("a"), result("a", "out")], []) == aligned([], []) == []
    (other,) = aligned([call("a", name="read")], [call("a", name="bash")])
    assert not isinstance(other, Entry), "with the same id and arguments too: sessions reuse ids, so both may be stored"


def test_the_same_text_at_another_time_is_an_echo_where_nothing_matches_better() -> None:
    first, second = (user("x", metadata={"timestamp": f"{year}-01-01T00:00:01.000+00:00"}) for year in (2026, 2027))
    assert isinstance(aligned([first], [second])[0], Entry)


async def test_a_list_that_only_adds_is_compared_with_no_view_unless_it_adds_a_placeholder() -> None:
    async def unknown(items: Sequence[ParsedMessage]) -> Sequence[ParsedMessage]:
        return items

    stored = [user("Do it."), call("a")]
    history = transcript(stored).snapshot()
    for new in (result("a"), user("more"), says("done")):
        found = await alignment_of(history, [*stored, new], None, unknown)
        assert found is not None, "to compare it would read the whole list again"
        assert found[0] == 2
    assert await alignment_of(history, [*stored, result("a", NO_RESULT)], None, unknown) is None


def test_large_lists_are_aligned_too() -> None:
    many = [user(f"message {number % 700}") for number in range(3_000)]
    found = aligned(many, [*many[1_000:2_000], *many[2_500:], user("new")])
    kept = [item.seq for item in found if isinstance(item, Entry)]
    assert len(found) == 1_501
    assert len(kept) == 1_500
    assert kept == sorted(kept)


# -- memory and store joined: a change that was broken off is found made or not made -----------------------------------
def entry(seq: int, text: str = "") -> Entry:
    message, info = parse_message({"role": "user", "content": text or f"message {seq}"})
    return Entry(seq, message, info.role, seq, info.human, (), (), 1, "s", "", "")


def snapshot(entries: list[Entry], gap: range = range(0)) -> Snapshot:
    made = Transcript.resumed(
        "s", entries[: gap.start], entries[gap.stop :], length=len(entries), last_seq=max(e.seq for e in entries)
    )
    return made.snapshot() if gap else Snapshot(entries, len(entries), 0)


def seqs(entries: list[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Entry], range]:
    order = draw(st.permutations(range(1, draw(st.integers(2, 12)) + 1)))
    entries = [entry(seq) for seq in (order if draw(st.booleans()) else sorted(order))]
    start = draw(st.integers(1, len(entries)))
    stop = draw(st.integers(start, len(entries)))
    return entries, range(start, stop) if start < stop and draw(st.booleans()) else range(0)


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[Entry], range, Change]:
    entries, gap = draw(histories())
    keep = draw(st.integers(gap.stop, len(entries)))
    if gap and draw(st.booleans()):
        return entries, gap, Change(0)
    old = draw(st.permutations(entries[keep:]).map(lambda moved: moved[: draw(st.integers(0, len(moved)))]))
    fresh = [entry(seq, "new") for seq in range(100, 100 + draw(st.integers(0, 3)))]
    return entries, gap, Change(keep, [*old, *fresh])


@given(changes(), st.booleans())
def test_a_change_that_was_broken_off_is_found_made_or_not_made(
    drawn: tuple[list[Entry], range, Change], made: bool
) -> None:
    entries, gap, change = drawn
    stored = [*entries[: change.keep], *change.entries] if made else entries
    found = reconcile(snapshot(entries, gap), stored, change)
    assert seqs(found.entries) == seqs(list(stored))
    assert (found.missing, found.unstored, found.common) == (0, 0, len(stored))


@given(histories(), st.integers(0, 3), st.integers(0, 3))
def test_of_an_append_that_was_broken_off_the_beginning_that_was_stored_is_taken_over(
    drawn: tuple[list[Entry], range], count: int, stored: int
) -> None:
    entries, gap = drawn
    added = [entry(seq, "new") for seq in range(100, 100 + count)]
    found = reconcile(snapshot(entries, gap), [*entries, *added[:stored]], Change(len(entries), added))
    assert seqs(found.entries) == seqs([*entries, *added[:stored]])


@given(histories(), st.sets(st.integers(1, 12)))
def test_what_memory_holds_is_kept_in_its_order_whatever_the_store_lost(
    drawn: tuple[list[Entry], range], lost: set[int]
) -> None:
    entries, gap = drawn
    inside = {one.seq for one in entries[gap.start : gap.stop]} if gap else set[int]()
    left = [one for one in entries if one.seq not in lost]
    found = reconcile(snapshot(entries, gap), left)
    assert seqs(found.entries) == [one.seq for one in entries if one.seq not in lost & inside]
    assert found.missing == len(lost & inside)
    assert found.unstored == len([one for one in entries if one.seq in lost - inside])
    assert seqs(left[: found.common]) == seqs(found.entries[: found.common])


def test_entries_of_another_program_keep_their_index_and_are_not_taken_for_ours() -> None:
    entries = [entry(seq) for seq in range(1, 7)]
    stored = [*entries[:5], entry(20), entries[5], entry(21)]
    for gap in (range(0), range(1, 4)):
        assert seqs(reconcile(snapshot(entries, gap), stored).entries) == [1, 2, 3, 4, 5, 20, 6, 21]
    theirs = entry(7, "another writer's")  # of the same seq
    found = reconcile(snapshot(entries), [*entries, theirs], Change(6, [entry(7, "ours")]))
    assert found.entries[6:] == [theirs]


def test_a_rewriting_that_was_broken_off_is_as_the_store_holds_it() -> None:
    entries = [entry(1, "secret"), entry(2)]
    for text in ("secret", "(erased)"):
        found = reconcile(snapshot(entries), [entry(1, text), entries[1]], Change(2, rewritten=frozenset([1])))
        assert [one.message["content"] for one in found.entries] == [text, "message 2"]
