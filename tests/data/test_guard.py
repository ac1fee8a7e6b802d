"""Views and reports are byte for byte what was recorded; `make guard` records them again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplifier_context_core import exact_token_counter
from tests.data.guard import RECORDED, SUITE, fingerprints, made_sessions, recorded_sessions
from tests.data.scenarios import SCENARIOS, STORED
from tests.places import Place, parameters

KNOWN: dict[str, list[str]] = json.loads(RECORDED.read_text())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(made_sessions()))
async def test_the_views_of_a_made_session_are_as_recorded(name: str) -> None:
    assert await fingerprints({name: made_sessions()[name]}) == {name: KNOWN[name]}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_views_of_a_scenario_are_as_recorded(name: str) -> None:
    if name == "exact" and not getattr(exact_token_counter(), "exact", False):
        pytest.skip("no vocabulary is installed")
    assert [await SCENARIOS[name]()] == KNOWN[f"scenario/{name}"]


@pytest.mark.parametrize("backend", parameters())
@pytest.mark.parametrize("name", STORED)
async def test_the_views_of_a_stored_scenario_are_as_recorded_in_each_store(
    name: str, backend: str, tmp_path: Path
) -> None:
    place = Place(backend, tmp_path)
    assert [await STORED[name](place.store, place.session_id("guarded"))] == KNOWN[f"scenario/{name}"]


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
