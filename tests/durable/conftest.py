"""Tests of this folder run on every backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import Place, parameters


@pytest.fixture(params=parameters())
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where histories are kept."""
    return Place(request.param, tmp_path)
