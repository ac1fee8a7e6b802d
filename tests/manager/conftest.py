"""What hosts rely on holds whatever store history is kept in: the tests of these files run on every backend."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.manager import support
from tests.places import parameters

EVERYWHERE = ("test_host_behaviour", "test_cancellation", "test_turns", "test_control", "test_isolation")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`AMPLIFIER_TEST_STORES=all` runs the other files everywhere, too (`make soak`)."""
    everywhere = metafunc.module.__name__.rpartition(".")[2] in EVERYWHERE
    if everywhere or os.environ.get("AMPLIFIER_TEST_STORES") == "all":
        metafunc.parametrize("backend", parameters(), indirect=True)


@pytest.fixture(autouse=True)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str]:
    """Where the histories of managers made by `new_manager` are kept."""
    name: str = getattr(request, "param", "memory")
    support.begin(name, tmp_path)
    yield name
    await support.end()
