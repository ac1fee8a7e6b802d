"""Other programs write to the mirror, or put other things in its place; what commit 37ba2a6 kept is carried over."""

import asyncio
import json
import os
import shutil
import sqlite3
import tarfile
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, KeptVector, MemoryStore, Repair, Store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite.driver import Connection
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.refusals import refused
from tests.stores.jsonl.files import CHANGES, Change, Files, begin, reopen, using, write

THEIRS = {"role": "user", "content": "theirs, é"}
WRITTEN = r"another program wrote to .* release the session"


def dumped(*messages: dict[str, Any]) -> bytes:
    """Lines as the replaced module writes them."""
    return "".join(json.dumps(message) + "\n" for message in messages).encode()


def append(files: Files, *messages: dict[str, Any]) -> None:
    with files.main.open("ab") as file:
        file.write(dumped(*messages))


async def test_a_rewrite_of_the_same_size_and_time_is_noticed(root: Path, store: JsonlStore) -> None:
    files = await write(root, 3)
    before = files.main.stat()
    files.main.write_bytes(files.main.read_bytes().replace(b"def f_3", b"def g_3"))
    os.utime(files.main, ns=(before.st_atime_ns, before.st_mtime_ns))
    await store.open("s")
    assert "def g_3" in (await store.read("s"))[-1].message["content"]


async def test_a_search_leaves_a_text_file_of_another_program_as_it_is(root: Path, store: JsonlStore) -> None:
    """It locks nothing: a database that it made would bring back what the other program removes after that."""
    files = await write(root, 6)
    files.database.unlink()
    assert await store.search("s", "f_3", 3) == [3]
    await store.save_vectors("s", "model", [KeptVector(3, b"digest", b"vector")])
    assert [one.name for one in files.main.parent.iterdir()] == [files.main.name]
    files.main.write_bytes(dumped(*files.messages[:2]))
    assert await store.open("s") == Extent(2, 2)


@pytest.mark.parametrize("end", [b"\0" * 700, b'{"role": "user", "con', 40, 0, None], ids=str)
async def test_a_mirror_that_was_cut_short_or_is_gone_or_torn_is_written_again_in_silence(
    root: Path, store: JsonlStore, end: bytes | int | None
) -> None:
    files, repairs = await write(root, 5), list[Repair]()
    whole = files.main.read_bytes()
    if end is None:
        files.main.unlink()
    else:
        files.main.write_bytes(whole[:end] if isinstance(end, int) else whole + end)
    assert await store.open("s", repairs.append) == Extent(5, 5)
    await store.close()
    assert files.main.read_bytes() == whole
    assert repairs == []


async def test_what_was_added_behind_a_torn_line_goes_to_the_end_and_the_line_into_quarantine(
    root: Path, store: JsonlStore
) -> None:
    files, repairs = await write(root, 5), list[Repair]()
    files.main.write_bytes(files.main.read_bytes()[:-5] + dumped(THEIRS) + dumped(THEIRS))
    await store.open("s", repairs.append)
    await store.close()
    assert [(one.lost, one.quarantined_at) for one in repairs] == [(1, str(files.damaged))]
    assert "1 messages added, 0 removed" in repairs[0].summary
    assert files.damaged.read_bytes().count(b"\n") == 1
    assert files.messages == [*(one.message for one in entries(1, 5)), THEIRS]
    await store.rewrite("s", [entry(1, "forgotten")])
    assert not files.damaged.exists()


async def test_a_session_of_the_replaced_modules_is_opened_with_one_warning(root: Path, store: JsonlStore) -> None:
    """Written by `json.dumps`, a message a line, the timestamp in metadata (newer) or on top (older)."""
    theirs: list[dict[str, Any]] = [
        {"role": "system", "content": "Be careful."},
        {"role": "user", "content": "Lies é 読", "timestamp": "2025-01-01T00:00:00"},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "a", "name": "read", "input": {}}],
            "tool_calls": [{"id": "a", "tool": "read", "arguments": {}}],
            "metadata": {"timestamp": "2025-01-01T00:00:01.000+00:00"},
        },
        {"role": "tool", "tool_call_id": "a", "name": "read", "content": "half a pair: \ud83d"},
        {"role": "user", "content": "Go on."},
    ]
    (root / "s").mkdir()
    files = Files(root)
    files.main.write_bytes(dumped(*theirs) + b"no message\n")
    assert await store.verify("s") == ["1 lines of context-messages.jsonl are no messages"]
    assert [info.length for info in await store.sessions()] == [6], "lines are counted"
    assert [one.message for one in await store.read("s")] == theirs
    assert not files.database.exists(), "reading writes nothing"
    found, repairs = await reopen(root)
    assert [one.message for one in found.history] == theirs
    assert [one.turn for one in found.history] == [0, 1, 1, 1, 2]
    assert [one.created for one in found.history][1:3] == ["2025-01-01T00:00:00", "2025-01-01T00:00:01.000+00:00"]
    assert [(one.lost, one.quarantined_at) for one in repairs] == [(1, str(files.damaged))]
    assert files.damaged.read_bytes() == b"no message\n"


