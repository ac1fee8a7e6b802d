"""Rarity: a text of words that others do not hold ranks above one of words that all hold."""

# ruff: noqa: RUF001 - Chinese punctuation
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.compaction.rarity import rarities

COURTESIES = ["Thank you for your advice.", "Thank you for all your help.", "Okay, thank you for your good advice."]
CHINESE = ["谢谢你的建议，朋友。", "好的，谢谢你的建议。", "非常感谢，谢谢你的建议。"]


@pytest.mark.parametrize(
    ("frequent", "fact"),
    [
        (COURTESIES, "My sister lives in Lisbon."),
        (COURTESIES, "Thank you for 38 square feet."),
        (CHINESE, "我申请了一份编辑的工作。"),
    ],
)
def test_what_is_written_once_ranks_above_what_is_written_often(frequent: list[str], fact: str) -> None:
    *often, once = rarities([*frequent, fact])
    assert once > max(often)


def test_many_words_for_little_rank_below_few() -> None:
    padded = "My sister, of whom I told you, as you may remember, or may not remember, lives in Lisbon."
    *_, dense, loose = rarities([*COURTESIES, "I told you, as you may remember.", "My sister lives in Lisbon.", padded])
    assert dense > loose


def test_writing_without_spaces_ranks_as_other_writing_does() -> None:
    english = ["I bought a white dress.", "My sister lives in Lisbon.", "Rain is due on Sunday."]
    chinese = ["我买了白色连衣裙。", "我姐姐住在里斯本。", "星期天会下雨。"]
    ranks = rarities(english + chinese)
    assert 0.6 * sum(ranks[:3]) < sum(ranks[3:]) < sum(ranks[:3])


def test_forms_of_a_word_are_one_word() -> None:
    *forms, other = rarities(["A suggestion.", "Two suggestions.", "Suggesting it.", "An elephant."])
    assert other > max(forms)


@given(st.lists(st.text(max_size=60), max_size=12))
def test_every_text_has_a_rank_and_few_have_the_same(texts: list[str]) -> None:
    ranks = rarities(texts)
    assert len(ranks) == len(texts)
    assert all(0 < rank <= 1 for rank in ranks)
    assert len(texts) > 3 or set(ranks) <= {1.0}
