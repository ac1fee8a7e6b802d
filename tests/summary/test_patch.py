"""The patch: reading what a model answers, leniently, item by item."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from amplifier_context_summary.patch import MAX_CHARS, MAX_ITEMS, Patch


def test_an_item_that_makes_no_sense_is_left_out_and_the_others_stay() -> None:
    patch = Patch.model_validate({"facts": [{"text": "a"}, 5, {"text": ""}, {"nope": 1}, "b"], "rules": {"quote": "c"}})
    assert [fact.text for fact in patch.facts] == ["a", "b"]
    assert [rule.quote for rule in patch.rules] == ["c"]


@pytest.mark.parametrize(
    ("given", "read"),
    [("m3", ("m3",)), (3, ("m3",)), (["m3", "[m7]", 7, None, True], ("m3", "m7")), (None, ()), ("none", ())],
)
def test_marks_are_read_in_every_spelling(given: object, read: tuple[str, ...]) -> None:
    [fact] = Patch.model_validate({"facts": [{"text": "a", "mark": given}]}).facts
    assert fact.marks == read


def test_a_patch_is_bounded_whatever_a_model_writes() -> None:
    patch = Patch.model_validate({"facts": ["word " * 1_000] * 500, "hints": ["x" * 500] * 3, "next": "go " * 900})
    assert len(patch.facts) == MAX_ITEMS
    assert len(patch.facts[0].text) <= MAX_CHARS + 2
    assert all(len(hint) <= 80 for hint in patch.hints)
    assert len(patch.next) <= MAX_CHARS + 2


@pytest.mark.parametrize("given", [{}, {"unknown": [1]}, {"goal": 7, "facts": None, "hints": 5, "next": []}])
def test_a_patch_that_says_nothing_is_empty(given: dict[str, object]) -> None:
    assert Patch.model_validate(given).is_empty


@pytest.mark.parametrize("given", [[], "text", 5, None])
def test_an_answer_that_is_no_object_is_no_patch(given: object) -> None:
    with pytest.raises(ValidationError):
        Patch.model_validate(given)
