"""Views and reports are byte for byte what was recorded; `make guard` records them again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.guard import RECORDED, SUITE, fingerprints, made_sessions, recorded_sessions

KNOWN: dict[str, list[str]] = json.loads(RECORDED.read_text())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(made_sessions()))
async def test_the_views_of_a_made_session_are_as_recorded(name: str) -> None:
    assert await fingerprints({name: made_sessions()[name]}) == {name: KNOWN[name]}


@pytest.mark.data
async def test_the_views_of_recorded_sessions_are_as_recorded(recorded: Path) -> None:
    sessions = recorded_sessions(SUITE)
    assert len(sessions) == len(SUITE)
    assert await fingerprints(sessions) == {name: KNOWN[name] for name in sessions}


@pytest.mark.soak
@pytest.mark.data
async def test_the_views_of_all_recorded_sessions_are_as_recorded(recorded: Path) -> None:
    sessions = recorded_sessions()
    assert await fingerprints(sessions) == {name: KNOWN[name] for name in sessions}
