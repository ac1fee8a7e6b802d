"""Forms of words: which words are equal in a search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.transcript.word_forms import begins, stem


@pytest.mark.parametrize(
    "words",
    [
        "cancel cancels cancelled canceled cancelling cancellation",
        "story stories",
        "movie movies",
        "create created creating creation",
        "recommend recommended recommends recommendation",
        "graduate graduated graduation graduating",
        "install installed installing installs",
        "box boxes",
        "quick quickly",
        "string strings",
        "speed speeds",
        "class classes",
    ],
)
def test_forms_of_a_word_have_one_stem(words: str) -> None:
    assert len(set(map(stem, words.split()))) == 1


@pytest.mark.parametrize(
    "words", ["need needle", "string stress", "speed spend", "nation native", "this the", "ring red"]
)
def test_other_words_have_other_stems(words: str) -> None:
    one, other = words.split()
    assert stem(one) != stem(other)


def test_short_words_begin_with_themselves_unless_their_forms_change_the_end() -> None:
    """What `try` and `tried` share is in most texts; so is what is left of other short words."""
    short = ("day", "key", "way", "buy", "py", "api", "gui", "ski")
    assert [begins(stem(word)) for word in short] == list(short)
    assert begins(stem("tried")) == begins(stem("try")) == "tr"


@given(st.text(alphabet="abdegilnorsty", min_size=1, max_size=12))
def test_each_word_begins_with_what_its_stem_says(word: str) -> None:
    assert stem(word)
    assert word.startswith(begins(stem(word)))
