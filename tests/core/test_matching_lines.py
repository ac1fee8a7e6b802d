"""Matching lines: which lines of a text a search shows."""

from __future__ import annotations

import pytest

from amplifier_context_core.transcript.matching_lines import excerpts, words_of


@pytest.mark.parametrize(
    ("query", "line", "other"),
    [
        ("try", "she will try it again", "strict metrics in a matrix"),
        ("try", "she tried it", "a string of trivia"),
        ("tried", "we try it", "a string of trivia"),
        ("way", "the long way home", "we waited for the mail"),
        ("py", "run setup.py", "the api spins"),
        ("key", "one of the keys", "keine"),
        ("keys", "the key", "a monk"),
        ("api", "the api", "an apple"),
        ("cafe", "the café is closed", "a calf"),
        ("我最喜欢的城市是哪里", "我喜欢的城市是厦门。", "你好"),
        ("=>", "a => b", "a = b"),
    ],
)
def test_the_line_with_a_form_of_the_word_is_better_than_one_with_some_of_its_letters(
    query: str, line: str, other: str
) -> None:
    assert excerpts([other, line, other], words_of(query), 1) == [(2, line)]
