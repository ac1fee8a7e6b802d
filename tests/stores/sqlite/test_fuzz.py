"""Thousands of damaged databases: `tests.stores.sqlite.damage` says what must be true. A few in every run, more in a
soak.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.stores.sqlite.damage import build, damage, try_out

FOUND = [1392, 1963]  # seeds that once broke a promise


@pytest.fixture(autouse=True)
def _quiet() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("count", [30, pytest.param(3_000, marks=pytest.mark.soak)])
async def test_a_damaged_database_is_reported_and_repaired_and_nothing_in_it_is_altered(
    tmp_path: Path, count: int
) -> None:
    """A VACUUM has rewritten every other file."""
    made = [await build(tmp_path / f"erased-{erased}.db", erased=erased) for erased in (False, True)]
    (work := tmp_path / "work").mkdir()
    broken: list[str] = []
    outcomes: set[str] = set()
    for seed in (*range(count), *FOUND):
        data, sessions = made[seed % 2]
        kind, damaged = damage(data, random.Random(seed))
        try:
            outcomes.add(await try_out(work / "sessions.db", damaged, sessions))
        except Exception as problem:  # noqa: BLE001 - which ones come is the question
            broken.append(f"seed {seed}, {kind}: {type(problem).__name__}: {problem}")
    assert broken == []
    assert outcomes >= {"sound", "refused"}
