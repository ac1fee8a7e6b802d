"""The files themselves: their names and rights, and one file as the session."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries


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
    assert len(file.read_text().splitlines()) == 2
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
    with pytest.raises(ConfigError, match="choose another id"):
        await store.fork("s", "x.index")
    assert (await store.extent("x.index")).length == 4  # no fork has this id: the one file
    with pytest.raises(StoreError, match="already"):
        await store.fork("s", "s")
    assert [one.seq for one in await store.read("x")] == [1, 2, 3, 9]
    assert sorted((info.session_id, info.length) for info in await store.sessions()) == [("talk", 4), ("x", 4)]
    await store.release("x")
    assert {path.name for path in root.glob("talk.fork-x*")} == {"talk.fork-x.jsonl", "talk.fork-x.db"}
    await store.delete("x")
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 4]
    await store.close()


@pytest.mark.parametrize("kind", ["archive.jsonl", "lock", "db"])
def test_one_file_never_has_the_name_of_a_file_that_belongs_to_another(root: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"transcript_path: names talk.{kind}"):
        JsonlStore(root, file=root / f"talk.{kind}")


@pytest.mark.parametrize("one_file", [False, True])
async def test_where_case_is_ignored_two_ids_are_never_one_file(
    root: Path, one_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS and Windows."""
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
    store = JsonlStore(root, file=root / "main.jsonl" if one_file else None)
    await store.append("parent", entries(1, 3))
    await store.fork("parent", "Task-One")
    for other in ("task-one", "TASK-ONE", "tASK-oNE"):
        for call in (store.read(other), store.append(other, entries(1, 1))):
            with pytest.raises(ConfigError, match="in case only"):
                await call
    assert len(await store.read("Task-One")) == 3
    await store.fork("parent", "Task-Two")
    await store.close()


async def test_nothing_is_left_of_a_session_that_was_only_opened(root: Path, store: JsonlStore) -> None:
    await store.open("s")
    assert (root / "s").exists()
    await store.release("s")
    assert not (root / "s").exists()
