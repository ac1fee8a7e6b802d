"""The files themselves: their format, names and permissions."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import Checkable, Extent, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.reference import MatchesReference
from amplifier_context_testing.contract.replace import Replacing
from amplifier_context_testing.contract.rewrite import Rewriting
from amplifier_context_testing.contract.samples import entries, entry
from amplifier_context_testing.store_contract import MakeStore
from tests.stores.jsonl.files import Files, reopen, write

# -- format ------------------------------------------------------------------------------------------------------------


async def test_a_line_is_a_message_and_nothing_else(root: Path) -> None:
    files = await write(root, 9)
    assert files.messages == [one.message for one in entries(1, 9)]
    assert files.main.read_bytes().endswith(b"}\n")


async def test_a_file_of_the_replaced_modules_opens(root: Path) -> None:
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
        {"role": "user", "content": "And now?", "metadata": {"source": "hook"}},
        {"role": "user", "content": "Go on."},
    ]
    (root / "s").mkdir()
    Files(root).main.write_text("".join(json.dumps(message) + "\n" for message in theirs))
    found = await reopen(root)
    assert [one.message for one in found.history] == theirs
    assert [one.turn for one in found.history] == [0, 1, 1, 1, 1, 2]
    assert [one.created for one in found.history][1:3] == ["2025-01-01T00:00:00", "2025-01-01T00:00:01.000+00:00"]
    assert found.lost == 0


async def test_a_forgotten_message_is_in_no_file_any_more(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", [entry(1), entry(2, "the secret is tulip-a"), entry(3), entry(4, "the secret is tulip-b")])
    await store.save_checkpoint("s", 2, b"tulip-a")
    await store.replace("s", 3, [])
    await store.close()
    Files(root).main.write_bytes(Files(root).main.read_bytes() + b'{"torn, with tulip-c')
    await store.append("s", [entry(5, "tulip-d")])
    await store.search("s", "tulip", 3)
    await store.rewrite("s", [entry(seq, "forgotten") for seq in (2, 4, 5)])
    for path in (root / "s").iterdir():
        assert b"tulip" not in path.read_bytes(), path.name
    await store.close()
    assert [one.message["content"] for one in await store.read("s")][1::2] == ["forgotten", "forgotten"]
    await store.close()


async def test_without_an_archive_nothing_replaced_is_kept_and_no_seq_is_reused(root: Path) -> None:
    store = JsonlStore(root, archive=False)
    await store.append("s", entries(1, 6))
    await store.replace("s", 2, [])
    assert await store.archived("s") == []
    assert b"module_3" not in b"".join(path.read_bytes() for path in (root / "s").iterdir())
    await store.close()
    assert await store.open("s") == Extent(2, 6)
    await store.close()


class TestWithoutAnArchive(Replacing, Rewriting, MatchesReference):
    archives = False
    examples = 10

    @pytest.fixture
    def make_store(self, root: Path) -> MakeStore:
        async def make() -> JsonlStore:
            return JsonlStore(root, archive=False, durability="none")

        return make


# -- one file as the session -------------------------------------------------------------------------------------------


async def test_one_file_is_the_session_whatever_its_id(root: Path) -> None:
    file = root / "here" / "transcript.jsonl"
    store = JsonlStore(root / "unused", file=file)
    await store.append("s", entries(1, 3))
    await store.save_checkpoint("s", 2, b"two")
    await store.replace("s", 2, [])
    await store.close()
    assert len(file.read_text().splitlines()) == 2
    assert not (root / "unused").exists()
    names = {path.name for path in file.parent.iterdir()}
    assert names == {"transcript.jsonl", "transcript.db"}
    other = JsonlStore(root, file=file)
    assert await other.open("another id") == Extent(2, 3)
    assert await other.load_checkpoint("another id") == b"two"
    assert [(info.session_id, info.length) for info in await other.sessions()] == [("transcript", 2)]
    await other.delete("another id")
    await other.close()
    assert list(file.parent.iterdir()) == []


async def test_a_fork_never_takes_the_name_of_a_file_that_belongs_to_another_fork(root: Path) -> None:
    store = JsonlStore(root, file=root / "talk.jsonl")
    await store.append("s", entries(1, 4))
    await store.fork("s", "x", 2)
    with pytest.raises(ConfigError, match="choose another id"):
        await store.fork("s", "x.index")
    assert (await store.extent("x.index")).length == 4  # no fork has this id: the one file
    assert [info.session_id for info in await store.sessions() if info.session_id != "talk"] == ["x"]
    await store.close()
    assert {path.name for path in root.glob("talk.fork-x*")} == {"talk.fork-x.jsonl", "talk.fork-x.db"}


@pytest.mark.parametrize(
    "kind", ["index.jsonl", "archive.jsonl", "checkpoint", "pending", "damaged", "lock", "owner", "db"]
)
def test_one_file_never_has_the_name_of_a_file_that_belongs_to_another(root: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"transcript_path: names talk.{kind}"):
        JsonlStore(root, file=root / f"talk.{kind}")


async def test_in_folders_of_their_own_no_two_sessions_share_a_file(root: Path) -> None:
    names = ["x", "x.index", "x.archive", "x.jsonl", "x.index.jsonl", "context-messages.index"]
    store = JsonlStore(root)
    for number, name in enumerate(names, 1):
        await store.append(name, entries(1, number, session_id=name))
        await store.replace(name, number - 1, [])
    await store.close()
    for number, name in enumerate(names, 1):
        assert_same(await store.read(name), entries(1, number - 1, session_id=name))
        assert await store.verify(name) == []
    await store.close()


@pytest.fixture
def ignoring_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are found by their names in any case, as on macOS and Windows."""
    find = os.stat

    def found(path: str, *arguments: Any, **more: Any) -> os.stat_result:
        try:
            return find(path, *arguments, **more)
        except FileNotFoundError:
            asked = Path(path)
            same = [one for one in asked.parent.iterdir() if one.name.casefold() == asked.name.casefold()]
            if not same:
                raise
            return find(same[0], *arguments, **more)

    monkeypatch.setattr(os, "stat", found)


