"""Thousands of damaged databases: `sqlite_damage` says what must hold. A few in every run, more when soaking."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from .sqlite_damage import build, damage, try_out

RUN, SOAK = 60, 3_000  # files


@pytest.fixture(autouse=True)
def _quiet() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


async def _try_all(folder: Path, seeds: range) -> Counter[tuple[str, str, str]]:
    """The outcomes of damaged files, one for each seed; every other file was written by a VACUUM."""
    made: list[tuple[bytes, dict[str, dict[int, object]]]] = []
    for erased in (False, True):
        path = folder / f"erased-{erased}.db"
        sessions = await build(path, erased=erased)
        made.append((path.read_bytes(), sessions))
    work = folder / "work"
    work.mkdir()
    outcomes: Counter[tuple[str, str, str]] = Counter()
    for seed in seeds:
        data, sessions = made[seed % 2]
        kind, damaged = damage(data, random.Random(seed))
        try:
            outcomes[await try_out(work / "sessions.db", damaged, sessions)] += 1
        except BaseException as problem:
            problem.add_note(f"seed {seed}: {kind}")
            raise
    return outcomes


async def test_a_damaged_database_is_reported_and_repaired_and_nothing_in_it_is_altered(tmp_path: Path) -> None:
    outcomes = await _try_all(tmp_path, range(RUN))
    assert len({used for used, _, _ in outcomes}) == 3  # some were sound, some reported, some refused


@pytest.mark.soak
async def test_thousands_of_damaged_databases(tmp_path: Path) -> None:
    assert (await _try_all(tmp_path, range(RUN, SOAK))).total() == SOAK - RUN
