"""What is put beside the digest in a chapter: a text leaves people's words their room, a carrier leaves no trace."""

import random

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter as counter
from amplifier_context_core.compaction.checkpoint import DigestEntry, Fact, Segment
from amplifier_context_core.compaction.digest import chapter_of, with_texts
from amplifier_context_core.compaction.speech import Speaker, read
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.view.candidate import carrier_of
from amplifier_context_summary.chapters import with_text
from amplifier_context_summary.native import sent_tokens, with_carrier, without_carriers
from amplifier_context_summary.text import SECTIONS, Line, Text
from tests.messages import carrier

_WORDS = ("parser", "release", "vendor", "lint", "folder", "module", "index", "notes")
_CHANCE = random.Random(1)  # a phrase is one draw: to draw each word of thousands takes most of the time
words = st.sampled_from([" ".join(_CHANCE.choices(_WORDS, k=number % 12 + 1)) for number in range(120)])
rules = words.map(lambda topic: f"Never touch the {topic} again.")
speech = st.lists(st.one_of(rules, words.map(lambda topic: f"I looked at the {topic}.")), min_size=1, max_size=4)
_speakers: st.SearchStrategy[Speaker] = st.sampled_from(("person", "agent"))


def folded(entries: list[DigestEntry], first: int, last: int) -> Segment:
    made, shown = chapter_of(entries, counter, span=(first, last))
    return Segment(first, last, f"a{first}", (shown,), shown.tokens, made.original_tokens, "folded", "fold", None, made)


@st.composite
def chapters(draw: st.DrawFn) -> Segment:
    """A chapter of entries in which people, the agent and tools have their say."""
    entries: list[DigestEntry] = []
    for seq in range(2, draw(st.integers(3, 25))):
        facts = [Fact(f"m{seq} read_file {draw(words)}", "120 lines", tuple(dict.fromkeys(draw(words).split())))]
        if draw(st.booleans()):
            speaker = draw(_speakers)
            role = "user" if speaker == "person" else "assistant"
            facts.insert(0, Fact(f"m{seq} {role}", speaker=speaker, sentences=read(" ".join(draw(speech)), speaker)))
        entries.append(DigestEntry(seq, seq, f"a{seq}", (), 0, 400).with_facts(facts, counter))
    return folded(entries, entries[0].first, entries[-1].last)


def quoted_of_people(segment: Segment) -> list[str]:
    """What the digest's entries quote of people."""
    facts = [fact for entry in (segment.chapter.entries if segment.chapter else ()) for fact in entry.facts]
    return [one.text.strip() for fact in facts if fact.speaker == "person" for one in fact.sentences]


lines_ = st.lists(st.builds(Line, st.sampled_from(SECTIONS), words), max_size=30)


@given(st.lists(chapters(), min_size=1, max_size=4), lines_, st.integers(1, 30))
def test_a_text_takes_no_room_from_peoples_words(given_: list[Segment], lines: list[Line], upto: int) -> None:
    total = sum(chapter.tokens for chapter in given_)
    new = with_text(given_, upto, Text(tuple(lines)), counter)
    assert sum(chapter.tokens for chapter in new) == total
    assert sum(count_message_tokens(one.shown[0].message, counter) for one in new) <= total
    for old, chapter in zip(given_, new, strict=True):
        shown = str(chapter.shown[0].message["content"])
        assert all(sentence in shown for sentence in quoted_of_people(old))
        assert chapter.chapter.entries == old.chapter.entries
        assert with_texts(chapter, (), None, counter, "").shown == old.shown
        later = [entry for entry in old.chapter.entries if entry.last > upto]
        assert all(fact.text in shown for entry in later for fact in entry.facts)
    assert with_text(new, upto, Text(tuple(lines)), counter) == new
    assert [one.shown for one in with_text(new, upto, Text(), counter)] == [one.shown for one in given_]


CARRIER = carrier("We read ten files.")


def chapter(first: int, last: int) -> Segment:
    """A chapter with an entry for every second seq."""
    entries = [
        DigestEntry(seq, min(seq + 1, last), f"a{seq}", (), 0, 40).with_facts([Fact(f"m{seq} read")], counter)
        for seq in range(first, last + 1, 2)
    ]
    return folded(entries, first, last)


@st.composite
def views(draw: st.DrawFn) -> tuple[Segment, ...]:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    starts = [1 + 2 * sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(chapter(first, first + 2 * size - 1) for first, size in zip(starts, sizes, strict=True))


@given(views(), st.integers(0, 70), st.integers(0, 70))
def test_a_carrier_is_beside_the_last_chapter_it_covers(view: tuple[Segment, ...], before: int, upto: int) -> None:
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
    assert without_carriers(made) == view
    carried = carrier_of(made[-1])
    assert (carried.message, carried.seq) == (CARRIER, -view[-1].last)
    assert sent_tokens(made) == carried.tokens