@pytest.mark.usefixtures("ignoring_case")
@pytest.mark.parametrize("one_file", [False, True])
async def test_where_case_is_ignored_two_ids_are_never_one_file(root: Path, one_file: bool) -> None:
    store = JsonlStore(root, file=root / "main.jsonl" if one_file else None)
    await store.append("parent", entries(1, 3))
    await store.fork("parent", "Task-One")
    for other in ("task-one", "TASK-ONE", "tASK-oNE"):
        with pytest.raises(ConfigError, match="in case only"):
            await store.read(other)
        with pytest.raises(ConfigError, match="in case only"):
            await store.append(other, entries(1, 1))
    assert len(await store.read("Task-One")) == 3
    await store.fork("parent", "Task-Two")
    await store.close()


async def test_a_fork_of_the_one_file_is_a_file_beside_it(root: Path) -> None:
    file = root / "transcript.jsonl"
    store = JsonlStore(root, file=file)
    await store.append("s", entries(1, 4))
    await store.fork("s", "child", 3)
    await store.append("child", entries(9, 9, session_id="child"))
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 4]
    assert [one.seq for one in await store.read("child")] == [1, 2, 3, 9]
    assert sorted((info.session_id, info.length) for info in await store.sessions()) == [
        ("child", 4),
        ("transcript", 4),
    ]
    with pytest.raises(StoreError, match="already"):
        await store.fork("s", "s")
    await store.delete("child")
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 4]
    await store.close()


async def test_a_file_of_the_hosts_keeps_its_rights(root: Path) -> None:
    file = root / "transcript.jsonl"
    file.write_bytes(b'{"role": "user", "content": "x"}\n')
    file.chmod(0o640)
    store = JsonlStore(root, file=file)
    await store.append("s", entries(2, 3))
    await store.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.iterdir() if path != file} == {0o600}


# -- URLs and permissions ----------------------------------------------------------------------------------------------


async def test_a_url_names_the_root_and_nothing_is_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.chdir(tmp_path)
    for url, place in (
        ("jsonl:~/in home", root / "in home"),
        (f"jsonl:{root}/absolute", root / "absolute"),
        ("jsonl:relative", tmp_path / "relative"),
    ):
        store = open_store(url)
        assert isinstance(store, JsonlStore)
        assert isinstance(store, Checkable)
        assert await store.sessions() == []
        assert not place.exists()
        await store.append("s", entries(1, 1))
        assert (place / "s" / "context-messages.jsonl").exists()
        await store.close()


@pytest.mark.parametrize("url", ["jsonl:", "jsonl: ", "jsonl:a\0b", "jsonl:~no-user-of-this-name/x"])
def test_a_url_without_a_usable_path_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="store"):
        open_store(url)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
async def test_files_and_folders_are_their_owners_only_whatever_the_umask(root: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = JsonlStore(root / "deep" / "er")
        await store.append("s", entries(1, 6))
        await store.save_checkpoint("s", 2, b"two")
        await store.replace("s", 3, entries(7, 8))
        await store.rewrite("s", [entry(1, "rewritten")])
        await store.fork("s", "child")
        await store.append("s", entries(9, 9))
        await store.release("child")
    finally:
        os.umask(before)
    paths = [path for path in (root / "deep").rglob("*") if path.is_file()]
    assert len(paths) >= 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    folders = [root / "deep", *(path for path in (root / "deep").rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    await store.close()


async def test_nothing_is_left_of_a_session_that_was_only_opened(root: Path) -> None:
    store = JsonlStore(root)
    await store.open("s")
    assert (root / "s").exists()
    await store.release("s")
    assert not (root / "s").exists()
    await store.close()


async def test_a_released_session_leaves_no_files_of_the_moment(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 5))
    await store.replace("s", 3, [])
    await store.close()
    assert {path.name for path in (root / "s").iterdir()} == {"context-messages.jsonl", "context.db"}