async def test_a_folder_that_was_copied_or_renamed_is_the_session_of_its_name(root: Path, store: JsonlStore) -> None:
    await write(root, 3)
    shutil.copytree(root / "s", root / "t")
    (root / "s").rename(root / "u")
    for name in ("t", "u"):
        assert_same(await store.read(name), entries(1, 3, session_id=name))
        await store.append(name, entries(4, 4, session_id=name))
        assert_same(await store.read(name), entries(1, 4, session_id=name))
    assert sorted(info.session_id for info in await store.sessions()) == ["t", "u"]


@pytest.mark.parametrize("begun", [0, 3])
async def test_what_another_program_writes_meanwhile_is_neither_lost_nor_written_into(
    root: Path, store: JsonlStore, begun: int
) -> None:
    await store.open("s")
    await store.append("s", entries(1, begun))
    append(Files(root), THEIRS)
    for name in ("append", "batch", "replace into the checkpoint", "clear") if begun else ("append",):
        await refused(CHANGES[name](store), says=WRITTEN)
    assert_same((await store.read("s"))[:begun], entries(1, begun))
    await store.release("s")
    assert await store.open("s") == Extent(begun + 1, begun + 1)
    assert (await store.read("s"))[begun].message == THEIRS
    await store.append("s", entries(begun + 2, begun + 2))
    assert len(Files(root).messages) == begun + 2


