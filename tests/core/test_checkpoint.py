"""Checkpoints: frozen, and known by the content they cover."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable

import pytest

from amplifier_context_core.compaction.checkpoint import Chapter, Checkpoint, DigestEntry, Draft, Fact, segment_of
from amplifier_context_core.compaction.strategies import FoldRounds, Goal
from amplifier_context_core.messages.hashing import chain_hash, content_hash
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.view.session_state import SessionState, dump, view_state
from tests.core.drafts import draft, rounds, segments, transcript
from tests.messages import block, call, result, says, user

MESSAGES = (user("Fix src/a.py."), call("a"), result("a", "x" * 900), call("b"), result("b", "y" * 900), says("Done."))


# -- identity by content ----------------------------------------------------------------------------------------------


def test_the_same_content_has_the_same_hash_at_any_time() -> None:
    plain = content_hash(user("x"))
    assert content_hash(user("x", metadata={"timestamp": "2026"})) == plain
    assert content_hash(user("x", metadata={"timestamp": "2027"}, timestamp="2028")) == plain
    assert content_hash(user("x", metadata={})) == content_hash(user("x", metadata=None)) == plain


@pytest.mark.parametrize(
    "other",
    [
        user("y"),
        says("x"),
        user([block("x")]),
        user("x", name="anna"),
        user("x", metadata={"pinned": True}),
        user("x", metadata={"timestamp": "2026", "source": "hook"}),
        user("x\ud83d"),
    ],
    ids=str,
)
def test_another_content_has_another_hash(other: dict[str, object]) -> None:
    assert content_hash(other) != content_hash(user("x"))


def test_the_order_of_keys_does_not_matter() -> None:
    assert content_hash({"role": "user", "content": "x"}) == content_hash({"content": "x", "role": "user"})
    nested = [{"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}]
    assert content_hash(user(nested[:1])) == content_hash(user(nested[1:]))


@pytest.mark.parametrize("odd", ["\ud83d", 10**30], ids=["surrogate", "big integer"])
def test_the_order_of_keys_does_not_matter_for_what_orjson_cannot_write(odd: object) -> None:
    assert content_hash({"role": "user", "content": "x", "odd": odd}) == content_hash(
        {"odd": odd, "content": "x", "role": "user"}
    )


def chained(entries: Iterable[Entry], before: bytes = b"") -> bytes:
    for entry in entries:
        before = chain_hash(before, entry.seq, content_hash(entry.message))
    return before


def test_a_chain_of_hashes_knows_the_order_and_every_message() -> None:
    entries = list(transcript(MESSAGES).snapshot())
    whole = chained(entries)
    assert chained(entries[2:], chained(entries[:2])) == whole
    assert chained(entries[::-1]) != whole
    assert chained(entries[:-1]) != whole


def test_a_chain_of_hashes_knows_by_which_marks_its_messages_go() -> None:
    entries = list(transcript(MESSAGES).snapshot())
    assert chained([entries[0]._replace(seq=9), *entries[1:]]) != chained(entries)


def test_the_same_history_in_another_session_has_the_same_chain() -> None:
    assert chained(transcript(MESSAGES, "one").snapshot()) == chained(transcript(MESSAGES, "two").snapshot())


# -- segments and drafts ----------------------------------------------------------------------------------------------


def test_a_segment_names_its_entries_and_its_cost() -> None:
    (round_,) = rounds(call("a"), result("a", "x" * 400))
    shown = [RenderedMessage(round_.entries[0].message, 7, 1), RenderedMessage(round_.entries[1].message, 5, 2)]
    segment = segment_of(round_, shown)
    assert (segment.first, segment.last, segment.mark, segment.turn) == (1, 2, "m1", "a0")
    assert (segment.tokens, segment.original_tokens, segment.state, segment.rule) == (12, round_.tokens, "kept", "")
    assert segment_of(round_, shown, ["an id was renamed"]).rule == "corrected"


def test_showing_a_piece_differently_changes_how_not_what() -> None:
    segment = segments(call("a"), result("a", "x" * 400))[0]
    shorter = segment.rendered_as(segment.shown[:1], "clipped", "rule")
    assert (shorter.first, shorter.last, shorter.original_tokens, shorter.round) == (
        1,
        2,
        segment.original_tokens,
        segment.round,
    )
    assert (shorter.tokens, shorter.state, shorter.rule) == (segment.shown[0].tokens, "clipped", "rule")
    assert segment.state == "kept"


def test_a_draft_adds_up() -> None:
    made = draft(*MESSAGES, fixed=10)
    assert made.tokens == 10 + sum(segment.tokens for segment in made.segments)
    assert made.messages == list(MESSAGES)
    assert made.with_segments(made.segments[1:]).fixed == 10
    assert made.with_segments([]).tokens == 10
    assert [segment.is_human for segment in made.segments] == [True, False, False, False]


def test_a_checkpoint_never_changes() -> None:
    made = draft(*MESSAGES)
    checkpoint = Checkpoint(6, 6, b"d", made.segments, made.tokens, 6, 1_000)
    for field in dataclasses.fields(checkpoint):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(checkpoint, field.name, None)
    assert checkpoint.mark == "m6"
    assert [shown.message for shown in checkpoint.shown] == list(MESSAGES)


async def test_strategies_work_on_a_draft_without_touching_it_or_its_messages() -> None:
    made = draft(*MESSAGES)
    before = copy.deepcopy(made.messages)
    pieces_before = made.segments
    done = await FoldRounds().apply(made, Goal(target=1, budget=10_000))
    assert done.tokens < made.tokens
    assert made.segments is pieces_before
    assert made.messages == before
    assert isinstance(done, Draft)
    chapter = next(segment for segment in done.segments if segment.chapter)
    assert (chapter.round, chapter.state, chapter.is_human) == (None, "folded", False)


def test_reading_the_names_of_an_entry_changes_neither_it_nor_what_is_saved() -> None:
    entry = DigestEntry(1, 1, "u1", (Fact("m1 read src/a.py", "3 lines", ("src/b.py",)),), 3, 9)
    other = dataclasses.replace(entry)
    saved = [dump_entry(entry)]
    assert entry.names == ("src/a.py", "src/b.py")
    assert (entry, hash(entry), repr(entry)) == (other, hash(other), repr(other))
    assert [dump_entry(entry), dump_entry(copy.deepcopy(entry))] == saved * 2
    assert entry.with_facts((Fact("m1 read src/c.py"),), len).names == ("src/c.py",)


def dump_entry(entry: DigestEntry) -> bytes:
    chapter = Chapter((entry,), 9)
    folded = dataclasses.replace(segments(user())[0], round=None, chapter=chapter)
    return dump(
        SessionState("counter", "kind", views=(view_state(100, 64, Checkpoint(1, 1, b"", (folded,), 3, 1, 100), None),))
    )
