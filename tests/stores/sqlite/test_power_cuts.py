"""The power of a writer's machine is cut after any system call; nothing acknowledged is missing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.stores import kills
from tests.stores.kills import reported, survived
from tests.stores.power_cuts import record

CUTS = 200


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
