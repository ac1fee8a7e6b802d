"""Carrying over, repairing and copying are interrupted: nothing acknowledged is lost, every session opens afterwards,
no erased text comes back.

Each `Work` begins in a folder and is done there by another process: ``python -m tests.stores.test_interrupted FOLDER``
does all of it, each in the folder of its name.
"""

import asyncio
import io
import lzma
import random
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from amplifier_context_cli.maintenance import copy
from amplifier_context_core import repair
from amplifier_context_core.stores import Checkable, Durability, Store, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite.schema import replacement
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_core.transcript.redaction import REDACTED_TEXT
from amplifier_context_testing.contract.fixtures import Whole, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores import kills
from tests.stores.jsonl.files import fast_folder, garble
from tests.stores.jsonl.test_other_programs import unpack
from tests.stores.power_cuts import Trace, record
from tests.stores.sqlite.damage import overwritten_page
from tests.stores.sqlite.test_database import RECORDED

SECRET = b"hunter2 and nothing else"  # erased before the work begins
Held = dict[str, Whole]


class Work(NamedTuple):
    begin: Callable[[Path], Coroutine[Any, Any, None]]  # writes the files that the work finds
    run: Callable[[Path], None]  # does the work; again after a crash
    urls: tuple[str, ...]  # of the stores in the folder afterwards, ``{}`` in place of its path
    erased: bytes = SECRET  # that no file holds afterwards


async def _former_files(folder: Path) -> None:
    unpack(folder)


async def _former_database(folder: Path) -> None:
    (folder / "sessions.db").write_bytes(lzma.decompress(RECORDED.read_bytes()))


async def _files(place: str, damage: Callable[[Path], object], folder: Path) -> None:
    await _fill(JsonlStore(folder / place))
    damage(folder / "s" / "context.db")


async def _database(damage: Callable[[Path], object], folder: Path) -> None:
    await _fill(SqliteStore(folder / "sessions.db"))
    damage(folder / "sessions.db")


async def _fill(store: Store) -> None:
    """Make two sessions: one with a bit of everything, and one without a checkpoint."""
    await store.append("s", [*entries(1, 60), entry(61, SECRET.decode())])
    await store.append("s", [entry(62, f"{SECRET.decode()}, in the archive")])
    await store.replace("s", 61, entries(63, 70))
    await store.save_checkpoint("s", 20, b'{"covers": 20}')
    await store.rewrite("s", [entry(seq, REDACTED_TEXT) for seq in (61, 62)])
    await store.save_checkpoint("s", 30, b'{"covers": 30}')
    await store.append("t", entries(1, 10, session_id="t"))
    await store.replace("t", 9, [])
    await store.close()


def _open(url: str, durability: Durability, folder: Path) -> None:
    asyncio.run(held(url.format(folder), durability))


def _repair(file: str, folder: Path) -> None:
    if (folder / file).exists() or replacement(folder / file).exists():
        assert repair.main([str(folder / file)]) == 0


def _copy(source: str, target: str, folder: Path) -> None:
    copy.main([source.format(folder), target.format(folder)], standalone_mode=False)


_FILES, _JOURNAL, _SOURCE = "jsonl:{}", "jsonl:{}?journal=truncate", "jsonl:{}/from"
_DATABASE = "sqlite:{}/sessions.db"
_FORMER = b"is message 5."
_PAGE, _NOTHING = partial(overwritten_page, table="entries", number=3), str
_GARBAGE = partial(Path.write_bytes, data=b"no database" * 1_000)
WORK = {
    "carry over files": Work(_former_files, partial(_open, _FILES, "fsync"), (_FILES,), _FORMER),
    "carry over, flushed": Work(_former_files, partial(_open, _FILES, "flush"), (_FILES,), _FORMER),
    "carry over, with a journal": Work(_former_files, partial(_open, _JOURNAL, "flush"), (_FILES,), _FORMER),
    "carry over a database": Work(_former_database, partial(_open, _DATABASE, "fsync"), (_DATABASE,)),
    "repair a database": Work(partial(_database, _PAGE), partial(_repair, "sessions.db"), (_DATABASE,)),
    "repair a session": Work(
        partial(_files, "", lambda path: garble(path, 7, 8)), partial(_repair, "s/context.db"), (_FILES,)
    ),
    "take a session from its text": Work(partial(_files, "", _GARBAGE), partial(_repair, "s/context.db"), (_FILES,)),
    "copy to a database": Work(
        partial(_files, "from", _NOTHING), partial(_copy, _SOURCE, _DATABASE), (_SOURCE, _DATABASE)
    ),
    "copy to files": Work(partial(_database, _NOTHING), partial(_copy, _DATABASE, _FILES), (_DATABASE, _FILES)),
}


