"""The endless coding session."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from amplifier_context_testing import check_request, coding_session
from amplifier_context_testing.checks.message_shapes import calls_of

MANY = 20_000


@pytest.fixture(scope="module")
def session() -> list[dict[str, Any]]:
    return list(coding_session(MANY, seed=3))


@pytest.mark.parametrize("messages", [0, 1, 2, 3, 10, 57, 1000])
@pytest.mark.parametrize("shape", ["openai", "kernel"])
def test_it_is_exactly_as_long_as_asked_for_and_valid(messages: int, shape: Any) -> None:
    made = list(coding_session(messages, seed=1, shape=shape))
    assert len(made) == messages
    for message in made:
        if message["role"] == "assistant" and message["content"] is None:
            message["content"] = ""
    assert check_request(made) == (["the request is empty"] if not messages else [])


def test_a_seed_makes_a_session_and_another_seed_another() -> None:
    assert list(coding_session(300, seed=5)) == list(coding_session(300, seed=5))
    assert list(coding_session(300, seed=5)) != list(coding_session(300, seed=6))


def test_a_shorter_session_is_the_beginning_of_a_longer_one() -> None:
    assert list(coding_session(2000))[:90] == list(islice(coding_session(10**9), 90))


def test_a_message_is_about_two_kilobytes_on_average(session: list[dict[str, Any]]) -> None:
    size = sum(len(json.dumps(message, ensure_ascii=False)) for message in session) / MANY
    assert 1_700 < size < 2_600


def test_most_outputs_are_short_and_a_few_are_very_long(session: list[dict[str, Any]]) -> None:
    sizes = sorted(len(message["content"]) for message in session if message["role"] == "tool")
    assert sizes[len(sizes) // 2] < 1_200
    assert sizes[-1] > 50_000


def test_files_are_read_again_and_edited_in_between(session: list[dict[str, Any]]) -> None:
    calls = [call for message in session[:2000] for call in calls_of(message)]
    reads = [str((call.input() or {}).get("file_path")) for call in calls if call.name == "Read"]
    edits = {str((call.input() or {}).get("file_path")) for call in calls if call.name == "Edit"}
    assert len(set(reads)) < len(reads) / 3
    assert edits & set(reads)


def test_names_of_the_beginning_come_back_at_the_end(session: list[dict[str, Any]]) -> None:
    first = {str((call.input() or {}).get("file_path")) for message in session[:60] for call in calls_of(message)}
    last = {str((call.input() or {}).get("file_path")) for message in session[-600:] for call in calls_of(message)}
    assert (first & last) - {"None"}


def test_call_ids_are_unique(session: list[dict[str, Any]]) -> None:
    ids = [call.id for message in session for call in calls_of(message)]
    assert len(set(ids)) == len(ids)
