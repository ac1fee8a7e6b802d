"""Writers of files are killed, or their machine loses power, at random moments: nothing acknowledged is lost, every
session opens, and the next append is clean.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.stores import kills
from tests.stores.jsonl.files import NAME, fast_folder
from tests.stores.kills import Tamper, reported, survive, survived
from tests.stores.power_cuts import record

CUTS = 200


def tearing(root: Path) -> Tamper:
    """Leave what a crashed file system leaves. A mirror ends at any byte, as if nothing was synced, or in garbage; the
    log of a database is filled with noise after the committed part.
    """

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


DATABASE, FILES = "sqlite:{}/kills.db", "jsonl:{}"
JOURNAL = "?journal=truncate"


def soak(name: str, url: str, count: int, how: str = "", **options: Any) -> Any:
    return pytest.param(url, count, how, options, id=f"{name}, {count:,} times", marks=pytest.mark.soak)


@pytest.mark.parametrize(
    ("url", "count", "how", "options"),
    [
        pytest.param(DATABASE, 25, "", {"longest": 0.06}, id="a database"),
        pytest.param(DATABASE, 20, "", {"durability": "none", "longest": 0.06}, id="a database that waits for no disk"),
        pytest.param(DATABASE, 20, "torn", {"longest": 0.06}, id="a database whose log is torn"),
        pytest.param(DATABASE + JOURNAL, 20, "", {"longest": 0.06}, id="a database with a journal"),
        pytest.param(FILES, 50, "", {"longest": 0.06}, id="files"),
        pytest.param(FILES, 30, "torn", {"longest": 0.06}, id="files whose last bytes are torn"),
        pytest.param(FILES, 20, "on a disk", {}, id="files on a disk, where most are met by the kill during an fsync"),
        pytest.param(FILES + JOURNAL, 20, "", {"longest": 0.06}, id="files with a journal"),
        soak("a database", DATABASE, 2_000),
        soak("files", FILES, 750),
        soak("torn files", FILES, 750, "torn"),
        soak("torn files on a disk", FILES, 250, "torn on a disk", longest=0.1),
        soak("flushed files", FILES, 250, durability="flush"),
    ],
)
async def test_nothing_acknowledged_is_lost_whenever_a_writer_is_killed(
    url: str, count: int, how: str, options: dict[str, Any], disk: Path
) -> None:
    with fast_folder() as fast:
        root = disk if "disk" in how else fast
        tamper = tearing(root) if "torn" in how else None
        seed = count if count <= 50 else random.randrange(2**32)
        done = await survive(url.format(root), count, seed=seed, tamper=tamper, **options)
    assert done > (count if url == FILES else 0) or "disk" in how


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
        await survived(f"sqlite:{left}/cut.db", "s", reported(said))
        shutil.rmtree(left)
