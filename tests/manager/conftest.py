"""What hosts rely on holds whether history is kept in memory or in files: the tests of some files run on both.

What differs between stores is tested by their contract and by sessions of the kernel. `make check` runs the tests of
this folder in memory only, `make soak` on every store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.manager import support
from tests.places import ALL, ONLY_MEMORY, parameters

ON_FILES_TOO = ("test_host_behaviour", "test_cancellation", "test_turns", "test_control", "test_isolation")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some files in memory and on files; with `AMPLIFIER_TEST_STORES=all` all of them everywhere."""
    if ALL:
        metafunc.parametrize("backend", parameters(), indirect=True)
    elif not ONLY_MEMORY and metafunc.module.__name__.rpartition(".")[2] in ON_FILES_TOO:
        metafunc.parametrize("backend", parameters("memory", "jsonl"), indirect=True)


@pytest.fixture(autouse=True)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str]:
    """Where the histories of managers made by `new_manager` are kept."""
    name: str = getattr(request, "param", "memory")
    support.begin(name, tmp_path)
    yield name
    await support.end()
