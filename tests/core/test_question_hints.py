"""What a question says of its answer: whose it is, and of which day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.transcript.question_hints import Date, asked_dates, asked_role, asked_speaker, speaker_label


@pytest.mark.parametrize(
    ("question", "role"),
    [
        ("What degree did I graduate with?", "user"),
        ("Can you remind me what you recommended for the trip?", "assistant"),
        ("Which two films did you suggest to me on May 3?", "assistant"),
        ("Where did Nora travel to?", None),
        ("", None),
    ],
)
def test_a_question_says_whose_message_it_asks_for(question: str, role: str | None) -> None:
    assert asked_role(question) == role


@pytest.mark.parametrize(
    ("question", "dates"),
    [
        ("on May 3", [("", "05", "03")]),
        ("on the 13th of October, 2023", [("2023", "10", "13")]),
        ("in August 2023", [("2023", "08", "")]),
        ("since 2026-05-07", [("2026", "05", "07")]),
        ("may I ask 3 things", []),
        ("on \u017fep 3", []),  # a letter that is an `s` where case is ignored
        ("\u0662\u0660\u0662\u0666-\u0660\u0665", []),  # digits, but not those of a time
        ("2026-05-07\u4f60\u8bf4\u4e86\u4ec0\u4e48", [("2026", "05", "07")]),
    ],
)
def test_a_question_names_days_and_months(question: str, dates: list[tuple[str, str, str]]) -> None:
    assert [tuple(date) for date in asked_dates(question)] == dates


def test_a_date_has_the_times_in_it() -> None:
    assert Date("", "05", "03").has("2026-05-03T10:00:00.000+00:00")
    assert Date("2023", "08", "").has("2023-08-30")
    assert not Date("", "05", "03").has("2026-05-04T10:00:00.000+00:00")
    assert not Date("", "05", "03").has("")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nora: yes", "nora"),
        ("**nora**: yes", "nora"),
        ('nora said, "yes"', "nora"),
        ("[1:56 pm on 8 may, 2023] nora: yes", "nora"),
        ("yes nora", ""),
        ("https://x", "https"),
    ],
)
def test_a_text_begins_with_the_name_of_its_speaker(text: str, name: str) -> None:
    assert speaker_label(text) == name


def test_the_first_name_of_a_question_is_that_of_the_speaker() -> None:
    labels = {"user": ["felix", "nora", ""]}
    assert asked_speaker(["what", "did", "nora", "tell", "felix"], "", (), labels) == "nora"
    assert asked_speaker(["what"], "", (), {"user": ["nora"]}) == ""


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert asked_role(text) in (None, "user", "assistant")
    assert all(date.month.isdigit() for date in asked_dates(text))
    assert len(speaker_label(text)) <= len(text)
