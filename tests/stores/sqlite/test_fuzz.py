"""Thousands of damaged databases: `sqlite_damage` says what must be true. A few in every run, more in a soak.

The soak prints a table of the outcomes: `make soak ARGS="tests/stores/sqlite/test_fuzz.py -s"`.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.stores.sqlite.damage import KINDS, build, damage, try_out

RUN, SOAK = 30, 3_000  # files
FOUND = [1392, 1963]  # seeds that once broke a promise
COLUMNS = {
    "sound": "opened, all equal",
    "reported": "repaired, reported",
    "refused": "refused by our error",
    "differs": "differs, unreported",
    "foreign": "foreign exception",
}


@dataclass(slots=True)
class Outcomes:
    """Outcomes of damaged files.

    Attributes:
        used: Number of files, by kind of damage and outcome, a key of COLUMNS.
        further: Outcomes of repairing copies of them, and of erasing messages from copies.
        broken: Broken promises, with the seed of the file.
    """

    used: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    further: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        lines = ["".join([f"{'damage':24}", *(f"{title:>21}" for title in COLUMNS.values())])]
        for kind in [*dict.fromkeys(KINDS), "all"]:
            counts = [sum(self.used[one, end] for one in set(KINDS) if kind in (one, "all")) for end in COLUMNS]
            lines.append("".join([f"{kind:24}", *(f"{count:>21,}" for count in counts)]))
        return "\n".join([*lines, *(f"{what}: {count:,}" for what, count in sorted(self.further.items()))])


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
    outcomes = Outcomes()
    for seed in seeds:
        data, sessions = made[seed % 2]
        kind, damaged = damage(data, random.Random(seed))
        try:
            used, repaired, erased = await try_out(work / "sessions.db", damaged, sessions)
        except Exception as problem:  # noqa: BLE001 - which ones come is the question
            used = "differs" if isinstance(problem, AssertionError) else "foreign"
            outcomes.broken.append(f"seed {seed}, {kind}: {type(problem).__name__}: {problem}")
        else:
            outcomes.further.update([f"looking for damage: {repaired}", f"erasing messages: {erased}"])
        outcomes.used[kind, used] += 1
    return outcomes


async def test_a_damaged_database_is_reported_and_repaired_and_nothing_in_it_is_altered(tmp_path: Path) -> None:
    outcomes = await _try_all(tmp_path, [*range(RUN), *FOUND])
    assert outcomes.broken == []
    assert {used for _, used in outcomes.used} >= {"sound", "refused"}


@pytest.mark.soak
async def test_thousands_of_damaged_databases(tmp_path: Path) -> None:
    outcomes = await _try_all(tmp_path, range(SOAK))
    sys.stdout.write(f"\n{outcomes}\n")
    assert outcomes.broken == []
