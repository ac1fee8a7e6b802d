"""The endless coding session."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_testing import check_request, coding_session

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
