"""Carrying over, repairing and copying are interrupted: nothing acknowledged is lost, every session opens afterwards,
no erased text comes back.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from tests.stores import interrupted
from tests.stores.interrupted import WORK
from tests.stores.jsonl.files import fast_folder
from tests.stores.kills import victims
from tests.stores.power_cuts import record

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: it records the system calls"
)


async def _kill(name: str, folder: Path, kills: int, seed: int) -> int:
    """Kill processes amid some work, check what each left, and return how many had not done it."""
    chance, work, longest, struck = random.Random(seed), WORK[name], 0.03, 0
    begun = folder / "begun"
    begun.mkdir()
    await work.begin(begun)
    expected = await _expected(name, begun, folder)
    with victims("-m", interrupted.__name__) as server:
        for _ in range(kills):
            left = shutil.copytree(begun, folder / "left")
            events = await server.kill_one({"work": name, "folder": str(left)}, chance.random() * longest)
            is_done = {"done": name} in events
            longest *= 0.8 if is_done else 1.1
            struck += not is_done
            await interrupted.check(work, left, events, expected)
            shutil.rmtree(left)
    return struck


async def _cut(name: str, folder: Path, cuts: int, seed: int) -> int:
    """Cut the power amid some work, check what each cut leaves, and return how many came before it was done."""
    chance, work, struck = random.Random(seed), WORK[name], 0
    begun = folder / "begun"
    begun.mkdir()
    await work.begin(begun)
    expected = await _expected(name, begun, folder)
    trace = record(["-m", interrupted.__name__, name, str(begun)], begun)
    for _ in range(cuts):
        left = folder / "left"
        left.mkdir()
        said = trace.cut(trace.moment(chance), left, chance)
        struck += {"done": name} not in said
        await interrupted.check(work, left, said, expected)
        shutil.rmtree(left)
    return struck


async def _expected(name: str, begun: Path, folder: Path) -> list[interrupted.Held]:
    """Return what the sessions hold after the work, without a crash."""
    whole = shutil.copytree(begun, folder / "whole")
    await asyncio.to_thread(interrupted.run_again, WORK[name], whole)
    return await interrupted.held(WORK[name], whole)


@pytest.mark.parametrize("name", WORK)
async def test_a_kill_amid_the_work_loses_nothing(name: str, tmp_path: Path) -> None:
    assert await _kill(name, tmp_path, 8, seed=1)


@needs_strace
@pytest.mark.parametrize("name", WORK)
async def test_a_power_cut_amid_the_work_loses_nothing(name: str) -> None:
    with fast_folder() as folder:
        assert await _cut(name, folder, 10, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("name", WORK)
async def test_three_hundred_kills_amid_the_work_lose_nothing(name: str, tmp_path: Path) -> None:
    assert await _kill(name, tmp_path, 300, seed=random.randrange(2**32))


@needs_strace
@pytest.mark.soak
@pytest.mark.parametrize("name", WORK)
async def test_three_hundred_power_cuts_amid_the_work_lose_nothing(name: str) -> None:
    with fast_folder() as folder:
        assert await _cut(name, folder, 300, seed=random.randrange(2**32))
