"""The files of the JSONL store: names and rights, how little of them is read, and what a repair makes of damage."""

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores import Extent, Repair
from amplifier_context_core.stores.jsonl import session
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
from tests.refusals import refused
from tests.stores.jsonl.files import Files, garble, unlocked, write


async def test_one_file_is_the_session_whatever_its_id_and_keeps_its_rights(root: Path) -> None:
    file = root / "here" / "transcript.jsonl"
    file.parent.mkdir()
    file.write_bytes(b'{"role": "user", "content": "x"}\n')
    file.chmod(0o640)
    store = JsonlStore(root / "unused", file=file)
    await store.append("s", entries(2, 3))
    await store.save_checkpoint("s", 2, b"two")
    await store.replace("s", 2, [])
    await store.close()
    assert not (root / "unused").exists()
    rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert rights == {"transcript.jsonl": 0o640, "transcript.db": 0o600}
    other = JsonlStore(root, file=file)
    assert await other.open("another id") == Extent(2, 3)
    assert await other.load_checkpoint("another id") == b"two"
    assert [(info.session_id, info.length) for info in await other.sessions()] == [("transcript", 2)]
    await other.delete("another id")
    await other.close()
    assert list(file.parent.iterdir()) == []


async def test_a_fork_of_the_one_file_is_a_file_beside_it_whose_name_no_other_file_has(root: Path) -> None:
    store = JsonlStore(root, file=root / "talk.jsonl")
    await store.append("s", entries(1, 4))
    await store.fork("s", "x", 3)
    await store.append("x", entries(9, 9, session_id="x"))
    with pytest.raises(ConfigError, match=r"transcript_path: names talk\.db"):
        JsonlStore(root, file=root / "talk.db")
    await refused(store.fork("s", "x.index"), says="choose another id", error=ConfigError)
    assert [one.seq for one in await store.read("x")] == [1, 2, 3, 9]
    assert sorted((info.session_id, info.length) for info in await store.sessions()) == [("talk", 4), ("x", 4)]
    await store.release("x")
    assert {path.name for path in root.glob("talk.fork-x*")} == {"talk.fork-x.jsonl", "talk.fork-x.db"}
    await store.delete("x")
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 4]
    await store.close()


