"""Writers killed at random moments: nothing acknowledged is lost, every session opens, the next append is clean."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.stores.jsonl.files import NAME
from tests.stores.kills import Struck, Tamper, survive


def tearing(root: Path) -> Tamper:
    """Damage the mirror, as if nothing was synced: it ends at any byte, or in what a crashed file system left."""

    def tear(session_id: str, struck: Struck, chance: random.Random) -> None:
        main = root / session_id / NAME
        if not main.exists():
            return
        if chance.random() < 0.6:
            os.truncate(main, chance.randint(0, main.stat().st_size))
        else:
            garbage = (b"\0" * 4096, chance.randbytes(50), b'{"role": "user", "content": "\xe8', b"\0\n\0\n{}\n[]")
            with main.open("ab") as file:
                file.write(chance.choice(garbage))

    return tear


async def test_killed_writers_lose_nothing(root: Path) -> None:
    assert await survive(f"jsonl:{root}", 50, seed=1) > 50


async def test_killed_writers_lose_nothing_when_their_last_bytes_are_torn(root: Path) -> None:
    assert await survive(f"jsonl:{root}", 30, seed=2, tamper=tearing(root)) > 30


async def test_killed_writers_lose_nothing_on_a_real_disk(disk: Path) -> None:
    """There the kill meets most of them during an fsync."""
    await survive(f"jsonl:{disk}", 20, seed=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
async def test_four_hundred_killed_writers_lose_nothing(root: Path, disk: Path, seed: int) -> None:
    await survive(f"jsonl:{root}", 150, seed=100 + seed)
    await survive(f"jsonl:{root}", 150, seed=200 + seed, tamper=tearing(root))
    await survive(f"jsonl:{disk}", 50, seed=300 + seed, tamper=tearing(disk), longest=0.1)
    await survive(f"jsonl:{root}/flushed", 50, seed=400 + seed, durability="flush")
