"""Where the sessions of these tests are kept."""

from pathlib import Path

import pytest

from tests.places import BACKENDS, Place, parameters


@pytest.fixture(params=parameters("sqlite", soak=BACKENDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)
