"""What `rewrite` replaced is in no byte of a SQLite database's files."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from amplifier_context_core.stores.sqlite import secure_erase
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries, entry
from tests.refusals import refused
from tests.stores.sqlite.damage import change

SECRET = "hunter2secret"
LOOK = """
import pathlib, sys
data = b"".join(file.read_bytes() for file in pathlib.Path(sys.argv[1]).iterdir() if file.is_file()).lower()
print(*(word for word in sys.argv[2:] if word.lower().encode() in data))
"""


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, durability="none")
    yield store
    await store.close()


async def holding(path: Path, *words: str) -> list[str]:
    """Return the words that are in a database or in any file beside it. Another process looks: opening and closing the
    files here would release SQLite's locks.
    """
    command = [sys.executable, "-c", LOOK, str(path.parent), *(words or (SECRET,))]
    return (await asyncio.to_thread(subprocess.check_output, command, text=True)).split()


@contextmanager
def reading(path: Path) -> Generator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM entries").fetchone()
        yield


async def test_a_rewritten_message_is_gone_from_all_files_while_they_are_open(path: Path, store: SqliteStore) -> None:
    await store.append("s", [entry(1, f"the password is {SECRET}"), *entries(2, 4), entry(5, f"old {SECRET}")])
    await store.search("s", SECRET, 5)  # the index holds it now
    await store.fork("s", "child", 3)
    await store.replace("s", 4, [])  # the archive holds it now
    await store.save_checkpoint("s", 2, f"they said {SECRET}".encode())
    assert await holding(path)
    await store.rewrite("child", [entry(1, "gone")])
    await store.rewrite("s", [entry(1, "gone"), entry(5, "gone as well")])
    assert not await holding(path)
    assert await store.load_checkpoint("s") is None
    assert [one.message["content"] for one in await store.archived("s")] == ["gone as well"]
    assert await store.search("s", "gone", 5) == [1]


async def test_of_pages_that_were_split_no_copies_remain(path: Path, store: SqliteStore) -> None:
    chance, seqs = random.Random(1), range(1, 61)
    for seq in seqs:
        texts = [f"SECRET{number}x{seq:05} {'x' * chance.choice((20, 200, 900, 3_000))}" for number in range(12)]
        await asyncio.gather(
            *(store.append(f"session {number}", [entry(seq, text)]) for number, text in enumerate(texts))
        )
    await store.rewrite("session 3", [entry(seq, "gone") for seq in seqs])
    assert await holding(path, "SECRET3x", "SECRET4x00001") == ["SECRET4x00001"]


async def test_damaged_files_that_a_repair_kept_are_erased_as_well(path: Path, store: SqliteStore) -> None:
    await store.append("s", [entry(1, SECRET), entry(2, "two"), entry(3, f"{SECRET} again")])
    await store.close()
    change(path, "UPDATE entries SET crc = crc + 1 WHERE seq = 3")
    await store.repair(None)
    assert [one.seq for one in await store.read("s")] == [1, 2]
    assert await holding(path)
    await store.rewrite("s", [entry(1, "gone")])
    await store.close()
    assert not await holding(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_a_deleted_session_is_in_no_byte_of_the_files_while_they_are_open(path: Path, store: SqliteStore) -> None:
    for name, text in (("s", SECRET), ("t", "other")):
        await store.append(name, [entry(seq, f"{text} {'x' * seq}") for seq in range(1, 60)])
    await store.search("s", SECRET, 5)  # the index holds it now
    await store.delete("s")
    assert await holding(path, SECRET, "other") == ["other"]
    assert (await store.extent("t")).length == 59


async def test_an_erasure_waits_for_readers_and_one_that_did_so_in_vain_is_reported_and_finished_later(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("s", [entry(1, SECRET), entry(2, SECRET)])
    with reading(path):
        rewriting = asyncio.create_task(store.rewrite("s", [entry(1, "gone")]))
        await store.append("other", entries(1, 2))  # other sessions continue
        await asyncio.sleep(0.05)
        assert not rewriting.done()
    await rewriting
    with reading(path), monkeypatch.context() as patch:
        patch.setattr(secure_erase, "_READER_TIMEOUT", 0.03)
        await refused(store.rewrite("s", [entry(2, "gone")]), says="not erased from every byte")
        assert [one.message["content"] for one in await store.read("s")] == ["gone", "gone"]
    await store.close()
    assert (await store.extent("s")).length == 2  # the next opening finishes what was left
    await store.rewrite("s", [entry(1, "gone")])
    assert not await holding(path)


async def test_an_erasure_killed_half_way_is_finished_by_the_next_process(path: Path, store: SqliteStore) -> None:
    await store.append("s", [entry(1, SECRET)])
    await store.close()
    killed = ("PRAGMA secure_delete = OFF", "DELETE FROM entries", "DELETE FROM sessions")
    change(path, *killed, "INSERT INTO facts VALUES ('erasing', 1)")
    assert await holding(path)
    await store.sessions()
    async with asyncio.timeout(60):
        while await store._engine.read(secure_erase.is_erase_pending):  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)
    assert not await holding(path)
