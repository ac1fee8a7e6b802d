"""Writers of a SQLite database are killed at random moments; nothing acknowledged is missing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.stores.kills import Struck, survive


async def test_nothing_acknowledged_is_lost_whenever_a_writer_is_killed(tmp_path: Path) -> None:
    assert await survive(f"sqlite:{tmp_path}/kills.db", 25, seed=1, longest=0.06)


async def test_a_writer_killed_before_the_disk_was_waited_for_loses_nothing_either(tmp_path: Path) -> None:
    """The operating system has everything: only a power failure could take it."""
    assert await survive(f"sqlite:{tmp_path}/kills.db", 20, seed=2, durability="none", longest=0.06)


async def test_a_torn_write_is_not_read(tmp_path: Path) -> None:
    """After the committed part, the log is filled with noise, as a torn write leaves it."""

    def tear(session_id: str, struck: Struck, chance: random.Random) -> None:
        log = tmp_path / "kills.db-wal"
        with log.open("ab") as file:
            file.write(chance.randbytes(chance.randrange(1, 9_000)))

    assert await survive(f"sqlite:{tmp_path}/kills.db", 20, seed=3, tamper=tear, longest=0.06)


@pytest.mark.soak
async def test_nothing_acknowledged_is_lost_in_two_thousand_kills(tmp_path: Path) -> None:
    await survive(f"sqlite:{tmp_path}/kills.db", 2_000, seed=random.randrange(2**32))
