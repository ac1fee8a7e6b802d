"""Sessions as commit 37ba2a6 kept them open once, with all that they hold, and are carried over."""

import tarfile
from pathlib import Path

import pytest

from amplifier_context_core.stores import Extent, MemoryStore, Repair, Store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import Files, begin

# Recorded with that commit: `begin` in each; in the last two, a crash came before an edit was applied.
RECORDED = Path(__file__).with_name("format_of_37ba2a6.tar.xz")
SESSIONS = ("whole", "edited", "erased")
FORMER = ("context-messages.archive.jsonl", "context-messages.checkpoint", "context-messages.index.jsonl")


def unpack(folder: Path) -> None:
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")


@pytest.fixture(autouse=True)
def recorded(root: Path) -> None:
    unpack(root)


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
async def test_a_session_is_carried_over_once_with_all_that_it_holds(root: Path, store: JsonlStore, name: str) -> None:
    repairs: list[Repair] = []
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


async def test_the_former_files_are_kept_until_a_message_or_the_session_is_erased(
    root: Path, store: JsonlStore
) -> None:
    files = Files(root, "whole")
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
    assert b"message 5" not in b"".join(path.read_bytes() for path in (root / "erased").iterdir())
    await store.open("edited")
    for name in SESSIONS:
        await store.delete(name)
    assert list(root.iterdir()) == []


async def test_a_torn_journal_is_not_applied_and_messages_that_the_index_lacks_are_new(
    root: Path, store: JsonlStore
) -> None:
    journal = Files(root, "edited").path("context-messages.pending")
    journal.write_bytes(journal.read_bytes()[:-1])
    assert await store.open("edited") == Extent(10, 13)
    assert [one.seq for one in await store.read("edited")] == [*range(1, 10), 11]
    with Files(root, "whole").main.open("ab") as file:
        file.write(b'{"role": "user", "content": "theirs"}\n')
    assert await store.open("whole") == Extent(11, 14)
    assert (await store.read("whole"))[-1].message["content"] == "theirs"
