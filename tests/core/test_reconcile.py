"""Joining memory and store: a change that was broken off is found made or not made, and nothing held is given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.history.reconcile import Change, reconcile
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Snapshot, Transcript


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


def test_entries_of_another_program_keep_their_index_in_the_store() -> None:
    entries = [entry(seq) for seq in range(1, 7)]
    stored = [*entries[:5], entry(20), entries[5], entry(21)]
    assert seqs(reconcile(snapshot(entries), stored).entries) == [1, 2, 3, 4, 5, 20, 6, 21]
    assert seqs(reconcile(snapshot(entries, range(1, 4)), stored).entries) == [1, 2, 3, 4, 5, 20, 6, 21]


def test_an_entry_of_the_same_seq_with_other_words_was_not_added_by_us() -> None:
    entries = [entry(1), entry(2)]
    found = reconcile(snapshot(entries), [*entries, entry(3, "another writer's")], Change(2, [entry(3, "ours")]))
    assert [one.message["content"] for one in found.entries][2:] == ["another writer's"]


def test_a_rewriting_that_was_broken_off_is_as_the_store_holds_it() -> None:
    entries = [entry(1, "secret"), entry(2)]
    for text in ("secret", "(erased)"):
        found = reconcile(snapshot(entries), [entry(1, text), entries[1]], Change(2, rewritten=frozenset([1])))
        assert [one.message["content"] for one in found.entries] == [text, "message 2"]


def test_a_store_that_holds_an_entry_twice_gives_it_once() -> None:
    entries = [entry(seq) for seq in range(1, 5)]
    found = reconcile(snapshot(entries, range(1, 3)), [entries[0], entries[1], entries[1], entries[2], entries[3]])
    assert seqs(found.entries) == [1, 2, 3, 4]
