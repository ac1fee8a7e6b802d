"""The files themselves: their format, names and permissions."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
from tests.stores.jsonl.files import Files, reopen

# -- format ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", ["archive.jsonl", "lock", "db"])
def test_one_file_never_has_the_name_of_a_file_that_belongs_to_another(root: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"transcript_path: names talk.{kind}"):
        JsonlStore(root, file=root / f"talk.{kind}")


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


async def test_nothing_is_left_of_a_session_that_was_only_opened(root: Path) -> None:
    store = JsonlStore(root)
    await store.open("s")
    assert (root / "s").exists()
    await store.release("s")
    assert not (root / "s").exists()
    await store.close()
