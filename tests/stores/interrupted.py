"""Work on stored sessions that a crash interrupts: carrying sessions over, repairing and copying.

Each `Work` begins in a folder and is done there by another process: ``python -m tests.stores.interrupted FOLDER`` does
all of it, each in the folder of its name. `check` does it again on what a crash left, and compares the sessions with
those after work without a crash.
"""

from __future__ import annotations

import asyncio
import io
import lzma
import sys
import tarfile
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import NamedTuple

from amplifier_context_cli.maintenance import copy
from amplifier_context_core import repair
from amplifier_context_core.stores import Checkable, Durability, Extent, Store, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite.schema import replacement
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.redaction import REDACTED_TEXT
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores import kills
from tests.stores.jsonl.files import garble
from tests.stores.jsonl.test_former import RECORDED as FORMER_FILES
from tests.stores.sqlite.damage import overwritten_page
from tests.stores.sqlite.test_former_versions import RECORDED as FORMER_DATABASE

SECRET = b"hunter2 and nothing else"  # erased before the work begins
Held = dict[str, tuple[list[Entry], list[Entry], bytes | None, Extent]]


class Work(NamedTuple):
    """What is done in a folder.

    Attributes:
        begin: writes the files that the work finds.
        run: does the work; again after a crash.
        urls: of the stores in the folder afterwards, ``{}`` in place of its path.
        erased: bytes that no file holds afterwards.
    """

    begin: Callable[[Path], Awaitable[None]]
    run: Callable[[Path], None]
    urls: tuple[str, ...]
    erased: bytes


# -- what the work finds ----------------------------------------------------------------------------------------------


async def _former_files(folder: Path) -> None:
    with tarfile.open(FORMER_FILES) as archive:
        archive.extractall(folder, filter="data")


async def _former_database(folder: Path) -> None:
    _database(folder).write_bytes(lzma.decompress(FORMER_DATABASE.read_bytes()))


async def _damaged_database(folder: Path) -> None:
    await _fill(SqliteStore(_database(folder)))
    overwritten_page(_database(folder), "entries", 3)


async def _damaged_session(folder: Path) -> None:
    await _fill(JsonlStore(folder))
    garble(folder / "s" / "context.db", 7, 8)


async def _unreadable_session(folder: Path) -> None:
    await _fill(JsonlStore(folder))
    (folder / "s" / "context.db").write_bytes(b"no database" * 1_000)


async def _files(folder: Path) -> None:
    await _fill(JsonlStore(folder / "from"))


async def _database_of_two(folder: Path) -> None:
    await _fill(SqliteStore(_database(folder)))


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


def _database(folder: Path) -> Path:
    return folder / "sessions.db"


# -- the work ---------------------------------------------------------------------------------------------------------


def _open(url: str, durability: Durability, folder: Path) -> None:
    asyncio.run(_held(url.format(folder), durability))


def _repair(file: str, folder: Path) -> None:
    if (folder / file).exists() or replacement(folder / file).exists():
        assert repair.main([str(folder / file)]) == 0


def _copy(source: str, target: str, folder: Path) -> None:
    copy.main([source.format(folder), target.format(folder)], standalone_mode=False)


_FILES, _JOURNAL, _SOURCE = "jsonl:{}", "jsonl:{}?journal=truncate", "jsonl:{}/from"
_DATABASE = "sqlite:{}/sessions.db"
WORK = {
    "carry over files": Work(_former_files, partial(_open, _FILES, "fsync"), (_FILES,), b"is message 5."),
    "carry over, flushed": Work(_former_files, partial(_open, _FILES, "flush"), (_FILES,), b"is message 5."),
    "carry over, with a journal": Work(_former_files, partial(_open, _JOURNAL, "flush"), (_FILES,), b"is message 5."),
    "carry over a database": Work(_former_database, partial(_open, _DATABASE, "fsync"), (_DATABASE,), SECRET),
    "repair a database": Work(_damaged_database, partial(_repair, "sessions.db"), (_DATABASE,), SECRET),
    "repair a session": Work(_damaged_session, partial(_repair, "s/context.db"), (_FILES,), SECRET),
    "take a session from its text": Work(_unreadable_session, partial(_repair, "s/context.db"), (_FILES,), SECRET),
    "copy to a database": Work(_files, partial(_copy, _SOURCE, _DATABASE), (_SOURCE, _DATABASE), SECRET),
    "copy to files": Work(_database_of_two, partial(_copy, _DATABASE, _FILES), (_DATABASE, _FILES), SECRET),
}


def run(name: str, folder: str) -> None:
    """Do some work, and report when it is done."""
    kills.say({"do": name})
    with redirect_stdout(io.StringIO()):
        WORK[name].run(Path(folder))
    kills.say({"done": name})


# -- the law ----------------------------------------------------------------------------------------------------------


async def held(work: Work, folder: Path) -> list[Held]:
    """Open all sessions, and return what they hold."""
    return [await _held(url.format(folder)) for url in work.urls]


async def check(work: Work, folder: Path, events: list[kills.Event], expected: list[Held]) -> None:
    """Check what a crash left of some work: what was done is there, and the rest can be done again."""
    if not events or "done" not in events[-1]:
        await asyncio.to_thread(run_again, work, folder)
    assert await held(work, folder) == expected
    for url in work.urls:
        store = open_store(url.format(folder))
        for name in expected[-1]:
            last = (await store.open(name)).last_seq
            await store.append(name, [entry(last + 1, session_id=name)])
            assert [one.seq for one in await store.read(name, -1)] == [last + 1]
            assert isinstance(store, Checkable)
            assert await store.verify(name) == []
        await store.close()
    for path in folder.rglob("*"):
        assert path.is_dir() or work.erased not in path.read_bytes(), f"{path.name} holds erased text"
        assert not path.name.endswith(".repaired")


def run_again(work: Work, folder: Path) -> None:
    with redirect_stdout(io.StringIO()):
        work.run(folder)


async def _held(url: str, durability: Durability = "fsync") -> Held:
    store, found = open_store(url, durability=durability), Held()
    for name in sorted(info.session_id for info in await store.sessions()):
        extent = await store.open(name)
        found[name] = await store.read(name), await store.archived(name), await store.load_checkpoint(name), extent
    await store.close()
    return found


if __name__ == "__main__":
    if sys.argv[1:]:
        for one in WORK:
            run(one, f"{sys.argv[1]}/{one}")
    else:
        kills.serve(lambda request: run(request["work"], request["folder"]))
