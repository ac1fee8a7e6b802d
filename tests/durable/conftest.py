"""Tests of this folder run on every backend; those marked `stores` on the ones it names, but in a soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import Place, parameters, wanted


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test that takes a place and names none itself, once in each."""
    named = any("place" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "place" in metafunc.fixturenames and not named:
        metafunc.parametrize("place", parameters(*wanted(metafunc)), indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where histories are kept."""
    return Place(request.param, tmp_path)
