"""Ranges: what a model is asked about, and in which pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter as counter
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_summary.request import Range, pieces_of, range_of
from tests.core.drafts import transcript
from tests.laws.histories import Step, conversations, flat
from tests.messages import Message, call, result, rounds, user


def made(*messages: Message) -> Range:
    """The range of a whole history, with its digest."""
    entries = list(transcript(messages).snapshot())
    known: set[str] = set()
    digest = {one.first: digest_round(one, known, counter, share=0.25) for one in rounds_of(entries)}
    found = range_of(entries, digest=digest)
    assert found is not None
    return found


def quotation(found: Range) -> str:
    ((_, text),) = pieces_of(found, counter, 1_000_000)
    return text


@given(conversations(), st.integers(1, 800), st.integers(0, 5))
def test_each_piece_is_made_of_the_entries_up_to_its_end_and_of_no_other(
    steps: list[Step], room: int, start: int
) -> None:
    entries = list(transcript(flat(steps)).snapshot())
    whole = range_of(entries, start)
    shown = [entry.seq for entry in entries if not is_left_out(entry.message)]
    assert (whole is None) == (not shown)
    if whole is None:
        return
    assert [entry.seq for entry in whole.entries] == shown
    done = 0
    for piece, _ in pieces_of(whole, counter, room):
        seqs = [entry.seq for entry in piece.entries]
        upto = [entry.seq for entry in entries[: piece.covered - start] if entry.seq in shown]
        assert upto == shown[: done + len(seqs)]
        assert (piece.first, piece.last) == (seqs[0], seqs[-1])
        done += len(seqs)
    assert (done, whole.covered) == (len(shown), start + len(entries))


def test_a_result_that_came_late_names_the_message_with_its_call() -> None:
    late = [call("a", name="build"), call("b", name="lint"), *rounds(1), result("b", "ok"), result("a", "3 errors")]
    lines = quotation(made(user(), *late)).splitlines()
    assert "m6 result of m3: ok" in lines
    assert "m7 result of m2: 3 errors" in lines
    assert not any(" of m" in line for line in lines if line.startswith("m5 "))


def test_names_that_came_with_a_late_result_are_not_in_the_quotation_before_it() -> None:
    output = "line\n" * 1_000 + "the token is in vault/hunter2.key\n" + "line\n" * 1_000
    asked = [user(), call("a", "b"), result("a", "line\n" * 1_000), user("Go on."), result("b", output)]
    text = quotation(made(*asked))
    assert "hunter2.key" not in text[: text.index("m5 result")]
    together = quotation(made(user(), call("a"), result("a", output)))
    assert "names in it: " in together
    assert "hunter2.key" in together