async def held(url: str, durability: Durability = "fsync") -> Held:
    """Open all sessions of a store, and return what they hold."""
    store, found = open_store(url, durability=durability), Held()
    for name in sorted(info.session_id for info in await store.sessions()):
        await store.open(name)
        found[name] = await whole(store, name)
    await store.close()
    return found


def do(name: str, folder: Path) -> None:
    """Do some work in a process of its own, and report it."""
    kills.say({"do": name})
    with redirect_stdout(io.StringIO()):
        WORK[name].run(folder)
    kills.say({"done": name})


HUNDREDS = pytest.param(300, marks=pytest.mark.soak)


@pytest.fixture(scope="module")
def server() -> Iterator[kills.Victims]:
    with closing(kills.Victims("-m", __name__)) as server:
        yield server


@pytest.fixture(scope="module")
def traces() -> Iterator[dict[str, Trace]]:
    """What a process calls that does all of the work."""
    with fast_folder() as folder:
        for name, work in WORK.items():
            (folder / name).mkdir()
            asyncio.run(work.begin(folder / name))
        recorded = record(["-m", __name__, str(folder)], *(folder / name for name in WORK))
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
        await asyncio.to_thread(self.work.run, self.left)
        self._expected = [await held(url.format(self.left)) for url in self.work.urls]
        shutil.rmtree(self.left, ignore_errors=True)

    async def check(self, events: list[kills.Event]) -> bool:
        """Check what a crash left: what was done is there, and the rest can be done again. Return True if the crash
        came before all was done.
        """
        left, is_done = self.left, {"done": self.name} in events
        if not is_done:
            await asyncio.to_thread(self.work.run, left)
        assert [await held(url.format(left)) for url in self.work.urls] == self._expected
        for url in self.work.urls:
            store = open_store(url.format(left))
            assert isinstance(store, Checkable)
            for name in self._expected[-1]:
                last = (await store.open(name)).last_seq
                await store.append(name, [entry(last + 1, session_id=name)])
                assert [one.seq for one in await store.read(name, -1)] == [last + 1]
                assert await store.verify(name) == []
            await store.close()
        for path in left.rglob("*"):
            assert path.is_dir() or self.work.erased not in path.read_bytes(), f"{path.name} holds erased text"
            assert not path.name.endswith(".repaired")
        shutil.rmtree(left, ignore_errors=True)  # a store that was closed may still remove the folder of its locks
        return not is_done


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("times", [6, HUNDREDS])
async def test_a_kill_amid_the_work_loses_nothing(server: kills.Victims, name: str, times: int, tmp_path: Path) -> None:
    course, longest, struck = Course(name, tmp_path), 0.03, 0
    chance = random.Random(1 if times == 6 else None)
    await course.begin()
    for _ in range(times):
        shutil.copytree(course.begun, course.left)
        events = await server.kill_one({"work": name, "folder": str(course.left)}, chance.random() * longest)
        is_struck = await course.check(events)
        longest *= 1.1 if is_struck else 0.8
        struck += is_struck
    assert struck or times == 6  # on a busy machine all of them may come late


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: it records the system calls")
@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("cuts", [8, HUNDREDS])
async def test_a_power_cut_amid_the_work_loses_nothing(
    traces: dict[str, Trace], name: str, cuts: int, tmp_path: Path
) -> None:
    trace, struck, course = traces[name], 0, Course(name, tmp_path)
    chance = random.Random(1 if cuts == 8 else None)
    await course.begin()
    for _ in range(cuts):
        course.left.mkdir()
        said = trace.cut(trace.moment(chance), course.left, chance)
        struck += await course.check([event for event in said if name in event.values()])
    assert struck


if __name__ == "__main__":
    if sys.argv[1:]:
        for one in WORK:
            do(one, Path(sys.argv[1], one))
    else:
        kills.serve(lambda request: do(request["work"], Path(request["folder"])))
