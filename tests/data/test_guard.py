"""Views and reports are byte for byte what was recorded; `make guard` records them again."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplifier_context_core import exact_token_counter
from tests.data.guard import RECORDED, SHARES, fingerprint, made_sessions, recorded_sessions
from tests.data.scenarios import SCENARIOS, STORED
from tests.places import ALL, BACKENDS, Place, parameters

KNOWN: dict[str, list[str]] = json.loads(RECORDED.read_text())
FEW = ("memory", "sqlite")  # for forks; the other stores in a soak, and in tests/laws/test_session_laws.py


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(made_sessions()))
async def test_the_views_of_a_made_session_are_as_recorded(name: str) -> None:
    assert [await fingerprint(made_sessions()[name], share, judges=ALL) for share in SHARES] == KNOWN[name]


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_views_of_a_scenario_are_as_recorded(name: str) -> None:
    if name == "exact" and not getattr(exact_token_counter(), "exact", False):
        pytest.skip("no vocabulary is installed")
    assert [await SCENARIOS[name]()] == KNOWN[f"scenario/{name}"]


CASES = [(name, one) for name in STORED for one in parameters(*FEW if name == "forked" else (), soak=BACKENDS)]


@pytest.mark.parametrize(("name", "backend"), [pytest.param(name, *one.values, marks=one.marks) for name, one in CASES])
async def test_the_views_of_a_stored_scenario_are_as_recorded_in_each_store(
    name: str, backend: str, tmp_path: Path
) -> None:
    place = Place(backend, tmp_path)
    assert [await STORED[name](place.store, place.session_id("guarded"))] == KNOWN[f"scenario/{name}"]


def recorded_cases() -> list[tuple[str, int]]:
    """Each recorded session in one window in turn, so that no oddity is missed; in a soak, in every window."""
    cases = [(name, place) for name in recorded_sessions() for place in range(len(SHARES))]
    return cases if ALL else [case for number, case in enumerate(cases) if number % 3 == number // 3 % 3]


@pytest.mark.data
@pytest.mark.parametrize(("name", "place"), recorded_cases() or [("none", 0)])
async def test_the_views_of_a_recorded_session_are_valid_and_as_recorded(recorded: Path, name: str, place: int) -> None:
    """They are real ones with everything that goes wrong in real ones."""
    assert await fingerprint(recorded_sessions()[name], SHARES[place]) == KNOWN[name][place]
