"""A damaged database is reported, and not written to. A repair takes what it lost from the text file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Repair
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries
from tests.stores.jsonl.files import Files, garble, unlocked, write

COMMAND = r"amplifier_context_core\.repair"


async def test_a_damaged_message_is_left_out_and_its_session_takes_no_other(root: Path, store: JsonlStore) -> None:
    garble((await write(root, 6, checkpoint=2)).database, 4)
    await write(root, 2, session_id="other")
    repairs: list[Repair] = []
    assert (await store.open("s", repairs.append)).length == 6
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 5, 6]
    assert await store.load_checkpoint("s") == b"covers some"
    assert [one.lost for one in repairs] == [1]
    assert len(await store.verify("s")) == 1
    with pytest.raises(StoreError, match=COMMAND):
        await store.append("s", entries(7, 7))
    await store.append("other", entries(3, 3, session_id="other"))
    assert len(Files(root).messages) == 6


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
    repaired, repairs = JsonlStore(files.root), list[Repair]()
    await repaired.repair("s", repairs.append)
    found = await repaired.read("s")
    assert [one.message for one in found] == [one.message for one in entries(1, 6 + crashed)]
    assert repairs != []
    assert await repaired.verify("s") == []
    await repaired.close()
    assert files.messages == [one.message for one in found]


async def test_what_no_file_holds_is_lost_and_counted_and_is_deleted_with_its_session(
    root: Path, store: JsonlStore
) -> None:
    files, repairs = await write(root, 6), list[Repair]()
    garble(files.database, 3)
    files.main.unlink()
    await store.repair("s", repairs.append)
    assert [one.seq for one in await store.read("s")] == [1, 2, 4, 5, 6]
    assert sum(one.lost for one in repairs) == 1
    await store.append("s", entries(7, 7))
    await store.release("s")
    assert files.messages[-1] == entries(7, 7)[0].message
    for ending in (".repairing", ".repairing-wal"):  # of a repair that was killed
        files.path(f"context.db{ending}").write_bytes(b"messages")
    await store.delete("s")
    assert [*root.iterdir()] == []


async def test_a_file_that_is_no_database_is_kept_and_the_text_is_the_session(root: Path, store: JsonlStore) -> None:
    files = await write(root, 6)
    files.database.write_bytes(b"no database" * 1_000)
    for call in (store.open("s"), store.read("s"), store.append("s", entries(7, 7))):
        with pytest.raises(StoreError, match=COMMAND):
            await call
    assert [info.session_id for info in await store.sessions()] == ["s"]
    await store.repair("s")
    assert [one.message for one in await store.read("s")] == [one.message for one in entries(1, 6)]
    assert len(list((root / "s").glob("context.db.damaged-*"))) == 1
    await store.close()
    assert files.messages == [one.message for one in entries(1, 6)]


async def test_a_repair_that_was_interrupted_is_completed_by_the_next(root: Path, store: JsonlStore) -> None:
    """Also where the damaged database is moved away, and the new one is not in its place yet."""
    files = await write(root)
    files.database.rename(files.path("context.db.repaired"))
    with pytest.raises(StoreError, match=rf"was interrupted.*{COMMAND}"):
        await store.open("s")
    await store.repair("s")
    assert_same(await store.read("s"), entries(1, 10))


async def test_a_repair_of_a_sound_session_that_is_open_changes_nothing(root: Path, store: JsonlStore) -> None:
    repairs: list[Repair] = []
    await store.append("s", entries(1, 3))
    with Files(root).main.open("ab") as file:
        file.write(b'{"role": "user", "content": "theirs"}\n')
    await store.repair("s", repairs.append)
    assert [one.seq for one in await store.read("s")] == [1, 2, 3]
    assert repairs == []
