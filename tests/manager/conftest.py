"""What hosts rely on holds whether history is kept in memory or in files, and whether a model writes the chapters.

The tests of some files run with each. What differs between stores is tested by their contract and by sessions of the
kernel. `make check` runs the tests of this folder in memory only and without a model, `make soak` in every combination.
"""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from tests import managers
from tests.authors import AUTHORS, Author, managers_of
from tests.places import ALL, ONLY_MEMORY, parameters

ON_FILES_TOO = ("test_turns", "test_steering")
WITH_A_MODEL_TOO = (*ON_FILES_TOO, "test_measured_views")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some files in memory and on files; with `AMPLIFIER_TEST_STORES=all` all of them everywhere."""
    name = metafunc.module.__name__.rpartition(".")[2]
    if ALL:
        metafunc.parametrize("author", AUTHORS, indirect=True)
        metafunc.parametrize("backend", parameters(), indirect=True)
    elif not ONLY_MEMORY:
        cases = [pytest.param("memory", "digest", id="memory")]
        if name in ON_FILES_TOO:
            cases.append(pytest.param("jsonl", "digest", id="jsonl"))
        if name in WITH_A_MODEL_TOO:
            cases.append(pytest.param("memory", "summary", id="summary", marks=pytest.mark.kernel))
        metafunc.parametrize(("backend", "author"), cases, indirect=True)


@pytest.fixture(autouse=True)
def author(request: pytest.FixtureRequest) -> Generator[Author]:
    """What writes the chapters."""
    yield from managers_of(request)


@pytest.fixture(autouse=True)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str]:
    """Where the histories of managers made by `new_manager` are kept."""
    name: str = getattr(request, "param", "memory")
    managers.begin(name, tmp_path)
    yield name
    await managers.end()
