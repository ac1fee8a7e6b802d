"""Work on stored sessions that a crash interrupts: carrying sessions over, repairing and copying.

Each `Work` begins in a folder and is done there by another process: ``python -m tests.stores.interrupted FOLDER`` does
all of it, each in the folder of its name.
"""

from __future__ import annotations

import asyncio
import io
import lzma
import sys
from collections.abc import Callable, Coroutine
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from amplifier_context_cli.maintenance import copy
from amplifier_context_core import repair
from amplifier_context_core.stores import Durability, Store, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite.schema import replacement
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_core.transcript.redaction import REDACTED_TEXT
from amplifier_context_testing.contract.fixtures import Whole, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores import kills
from tests.stores.jsonl.files import garble
from tests.stores.jsonl.test_former import unpack
from tests.stores.sqlite.damage import overwritten_page
from tests.stores.sqlite.test_former_versions import RECORDED

SECRET = b"hunter2 and nothing else"  # erased before the work begins
Held = dict[str, Whole]


class Work(NamedTuple):
    """What is done in a folder.

    Attributes:
        begin: writes the files that the work finds.
        run: does the work; again after a crash.
        urls: of the stores in the folder afterwards, ``{}`` in place of its path.
        erased: bytes that no file holds afterwards.
    """

    begin: Callable[[Path], Coroutine[Any, Any, None]]
    run: Callable[[Path], None]
    urls: tuple[str, ...]
    erased: bytes = SECRET


# -- what the work finds ----------------------------------------------------------------------------------------------


async def _former_files(folder: Path) -> None:
    unpack(folder)


async def _former_database(folder: Path) -> None:
    _database(folder).write_bytes(lzma.decompress(RECORDED.read_bytes()))


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
    asyncio.run(held(url.format(folder), durability))


def _repair(file: str, folder: Path) -> None:
    if (folder / file).exists() or replacement(folder / file).exists():
        assert repair.main([str(folder / file)]) == 0


def _copy(source: str, target: str, folder: Path) -> None:
    copy.main([source.format(folder), target.format(folder)], standalone_mode=False)


_FILES, _JOURNAL, _SOURCE = "jsonl:{}", "jsonl:{}?journal=truncate", "jsonl:{}/from"
_DATABASE = "sqlite:{}/sessions.db"
_FORMER = b"is message 5."
WORK = {
    "carry over files": Work(_former_files, partial(_open, _FILES, "fsync"), (_FILES,), _FORMER),
    "carry over, flushed": Work(_former_files, partial(_open, _FILES, "flush"), (_FILES,), _FORMER),
    "carry over, with a journal": Work(_former_files, partial(_open, _JOURNAL, "flush"), (_FILES,), _FORMER),
    "carry over a database": Work(_former_database, partial(_open, _DATABASE, "fsync"), (_DATABASE,)),
    "repair a database": Work(_damaged_database, partial(_repair, "sessions.db"), (_DATABASE,)),
    "repair a session": Work(_damaged_session, partial(_repair, "s/context.db"), (_FILES,)),
    "take a session from its text": Work(_unreadable_session, partial(_repair, "s/context.db"), (_FILES,)),
    "copy to a database": Work(_files, partial(_copy, _SOURCE, _DATABASE), (_SOURCE, _DATABASE)),
    "copy to files": Work(_database_of_two, partial(_copy, _DATABASE, _FILES), (_DATABASE, _FILES)),
}


def do(name: str, folder: Path) -> None:
    with redirect_stdout(io.StringIO()):
        WORK[name].run(folder)


async def held(url: str, durability: Durability = "fsync") -> Held:
    """Open all sessions of a store, and return what they hold."""
    store, found = open_store(url, durability=durability), Held()
    for name in sorted(info.session_id for info in await store.sessions()):
        await store.open(name)
        found[name] = await whole(store, name)
    await store.close()
    return found


def _report(name: str, folder: Path) -> None:
    kills.say({"do": name})
    do(name, folder)
    kills.say({"done": name})


if __name__ == "__main__":
    if sys.argv[1:]:
        for one in WORK:
            _report(one, Path(sys.argv[1], one))
    else:
        kills.serve(lambda request: _report(request["work"], Path(request["folder"])))
