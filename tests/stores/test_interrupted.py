"""Carrying over, repairing and copying are interrupted: nothing acknowledged is lost, every session opens afterwards,
no erased text comes back.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import interrupted
from tests.stores.interrupted import WORK, Held
from tests.stores.jsonl.files import fast_folder
from tests.stores.kills import Event, Victims, victims
from tests.stores.power_cuts import Trace, record

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: it records the system calls"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Victims]:
    with victims("-m", interrupted.__name__) as server:
        yield server


@pytest.fixture(scope="module")
def traces() -> Iterator[dict[str, Trace]]:
    """What a process calls that does all of the work."""
    with fast_folder() as folder:
        for name, work in WORK.items():
            (folder / name).mkdir()
            asyncio.run(work.begin(folder / name))
        recorded = record(["-m", interrupted.__name__, str(folder)], *(folder / name for name in WORK))
        yield dict(zip(WORK, recorded, strict=True))


async def _kill(server: Victims, name: str, folder: Path, kills: int, seed: int) -> int:
    """Kill processes amid some work, check what each left, and return how many had not done it."""
    chance, longest, struck = random.Random(seed), 0.03, 0
    begun, expected = await _begin(name, folder)
    for number in range(kills):
        left = shutil.copytree(begun, folder / f"left {number}")
        events = await server.kill_one({"work": name, "folder": str(left)}, chance.random() * longest)
        is_done = {"done": name} in events
        longest *= 0.8 if is_done else 1.1
        struck += not is_done
        await _check(name, left, events, expected)
    return struck


async def _cut(trace: Trace, name: str, folder: Path, cuts: int, seed: int) -> int:
    """Cut the power amid some work, check what each cut leaves, and return how many came before it was done."""
    chance, struck = random.Random(seed), 0
    _, expected = await _begin(name, folder)
    for number in range(cuts):
        left = folder / f"left {number}"
        left.mkdir()
        said = trace.cut(trace.moment(chance), left, chance)
        events = [event for event in said if name in event.values()]
        struck += {"done": name} not in events
        await _check(name, left, events, expected)
    return struck


async def _begin(name: str, folder: Path) -> tuple[Path, list[Held]]:
    """Return a folder in which some work begins, and what the sessions hold after it, without a crash."""
    begun = folder / "begun"
    begun.mkdir()
    await WORK[name].begin(begun)
    whole = shutil.copytree(begun, folder / "whole")
    await asyncio.to_thread(interrupted.run_again, WORK[name], whole)
    return begun, await interrupted.held(WORK[name], whole)


async def _check(name: str, left: Path, events: list[Event], expected: list[Held]) -> None:
    """Check a folder, and remove it. A store that was closed may still be about to remove the folder of its locks."""
    await interrupted.check(WORK[name], left, events, expected)
    shutil.rmtree(left, ignore_errors=True)


@pytest.mark.parametrize("name", WORK)
async def test_a_kill_amid_the_work_loses_nothing(server: Victims, name: str, tmp_path: Path) -> None:
    await _kill(server, name, tmp_path, 6, seed=1)  # on a busy machine all of them may come late


@needs_strace
@pytest.mark.parametrize("name", WORK)
async def test_a_power_cut_amid_the_work_loses_nothing(traces: dict[str, Trace], name: str) -> None:
    with fast_folder() as folder:
        assert await _cut(traces[name], name, folder, 8, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("name", WORK)
async def test_three_hundred_kills_amid_the_work_lose_nothing(server: Victims, name: str, tmp_path: Path) -> None:
    assert await _kill(server, name, tmp_path, 300, seed=random.randrange(2**32))


@needs_strace
@pytest.mark.soak
@pytest.mark.parametrize("name", WORK)
async def test_three_hundred_power_cuts_amid_the_work_lose_nothing(traces: dict[str, Trace], name: str) -> None:
    with fast_folder() as folder:
        assert await _cut(traces[name], name, folder, 300, seed=random.randrange(2**32))
