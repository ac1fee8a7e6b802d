"""Checkpoints: frozen, and known by the content they cover."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable

import pytest

from amplifier_context_core.checkpoint import Checkpoint, Draft, chain, content_hash, piece_of
from amplifier_context_core.render import Rendered
from amplifier_context_core.strategies import FoldRounds, Goal
from amplifier_context_core.transcript import Entry

from .support import block, call, draft, pieces, result, rounds, says, transcript, user

MESSAGES = (user("Fix src/a.py."), call("a"), result("a", "x" * 900), call("b"), result("b", "y" * 900), says("Done."))


# -- identity by content ----------------------------------------------------------------------------------------------


def test_the_same_content_has_the_same_hash_whenever_it_was_said() -> None:
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
        before = chain(before, entry.seq, content_hash(entry.message))
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


# -- pieces and drafts ------------------------------------------------------------------------------------------------


def test_a_piece_knows_what_it_stands_for_and_what_it_costs() -> None:
    (held,) = rounds(call("a"), result("a", "x" * 400))
    shown = [Rendered(held.entries[0].message, 7, 1), Rendered(held.entries[1].message, 5, 2)]
    piece = piece_of(held, shown)
    assert (piece.first, piece.last, piece.mark, piece.turn) == (1, 2, "m1", "a0")
    assert (piece.tokens, piece.before, piece.state, piece.rule) == (12, held.tokens, "kept", "")
    assert piece_of(held, shown, ["something was mended"]).rule == "mended"


def test_showing_a_piece_differently_changes_how_not_what() -> None:
    piece = pieces(call("a"), result("a", "x" * 400))[0]
    shorter = piece.showing(piece.shown[:1], "clipped", "rule")
    assert (shorter.first, shorter.last, shorter.before, shorter.round) == (1, 2, piece.before, piece.round)
    assert (shorter.tokens, shorter.state, shorter.rule) == (piece.shown[0].tokens, "clipped", "rule")
    assert piece.state == "kept"


def test_a_draft_adds_up() -> None:
    made = draft(*MESSAGES, fixed=10)
    assert made.tokens == 10 + sum(piece.tokens for piece in made.pieces)
    assert made.messages == list(MESSAGES)
    assert made.with_pieces(made.pieces[1:]).fixed == 10
    assert made.with_pieces([]).tokens == 10
    assert [piece.is_human for piece in made.pieces] == [True, False, False, False]


def test_a_checkpoint_never_changes() -> None:
    made = draft(*MESSAGES)
    checkpoint = Checkpoint(6, 6, b"d", made.pieces, made.tokens, 6, 1_000)
    for field in dataclasses.fields(checkpoint):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(checkpoint, field.name, None)
    assert checkpoint.mark == "m6"
    assert [shown.message for shown in checkpoint.shown] == list(MESSAGES)


async def test_strategies_work_on_a_draft_without_touching_it_or_its_messages() -> None:
    made = draft(*MESSAGES)
    before = copy.deepcopy(made.messages)
    pieces_before = made.pieces
    done = await FoldRounds().apply(made, Goal(target=1, budget=10_000))
    assert done.tokens < made.tokens
    assert made.pieces is pieces_before
    assert made.messages == before
    assert isinstance(done, Draft)
    chapter = next(piece for piece in done.pieces if piece.chapter)
    assert (chapter.round, chapter.state, chapter.is_human) == (None, "folded", False)
