"""Tests of this folder run on every backend; those marked `stores` on the ones it names, but in a soak.

With a model that writes the chapters they run on SQLite, in a soak on every backend.
"""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.authors import AUTHORS, Author, managers_of
from tests.places import ALL, Place, parameters, wanted


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test that takes a place and names none itself, once in each."""
    named = any("place" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    takes_place = "place" in metafunc.fixturenames and not named
    if ALL:
        metafunc.parametrize("author", AUTHORS, indirect=True)
        if takes_place:
            metafunc.parametrize("place", parameters(*wanted(metafunc)), indirect=True)
    elif takes_place:
        metafunc.parametrize(("place", "author"), list(_cases(metafunc)), indirect=True)


def _cases(metafunc: pytest.Metafunc) -> Generator[Any]:
    """The stores that a test wants, and SQLite with a model; memory, or none, if its own mark names no SQLite."""
    for case in parameters(*wanted(metafunc)):
        yield pytest.param(*case.values, "digest", id=case.values[0], marks=case.marks)
    own = next((mark.args for mark in metafunc.definition.own_markers if mark.name == "stores"), ("sqlite",))
    store = next((name for name in ("sqlite", "memory") if name in own), None)
    if store is not None:
        yield pytest.param(store, "summary", id="summary", marks=pytest.mark.kernel)


@pytest.fixture(autouse=True)
def author(request: pytest.FixtureRequest) -> Generator[Author]:
    yield from managers_of(request)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)
