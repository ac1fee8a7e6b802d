"""What `rewrite` replaced is in no byte of a SQLite database's files."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.sqlite import secure_erase
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries, entry


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, durability="none")
    yield store
    await store.close()


def contents(path: Path) -> bytes:
    """Return the bytes of a database and of all files beside it, in lower case."""
    return b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file()).lower()


def holding(path: Path, *words: str) -> list[str]:
    """Return the words that are in a database or in any file beside it."""
    data = contents(path)
    return [word for word in words if word.lower().encode() in data]


async def holding_elsewhere(path: Path, *words: str) -> list[str]:
    """Return the same from another process: opening and closing the files here would release SQLite's locks."""
    code = (
        "import sys, pathlib; d = b''.join(f.read_bytes() for f in pathlib.Path(sys.argv[1]).parent.iterdir() "
        "if f.is_file()).lower(); print(*[w for w in sys.argv[2:] if w.lower().encode() in d], sep='\\n')"
    )
    process = await asyncio.create_subprocess_exec(
        "python3", "-c", code, str(path), *words, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output.decode().split()


async def test_a_rewritten_message_is_gone_from_all_files_while_they_are_open(path: Path, store: SqliteStore) -> None:
    await store.append("s", [entry(1, "the password is hunter2secret"), *entries(2, 4), entry(5, "old hunter2secret")])
    await store.search("s", "hunter2secret", 5)  # the index holds it now
    await store.fork("s", "child", 3)
    await store.replace("s", 4, [])  # the archive holds it now
    await store.save_checkpoint("s", 2, b"they said hunter2secret")
    assert await holding_elsewhere(path, "hunter2secret") == ["hunter2secret"]
    await store.rewrite("child", [entry(1, "gone")])
    await store.rewrite("s", [entry(1, "gone"), entry(5, "gone as well")])
    assert await holding_elsewhere(path, "hunter2secret") == []
    assert await store.load_checkpoint("s") is None
    assert [one.message["content"] for one in await store.archived("s")] == ["gone as well"]
    assert await store.search("s", "gone", 5) == [1]


async def test_of_pages_that_were_split_no_copies_remain(path: Path, store: SqliteStore) -> None:
    chance = random.Random(1)
    counts = [0] * 12

    async def talk(number: int) -> None:
        for seq in range(counts[number] + 1, counts[number] + chance.randrange(2, 5)):
            text = f"SECRET{number}x{seq:05} {'x' * chance.choice((20, 200, 900, 3_000))}"
            await store.append(f"session {number}", [entry(seq, text)])
            counts[number] = seq

    for _ in range(60):
        await asyncio.gather(*map(talk, chance.sample(range(12), 12)))
    await store.rewrite("session 3", [entry(seq, "gone") for seq in range(1, counts[3] + 1)])
    await store.close()
    assert re.search(rb"secret3x\d{5} ", contents(path)) is None
    assert holding(path, "SECRET4x00001 ")


async def test_damaged_files_that_a_repair_kept_are_erased_as_well(path: Path, store: SqliteStore) -> None:
    await store.append("s", [entry(1, "hunter2secret"), entry(2, "two"), entry(3, "hunter2secret again")])
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entries SET crc = crc + 1 WHERE seq = 3")
    await store.repair(None)
    assert [one.seq for one in await store.read("s")] == [1, 2]
    assert holding(path, "hunter2secret again")
    await store.rewrite("s", [entry(1, "gone")])
    await store.close()
    assert holding(path, "hunter2secret") == []
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_a_deleted_session_is_in_no_byte_of_the_files_while_they_are_open(path: Path, store: SqliteStore) -> None:
    await asyncio.gather(
        *(store.append("s", [entry(seq, f"hunter2secret {'x' * seq}")]) for seq in range(1, 60)),
        *(store.append("t", [entry(seq, f"other {'y' * seq}")]) for seq in range(1, 60)),
    )
    await store.search("s", "hunter2secret", 5)  # the index holds it now
    await store.delete("s")
    assert await holding_elsewhere(path, "hunter2secret", "other") == ["other"]
    assert (await store.extent("t")).length == 59


async def test_erasing_waits_for_readers(path: Path, store: SqliteStore) -> None:
    await store.append("s", [entry(1, "hunter2secret")])
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM entries").fetchone()
    rewriting = asyncio.create_task(store.rewrite("s", [entry(1, "gone")]))
    await store.append("other", entries(1, 2))  # other sessions continue
    await asyncio.sleep(0.05)
    assert not rewriting.done()
    db.execute("COMMIT")
    db.close()
    await rewriting
    await store.close()
    assert holding(path, "hunter2secret") == []


async def test_an_interrupted_erasure_is_reported_and_finished_later(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("s", [entry(1, "hunter2secret")])
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM entries").fetchone()
    with monkeypatch.context() as patch:
        patch.setattr(secure_erase, "_READER_TIMEOUT", 0.03)
        with pytest.raises(StoreError, match="not erased from every byte"):
            await store.rewrite("s", [entry(1, "gone")])
    assert [one.message["content"] for one in await store.read("s")] == ["gone"]
    db.execute("COMMIT")
    db.close()
    await store.close()
    assert (await store.extent("s")).length == 1  # the next opening finishes what was left
    await store.rewrite("s", [entry(1, "gone")])
    await store.close()
    assert holding(path, "hunter2secret") == []


async def test_an_erasure_killed_half_way_is_finished_by_the_next_process(path: Path, store: SqliteStore) -> None:
    await store.append("s", [entry(1, "hunter2secret")])
    await store.close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("DELETE FROM entries")
    db.execute("DELETE FROM sessions")
    db.execute("INSERT INTO facts VALUES ('erasing', 1)")
    db.close()
    assert holding(path, "hunter2secret")
    await store.sessions()
    for _ in range(6_000):
        if not await store._engine.read(secure_erase.is_erase_pending):  # pyright: ignore[reportPrivateUsage]
            break
        await asyncio.sleep(0.01)
    await store.close()
    assert holding(path, "hunter2secret") == []
