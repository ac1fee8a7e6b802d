"""The tests of this folder run in files and on a server, in a soak on every persistent backend."""

from pathlib import Path

import pytest

from amplifier_context_recall.notes import Notes
from tests.places import KEPT, Place, parameters


@pytest.fixture(params=parameters("jsonl", "postgresql", soak=KEPT))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


@pytest.fixture
def notes(place: Place) -> Notes:
    return Notes(place.store, place.session_id("notes.p"))
