"""A carrier beside a chapter: it is put after what it covers, once, and taken out without a trace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter as counter
from amplifier_context_core.compaction.checkpoint import DigestEntry, Fact, Segment
from amplifier_context_core.compaction.digest import chapter_of
from amplifier_context_core.view.candidate import carrier_of
from amplifier_context_summary.chapter_carriers import sent_tokens, with_carrier, without_carriers

BLOCK = {"type": "compaction", "content": "We read ten files.", "signature": "c2ln"}
METADATA = {"anthropic:compaction": {"version": 1, "model": "claude", "block": BLOCK}}
CARRIER = {"role": "user", "content": "label", "metadata": METADATA}


def chapter(first: int, last: int) -> Segment:
    """A chapter with an entry for every second seq."""
    entries = [
        DigestEntry(seq, min(seq + 1, last), f"a{seq}", (), 0, 40).with_facts([Fact(f"m{seq} read")], counter)
        for seq in range(first, last + 1, 2)
    ]
    made, shown = chapter_of(entries, counter, span=(first, last))
    return Segment(first, last, f"a{first}", (shown,), shown.tokens, made.original_tokens, "folded", "fold", None, made)


@st.composite
def views(draw: st.DrawFn) -> tuple[Segment, ...]:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    starts = [1 + 2 * sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(chapter(first, first + 2 * size - 1) for first, size in zip(starts, sizes, strict=True))


@given(views(), st.integers(0, 70), st.integers(0, 70))
def test_it_is_beside_the_last_chapter_that_it_covers_and_no_other_carrier_is(
    view: tuple[Segment, ...], before: int, upto: int
) -> None:
    made = with_carrier(with_carrier(view, CARRIER, before, counter) or view, CARRIER, upto, counter)
    if made is None:
        is_in_entry = upto % 2 == 1  # each has two seqs, the first of them odd
        assert upto == 0 or upto > view[-1].last or (upto < view[0].last and is_in_entry)
        return
    assert [segment.last for segment in made if carrier_of(segment)] == [
        max(segment.last for segment in made if segment.last <= upto)
    ]
    assert all(segment.tokens == sum(shown.tokens for shown in segment.shown) for segment in made)
    firsts = [segment.first for segment in made]
    assert firsts == sorted(set(firsts))
    assert sum(segment.original_tokens for segment in made) == sum(segment.original_tokens for segment in view)
    marks = [entry.first for one in made for entry in (one.chapter.entries if one.chapter else ())]
    assert marks == [entry.first for one in view for entry in (one.chapter.entries if one.chapter else ())]


@given(views())
def test_without_it_a_view_is_as_it_was(view: tuple[Segment, ...]) -> None:
    made = with_carrier(view, CARRIER, view[-1].last, counter)
    assert made is not None
    assert without_carriers(made) == view
    carrier = carrier_of(made[-1])
    assert carrier is not None
    assert (carrier.message, carrier.seq) == (CARRIER, -view[-1].last)
    assert sent_tokens(made) == carrier.tokens