async def test_where_case_is_ignored_two_ids_are_never_one_file(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS and Windows."""
    find = os.stat

    def found(path: str, *arguments: Any, **more: Any) -> os.stat_result:
        asked = Path(path)
        same = [one for one in asked.parent.iterdir() if one.name.casefold() == asked.name.casefold()]
        return find(same[0] if same else path, *arguments, **more)

    await store.append("Task-One", entries(1, 3))
    monkeypatch.setattr(os, "stat", found)
    for call in (store.read("task-one"), store.append("TASK-ONE", entries(1, 1)), store.fork("Task-One", "tASK-oNE")):
        with pytest.raises(ConfigError, match="in case only"):
            await call
    assert len(await store.read("Task-One")) == 3
    await store.fork("Task-One", "Task-Two")


async def test_an_idle_session_needs_no_reading_after_a_kill(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mirror is synced once nothing was called for a second."""
    monkeypatch.setattr("amplifier_context_core.stores.sqlite.worker.IDLE_SECONDS", 0.01)
    await store.append("s", entries(1, 3))
    with closing(sqlite3.connect(Files(root).database)) as db:
        async with asyncio.timeout(20):
            while db.execute("SELECT value FROM facts WHERE name = 'mirror mark'").fetchone() != (0,):
                await asyncio.sleep(0.02)


async def test_the_mirror_of_a_session_that_was_closed_is_not_read_to_resume_it(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, open_file, opened = await write(root, 30), os.open, set[str]()

    def noted(path: str, *arguments: Any) -> int:
        opened.add(os.fspath(path))
        return open_file(path, *arguments)

    monkeypatch.setattr(os, "open", noted)
    for is_read in (False, True):
        assert await store.open("s") == Extent(30, 30)
        assert opened
        assert (str(files.main) in opened) == is_read
        await store.release("s")
        os.utime(files.main)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts the descriptors of Linux")
async def test_200_open_sessions_take_at_most_640_descriptors_and_one_thread(root: Path) -> None:
    before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    store = JsonlStore(root, durability="none")
    names = [f"session {number}" for number in range(200)]
    for name in names:
        await store.append(name, entries(1, 1, session_id=name))
    assert len(os.listdir("/proc/self/fd")) - before <= 640
    assert [one.name for one in set(threading.enumerate()) - threads] == ["jsonl store"]
    await store.append(names[0], entries(2, 2, session_id=names[0]))
    assert sorted(info.length for info in await store.sessions()) == [*[1] * 199, 2]
    await store.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


async def test_odd_folders_and_sessions_whose_creation_was_interrupted_are_not_listed(
    root: Path, store: JsonlStore
) -> None:
    await store.append("mine", entries(1, 1))
    odd = root / "evil\x1b[31m"
    odd.mkdir()
    (odd / "context-messages.jsonl").write_text("{}\n")
    (root / "s").mkdir()
    with closing(sqlite3.connect(Files(root).database)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert [info.session_id for info in await store.sessions()] == ["mine"]
    assert await store.open("s") == Extent()


COMMAND = r"amplifier_context_core\.repair"


@pytest.mark.parametrize("crashed", [False, True])
async def test_a_repair_puts_a_message_of_the_text_file_where_it_was(
    root: Path, store: JsonlStore, crashed: bool
) -> None:
    files = await write(root, 6)
    if crashed:  # the mark says that messages may be missing from the text
        await store.append("s", entries(7, 7))
        shutil.copytree(root, root / "then", ignore=unlocked)
        files = Files(root / "then")
        await store.close()
    garble(files.database, 3, 4)
    repaired, repairs = JsonlStore(files.folder.parent), list[Repair]()
    await repaired.repair("s", repairs.append)
    found = await repaired.read("s")
    assert [one.message for one in found] == [one.message for one in entries(1, 6 + crashed)]
    assert repairs != []
    assert await repaired.verify("s") == []
    await repaired.close()
    assert files.messages == [one.message for one in found]
    garble(files.database, 5)
    files.main.unlink()
    repairs.clear()
    await repaired.repair("s", repairs.append)
    assert [one.seq for one in await repaired.read("s")] == [one.seq for one in found if one.seq != 5]
    assert sum(one.lost for one in repairs) == 1, "what no file holds is lost"
    for ending in (".repairing", ".repairing-wal"):  # of a repair that was killed
        files.path(f"context.db{ending}").write_bytes(b"messages")
    await repaired.delete("s")
    assert not files.main.parent.exists()
    await repaired.close()


async def test_a_file_that_is_no_database_is_kept_and_the_text_is_the_session(root: Path, store: JsonlStore) -> None:
    files = await write(root, 6)
    files.database.write_bytes(b"no database" * 1_000)
    await refused(store.open("s"), store.read("s"), store.append("s", entries(7, 7)), says=COMMAND)
    assert [info.session_id for info in await store.sessions()] == ["s"]
    await store.repair("s")
    assert [one.message for one in await store.read("s")] == [one.message for one in entries(1, 6)]
    assert len(list((root / "s").glob("context.db.damaged-*"))) == 1
    await store.close()
    assert files.messages == [one.message for one in entries(1, 6)]


@pytest.mark.parametrize("is_damaged", [True, False])
async def test_what_another_program_writes_to_the_text_file_during_a_repair_is_not_lost(
    root: Path, store: JsonlStore, is_damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair of a sound session that is open changes nothing."""
    files, repair, theirs = await write(root, 6), session.repair_session, {"role": "user", "content": "theirs"}

    def write_theirs() -> None:
        with files.main.open("a") as file:
            file.write(json.dumps(theirs) + "\n")

    def meanwhile(*arguments: Any) -> list[Repair]:
        write_theirs()
        return repair(*arguments)

    monkeypatch.setattr(session, "repair_session", meanwhile)
    if is_damaged:
        garble(files.database, 3)
    else:
        await store.open("s")
        write_theirs()
    await store.repair("s")
    expected = [*(one.message for one in entries(1, 6)), theirs]
    assert [one.message for one in await store.read("s")] == expected[: 6 + is_damaged]
    await store.release("s")
    await store.open("s")
    assert [one.message for one in await store.read("s")] == files.messages == expected