async def test_what_another_program_puts_in_place_of_the_text_file_while_a_line_is_written_is_not_lost(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("s", entries(1, 1))
    await store.append("s", entries(2, 2))
    main = Files(root).main

    class Replacing:
        def __getattr__(self, name: str) -> Any:
            if name == "write":
                new = main.with_name("new")
                new.write_bytes(main.read_bytes() + dumped(THEIRS))
                new.replace(main)
            return getattr(os, name)

    with using(monkeypatch, Replacing()):
        await store.append("s", entries(3, 3))
    with pytest.raises(StoreError, match=WRITTEN):
        await store.append("s", entries(4, 4))
    await store.release("s")
    expected = [*(one.message for one in entries(1, 3)), THEIRS]
    assert [one.message for one in await store.read("s")] == expected[:3]
    await store.open("s")
    assert [one.message for one in await store.read("s")] == Files(root).messages == expected


@pytest.mark.parametrize("is_refused", [False, True])
async def test_changes_that_share_a_transaction_are_in_the_text_file_as_in_the_database(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """They queue up while the line of the first is written. If one of them is refused, each is made in its own."""
    are_queued = threading.Event()

    class Waiting:
        def __getattr__(self, name: str) -> Any:
            if name == "write":
                are_queued.wait(10)
            return getattr(os, name)

    for first, second in product(range(8), range(11)):
        are_queued.set()
        await store.replace("s", 0, entries(1, 4))
        are_queued.clear()
        with using(monkeypatch, Waiting()):
            changing = asyncio.gather(
                store.append("s", entries(5, 5)),
                store.append("s", entries(6, 7)),
                store.replace("s", first, entries(8, 8)),
                store.append("s", entries(9, 10)),
                store.replace("s", min(second, first + 3), entries(11, 11)),
                store.replace("s", 99, entries(12, 12)) if is_refused else store.append("s", entries(12, 12)),
                return_exceptions=True,
            )
            await asyncio.sleep(0.005)
            are_queued.set()
            *made, refused = await changing
        assert made == [None] * 5
        assert isinstance(refused, StoreError) == is_refused
        assert Files(root).messages == [one.message for one in await store.read("s")]


@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_after_a_commit_of_unknown_outcome_the_mirror_shows_what_the_database_holds(
    root: Path, store: JsonlStore, change: Change, is_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    execute = Connection.execute

    def fail(db: Connection, statement: str, *values: Any) -> Any:
        if statement != "COMMIT" or is_made:
            done = execute(db, statement, *values)
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "execute", fail)
        await refused(change(store))
    await store.append("s", entries(90, 90))
    assert Files(root).messages == [one.message for one in await store.read("s")]


async def test_an_erased_message_is_not_read_back_from_a_former_state(root: Path, store: JsonlStore) -> None:
    """Restored from a backup, and continued by the program that has the session still."""
    stamp = {"timestamp": "2026-01-01T00:00:00.123+00:00"}
    await store.append("s", [entry(1), entry(2, {"role": "user", "content": "a secret", "metadata": stamp}), entry(3)])
    files = Files(root)
    former = files.main.read_bytes()
    await store.rewrite("s", [entry(2, {"role": "user", "content": "(erased)", "metadata": stamp})])
    await store.close()
    files.main.write_bytes(former + dumped(THEIRS))
    await store.open("s")
    assert [one.message["content"] for one in await store.read("s", 1)] == [
        "(erased)",
        "This is message 3.",
        "theirs, é",
    ]
    assert b"a secret" not in b"".join(path.read_bytes() for path in (root / "s").iterdir())


@pytest.mark.parametrize("happened", ["removed", "replaced"])
async def test_nothing_is_written_to_a_database_that_another_program_removed(
    root: Path, store: JsonlStore, happened: str
) -> None:
    await store.append("s", entries(1, 3))
    (root / "s").rename(root / "elsewhere")
    if happened == "replaced":
        shutil.copytree(root / "elsewhere", root / "s")
    await refused(store.append("s", entries(4, 4)), says="another program removed or replaced")
    await store.release("s")
    await store.append("s", entries(9, 9))


async def test_a_lock_file_that_is_not_locked_names_no_holder(root: Path, store: JsonlStore) -> None:
    owner = (await write(root, 2)).path("context-messages.lock")
    ours, odd = (json.dumps({"pid": pid, "host": os.uname().nodename}) for pid in (os.getpid(), "x"))
    for text in (ours, odd, "", "garbage", "[]", "\0"):
        owner.write_text(text)
        assert [info.holder for info in await store.sessions()] == [""]
    await store.open("s")


async def test_a_session_folder_that_is_a_link_out_of_the_root_is_refused(root: Path) -> None:
    for folder in ("outside", "sessions"):
        (root / folder).mkdir()
    store, inside = JsonlStore(root / "sessions"), root / "sessions"
    for name, place in (("s", root / "outside"), ("dangling", root / "nowhere"), ("link", inside / "real")):
        (inside / name).symlink_to(place)
    for ask in (store.open("s"), store.read("s"), store.append("dangling", entries(1, 1)), store.delete("s")):
        with pytest.raises(StoreError, match="link out of"):
            await ask
    assert list((root / "outside").iterdir()) == []
    await store.append("real", entries(1, 2))
    await store.close()
    assert [one.seq for one in await store.read("link")] == [1, 2]
    await store.close()


# Recorded with that commit: `begin` in each; in the last two, a crash came before an edit was applied.
RECORDED = Path(__file__).with_name("format_of_37ba2a6.tar.xz")
SESSIONS = ("whole", "edited", "erased")
FORMER = ("context-messages.archive.jsonl", "context-messages.checkpoint", "context-messages.index.jsonl")


def unpack(folder: Path) -> None:
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")


@pytest.fixture
def former(root: Path) -> Path:
    unpack(root)
    return root


async def assert_held(store: Store, name: str) -> None:
    """Fail unless a store holds all of a session."""
    model = MemoryStore()
    await begin(model, name)
    if name == "edited":
        new = entries(20, 21, session_id=name)
        await model.replace(name, 6, [*new, entries(8, 8, session_id=name)[0]])
    elif name == "erased":
        await model.rewrite(name, [entry(5, "(erased)", session_id=name)])
    assert not (await whole(store, name)).differs(await whole(model, name))


@pytest.mark.parametrize("name", SESSIONS)
async def test_a_session_is_carried_over_once_with_all_that_it_holds(
    former: Path, store: JsonlStore, name: str
) -> None:
    repairs: list[Repair] = []
    before = {path.name: path.read_bytes() for path in (former / name).iterdir()}
    await assert_held(store, name)
    assert {path.name: path.read_bytes() for path in (former / name).iterdir()} == before, "reading writes nothing"
    for _ in range(2):
        await store.open(name, repairs.append)
        await assert_held(store, name)
        assert await store.verify(name) == []
        await store.close()
    assert repairs == []
    assert Files(former, name).messages == [one.message for one in await store.read(name)]


async def test_the_former_files_are_kept_until_a_message_or_the_session_is_erased(
    former: Path, store: JsonlStore
) -> None:
    files = Files(former, "whole")
    before, text = [files.path(name).read_bytes() for name in FORMER], files.main.read_bytes()
    await store.open("whole")
    assert [files.path(f"former/{name}").read_bytes() for name in FORMER] == before
    assert files.main.read_bytes() == text, "the text file is the mirror"
    await store.append("whole", entries(14, 14, session_id="whole"))
    assert files.path("former").exists()
    await store.rewrite("whole", [entry(5, "(erased)", session_id="whole")])
    assert not files.path("former").exists()
    await store.open("erased")
    assert not files.path("../erased/former").exists(), "what an interrupted erasure left is not kept"
    assert b"message 5" not in b"".join(path.read_bytes() for path in (former / "erased").iterdir())
    await store.open("edited")
    for name in SESSIONS:
        await store.delete(name)
    assert list(former.iterdir()) == []


async def test_a_torn_journal_is_not_applied_and_messages_that_the_index_lacks_are_new(
    former: Path, store: JsonlStore
) -> None:
    journal = Files(former, "edited").path("context-messages.pending")
    journal.write_bytes(journal.read_bytes()[:-1])
    assert await store.open("edited") == Extent(10, 13)
    assert [one.seq for one in await store.read("edited")] == [*range(1, 10), 11]
    with Files(former, "whole").main.open("ab") as file:
        file.write(b'{"role": "user", "content": "theirs"}\n')
    assert await store.open("whole") == Extent(11, 14)
    assert (await store.read("whole"))[-1].message["content"] == "theirs"
