"""Carrying over, repairing and copying are interrupted: nothing acknowledged is lost, every session opens afterwards,
no erased text comes back.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from amplifier_context_core.stores import Checkable, open_store
from amplifier_context_testing.contract.samples import entry
from tests.stores import interrupted
from tests.stores.interrupted import WORK, Held, held
from tests.stores.jsonl.files import fast_folder
from tests.stores.kills import Event, Victims
from tests.stores.power_cuts import Trace, record

HUNDREDS = pytest.param(300, marks=pytest.mark.soak)


@pytest.fixture(scope="module")
def server() -> Iterator[Victims]:
    with closing(Victims("-m", interrupted.__name__)) as server:
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


class Course:
    """Some work, and what the sessions hold after it, without a crash."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.work, self.begun, self.left = name, WORK[name], folder / "begun", folder / "left"
        self._expected: list[Held] = []

    async def begin(self) -> None:
        self.begun.mkdir()
        await self.work.begin(self.begun)
        shutil.copytree(self.begun, self.left)
        await asyncio.to_thread(interrupted.do, self.name, self.left)
        self._expected = [await held(url.format(self.left)) for url in self.work.urls]
        shutil.rmtree(self.left, ignore_errors=True)

    async def check(self, events: list[Event]) -> bool:
        """Check what a crash left: what was done is there, and the rest can be done again. Return True if the crash
        came before all was done.
        """
        left, is_done = self.left, {"done": self.name} in events
        if not is_done:
            await asyncio.to_thread(interrupted.do, self.name, left)
        assert [await held(url.format(left)) for url in self.work.urls] == self._expected
        for url in self.work.urls:
            store = open_store(url.format(left))
            for name in self._expected[-1]:
                last = (await store.open(name)).last_seq
                await store.append(name, [entry(last + 1, session_id=name)])
                assert [one.seq for one in await store.read(name, -1)] == [last + 1]
                assert isinstance(store, Checkable)
                assert await store.verify(name) == []
            await store.close()
        for path in left.rglob("*"):
            assert path.is_dir() or self.work.erased not in path.read_bytes(), f"{path.name} holds erased text"
            assert not path.name.endswith(".repaired")
        shutil.rmtree(left, ignore_errors=True)  # a store that was closed may still remove the folder of its locks
        return not is_done


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("kills", [6, HUNDREDS])
async def test_a_kill_amid_the_work_loses_nothing(server: Victims, name: str, kills: int, tmp_path: Path) -> None:
    course, longest, struck = Course(name, tmp_path), 0.03, 0
    chance = random.Random(1 if kills == 6 else None)
    await course.begin()
    for _ in range(kills):
        shutil.copytree(course.begun, course.left)
        events = await server.kill_one({"work": name, "folder": str(course.left)}, chance.random() * longest)
        is_struck = await course.check(events)
        longest *= 1.1 if is_struck else 0.8
        struck += is_struck
    assert struck or kills == 6  # on a busy machine all of them may come late


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: it records the system calls")
@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("cuts", [8, HUNDREDS])
async def test_a_power_cut_amid_the_work_loses_nothing(traces: dict[str, Trace], name: str, cuts: int) -> None:
    trace, struck = traces[name], 0
    chance = random.Random(1 if cuts == 8 else None)
    with fast_folder() as folder:
        course = Course(name, folder)
        await course.begin()
        for _ in range(cuts):
            course.left.mkdir()
            said = trace.cut(trace.moment(chance), course.left, chance)
            struck += await course.check([event for event in said if name in event.values()])
    assert struck
