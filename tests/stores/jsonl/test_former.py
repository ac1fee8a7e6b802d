"""Sessions as commit 37ba2a6 kept them open once, with all that they hold, and are carried over."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, MemoryStore, Repair, Store
from amplifier_context_core.stores.jsonl import former
from amplifier_context_core.stores.jsonl.mirror import Identity, Mirror
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite.rows import SessionRow
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.crashes import using
from tests.stores.jsonl.files import Files
from tests.stores.jsonl.test_faults import FaultyOs

# Recorded with that commit: `changes.begin` in each; in the last two, a crash came before an edit was applied.
RECORDED = Path(__file__).with_name("format_of_37ba2a6.tar.xz")
SESSIONS = ("whole", "edited", "erased")


def unpack(folder: Path) -> None:
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")


@pytest.fixture(autouse=True)
def recorded(root: Path) -> None:
    unpack(root)


async def expected(name: str) -> Store:
    """Return what a session holds."""
    store = MemoryStore()
    await store.append(name, entries(1, 10, session_id=name))
    await store.replace(name, 9, entries(11, 12, session_id=name))
    await store.append(name, entries(13, 13, session_id=name))
    await store.replace(name, 10, [])
    await store.save_checkpoint(name, 4, b"four")
    if name == "edited":
        new = entries(20, 21, session_id=name)
        await store.replace(name, 6, [*new, entries(8, 8, session_id=name)[0]])
    elif name == "erased":
        await store.rewrite(name, [entry(5, "(erased)", session_id=name)])
    return store


async def assert_held(store: Store, name: str) -> None:
    model = await expected(name)
    assert await store.extent(name) == await model.extent(name)
    assert_same(await store.read(name), await model.read(name))
    assert_same(await store.archived(name), await model.archived(name))
    assert await store.load_checkpoint(name) == await model.load_checkpoint(name)


@pytest.mark.parametrize("name", SESSIONS)
async def test_a_session_is_carried_over_once_with_all_that_it_holds(root: Path, name: str) -> None:
    store, repairs = JsonlStore(root), list[Repair]()
    before = {path.name: path.read_bytes() for path in (root / name).iterdir()}
    await assert_held(store, name)
    assert {path.name: path.read_bytes() for path in (root / name).iterdir()} == before, "reading writes nothing"
    for _ in range(2):
        await store.open(name, repairs.append)
        await assert_held(store, name)
        assert await store.verify(name) == []
        await store.close()
    assert repairs == []
    assert Files(root, name).messages == [one.message for one in await store.read(name)]
    await store.close()


async def test_the_former_files_are_kept_until_a_message_is_erased(root: Path) -> None:
    files = Files(root, "whole")
    names = ["context-messages.archive.jsonl", "context-messages.checkpoint", "context-messages.index.jsonl"]
    before, text = [files.path(name).read_bytes() for name in names], files.main.read_bytes()
    store = JsonlStore(root)
    await store.open("whole")
    assert [files.path(f"former/{name}").read_bytes() for name in names] == before
    assert files.main.read_bytes() == text, "the text file is the mirror"
    await store.append("whole", entries(14, 14, session_id="whole"))
    assert files.path("former").exists()
    await store.rewrite("whole", [entry(5, "(erased)", session_id="whole")])
    assert not files.path("former").exists()
    await store.close()


async def test_a_session_is_deleted_with_its_former_files(root: Path) -> None:
    store = JsonlStore(root)
    await store.open("whole")
    for name in SESSIONS:
        await store.delete(name)
    await store.close()
    assert list(root.iterdir()) == []


async def test_what_an_interrupted_erasure_left_is_not_kept(root: Path) -> None:
    store = JsonlStore(root)
    await store.open("erased")
    assert not Files(root, "erased").path("former").exists()
    assert b"message 5" not in b"".join(path.read_bytes() for path in (root / "erased").iterdir())
    await store.close()


async def test_a_journal_that_is_torn_is_not_applied(root: Path) -> None:
    journal = Files(root, "edited").path("context-messages.pending")
    journal.write_bytes(journal.read_bytes()[:-1])
    store = JsonlStore(root)
    assert await store.open("edited") == Extent(10, 13)
    assert [one.seq for one in await store.read("edited")] == [*range(1, 10), 11]
    await store.close()


async def test_messages_that_the_former_index_does_not_know_are_new(root: Path) -> None:
    with Files(root, "whole").main.open("ab") as file:
        file.write(b'{"role": "user", "content": "theirs"}\n')
    store = JsonlStore(root)
    assert await store.open("whole") == Extent(11, 14)
    assert (await store.read("whole"))[-1].message["content"] == "theirs"
    await store.close()


async def test_what_is_carried_over_is_synced_before_the_text_is_written_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `durability` says: the text is what the database was made from."""
    write_all, copied = Mirror._write_all, tmp_path / "erased"
    copied.mkdir()

    def noted(mirror: Mirror, db: sqlite3.Connection, session: SessionRow) -> Identity:
        shutil.copy(Files(root, "erased").database, copied)  # its log may be lost
        return write_all(mirror, db, session)

    monkeypatch.setattr(Mirror, "_write_all", noted)
    store = JsonlStore(root, durability="flush")
    await store.open("erased")
    await store.close()
    store = JsonlStore(tmp_path)
    await assert_held(store, "erased")
    await store.close()


@pytest.mark.parametrize("name", SESSIONS)
async def test_whatever_call_fails_a_session_is_carried_over_or_can_be_later(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=number % 2 == 0)
        folder = root / f"try {number}"
        unpack(folder)
        store = JsonlStore(folder)
        with using(monkeypatch, faulty), monkeypatch.context() as patch:
            patch.setattr(former, "os", faulty)
            try:
                await store.open(name)
            except StoreError:
                pass
            else:
                await assert_held(store, name)
        await store.close()
        again = JsonlStore(folder)
        await again.open(name)
        await assert_held(again, name)
        await again.close()
        left = {path.name for path in (folder / name).iterdir()}
        assert left <= {"context.db", "context-messages.jsonl", "former"}, f"call {number} left {sorted(left)}"
        if not faulty.failed:
            return
    pytest.fail("there is no end of calls")
