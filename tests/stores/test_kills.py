"""Writers of files are killed, or their machine loses power, at random moments: nothing acknowledged is lost, every
session opens, and the next append is clean.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.stores import kills
from tests.stores.jsonl.files import NAME, fast_folder
from tests.stores.kills import Tamper, survive, survived
from tests.stores.power_cuts import record

CUTS = 200


def tearing(root: Path) -> Tamper:
    """Leave what a crashed file system leaves: a mirror that ends at any byte or in garbage; noise after a log."""

    def tear(session_id: str, chance: random.Random) -> None:
        log, main = root / "kills.db-wal", root / session_id / NAME
        if log.exists():
            with log.open("ab") as file:
                file.write(chance.randbytes(chance.randrange(1, 9_000)))
        elif main.exists() and chance.random() < 0.6:
            os.truncate(main, chance.randint(0, main.stat().st_size))
        elif main.exists():
            garbage = (b"\0" * 4096, chance.randbytes(50), b'{"role": "user", "content": "\xe8', b"\0\n\0\n{}\n[]")
            with main.open("ab") as file:
                file.write(chance.choice(garbage))

    return tear


DATABASE, FILES, JOURNAL = "sqlite:{}/kills.db", "jsonl:{}", "?journal=truncate"


@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("url", "count", "how", "durability"),
    [
        (DATABASE, 15, "", "fsync"),
        (DATABASE, 12, "", "none"),
        (DATABASE, 12, "torn", "fsync"),
        (DATABASE + JOURNAL, 12, "", "fsync"),
        (FILES, 30, "", "fsync"),
        (FILES, 18, "torn", "flush"),
        (FILES, 12, "on a disk", "fsync"),  # where most are met by the kill during an fsync
        (FILES + JOURNAL, 12, "", "fsync"),
    ],
)
async def test_nothing_acknowledged_is_lost_whenever_a_writer_is_killed(
    url: str, count: int, how: str, durability: str, times: int, disk: Path
) -> None:
    with fast_folder() as fast:
        root = disk if how == "on a disk" else fast
        tamper = tearing(root) if how == "torn" else None
        seed = count if times == 1 else random.randrange(2**32)
        done = await survive(
            url.format(root), count * times, seed=seed, tamper=tamper, longest=0.06, durability=durability
        )
    assert done > (count if url == FILES else 0) or how == "on a disk"


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: it records the system calls")
async def test_nothing_acknowledged_is_lost_in_two_hundred_power_cuts(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    written = tmp_path / "written"
    written.mkdir()
    (trace,) = record([kills.__file__, f"sqlite:{written}/cut.db", str(seed)], written)
    chance = random.Random(seed)
    for number in range(CUTS):
        left = tmp_path / f"left {number}"
        left.mkdir()
        said = trace.cut(chance.randrange(len(trace.calls) + 1), left, chance)
        await survived(f"sqlite:{left}/cut.db", seed, kills.ALONE, [], said, kills.STEPS - 1)
        shutil.rmtree(left)
