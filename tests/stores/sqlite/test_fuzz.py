"""Thousands of damaged databases: `sqlite_damage` says what must be true. A few in every run, more in a soak.

The soak prints the outcomes: `make soak ARGS="tests/stores/sqlite/test_fuzz.py -s"`.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stores.sqlite.damage import build, damage, try_out

RUN, SOAK = 30, 3_000  # files
FOUND = [1392, 1963]  # seeds that once broke a promise


class Outcomes(NamedTuple):
    """Outcomes of damaged files.

    Attributes:
        counts: Number of files, by kind of damage and outcome; of copies, by what became of a repair and of an erasure.
        broken: Broken promises, with the seed of the file.
    """

    counts: Counter[tuple[str, str]]
    broken: list[str]


@pytest.fixture(autouse=True)
def _quiet() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


async def _try_all(folder: Path, seeds: Iterable[int]) -> Outcomes:
    """Return the outcomes of damaged files, one for each seed. A VACUUM has rewritten every other file."""
    made: list[tuple[bytes, dict[str, dict[int, object]]]] = []
    for erased in (False, True):
        path = folder / f"erased-{erased}.db"
        sessions = await build(path, erased=erased)
        made.append((path.read_bytes(), sessions))
    work = folder / "work"
    work.mkdir()
    outcomes = Outcomes(Counter(), [])
    for seed in seeds:
        data, sessions = made[seed % 2]
        kind, damaged = damage(data, random.Random(seed))
        try:
            used, repaired, erased = await try_out(work / "sessions.db", damaged, sessions)
        except Exception as problem:  # noqa: BLE001 - which ones come is the question
            used = "differs" if isinstance(problem, AssertionError) else "foreign"
            outcomes.broken.append(f"seed {seed}, {kind}: {type(problem).__name__}: {problem}")
        else:
            outcomes.counts.update([("looking for damage", repaired), ("erasing messages", erased)])
        outcomes.counts[kind, used] += 1
    return outcomes


async def test_a_damaged_database_is_reported_and_repaired_and_nothing_in_it_is_altered(tmp_path: Path) -> None:
    outcomes = await _try_all(tmp_path, [*range(RUN), *FOUND])
    assert outcomes.broken == []
    assert {outcome for _, outcome in outcomes.counts} >= {"sound", "refused"}


@pytest.mark.soak
async def test_thousands_of_damaged_databases(tmp_path: Path) -> None:
    outcomes = await _try_all(tmp_path, range(SOAK))
    sys.stdout.write("".join(f"{kind}: {used} {count:,}\n" for (kind, used), count in sorted(outcomes.counts.items())))
    assert outcomes.broken == []
