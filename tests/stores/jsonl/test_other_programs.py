"""Other programs append to the files, replace or remove them, or put other things in their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries
from tests.stores.jsonl.changes import CHANGES, begin
from tests.stores.jsonl.files import Files

# -- other programs ----------------------------------------------------------------------------------------------------


async def test_what_another_program_appends_is_neither_lost_nor_written_into(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    with Files(root).main.open("ab") as file:
        file.write(b'{"role": "user", "content": "theirs"}\n')
    for name in ("append", "batch", "replace into the checkpoint", "clear"):
        with pytest.raises(StoreError, match=r"another program wrote to .* release the session"):
            await CHANGES[name](store)
    assert_same(await store.read("s"), entries(1, 3))
    await store.release("s")
    assert await store.open("s") == Extent(4, 4)
    assert (await store.read("s"))[3].message["content"] == "theirs"
    await store.append("s", entries(5, 5))
    await store.close()
    assert len(Files(root).messages) == 5


@pytest.mark.parametrize("durability", ["fsync", "flush", "none"])
async def test_a_file_another_program_replaced_is_not_written_to(root: Path, durability: Any) -> None:
    store = JsonlStore(root, durability=durability)
    await store.append("s", entries(1, 3))
    await store.extent("s")
    await store.read("s")
    files = Files(root)
    theirs = root / "theirs"
    theirs.write_bytes(files.lines[0])
    theirs.replace(files.main)
    if durability == "none":
        await store.append("s", entries(4, 4))  # buffered: the fault appears when it is written
        with pytest.raises(StoreError, match="another program replaced"):
            await store.read("s")
    else:
        with pytest.raises(StoreError, match="another program replaced"):
            await store.append("s", entries(4, 4))
    await store.release("s")
    assert [one.seq for one in await store.read("s")] == [1]
    await store.append("s", entries(4, 4))
    assert [one.seq for one in await store.read("s")] == [1, 4]
    await store.close()


async def test_a_file_another_program_removed_is_not_made_again(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    Files(root).main.unlink()
    with pytest.raises(StoreError, match="another program removed"):
        await store.append("s", entries(4, 4))
    await store.release("s")
    assert (await store.open("s")).length == 0
    await store.close()


def _removed(main: Path) -> None:
    main.unlink()


def _moved(main: Path) -> None:
    main.rename(main.with_name("elsewhere"))


def _moved_with_its_folder(main: Path) -> None:
    main.parent.rename(main.parent.with_name("elsewhere"))


def _created_again(main: Path) -> None:
    data = main.read_bytes()
    main.unlink()
    main.write_bytes(data)


def _linked(main: Path) -> None:
    _moved(main)
    main.symlink_to(main.with_name("elsewhere"))


@pytest.mark.parametrize("happened", [_removed, _moved, _moved_with_its_folder, _created_again, _linked])
async def test_into_a_file_that_left_its_path_nothing_is_written(root: Path, happened: Callable[[Path], None]) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    descriptor = os.open(Files(root).main, os.O_RDONLY)
    before = os.fstat(descriptor).st_size
    happened(Files(root).main)
    with pytest.raises(StoreError, match=r"another program re(mov|plac)ed"):
        await store.append("s", entries(4, 4))
    assert os.fstat(descriptor).st_size == before
    os.close(descriptor)
    await store.close()


async def test_nothing_is_written_behind_a_link_that_leads_elsewhere_by_now(root: Path) -> None:
    (root / "one").mkdir()
    (root / "now").symlink_to(root / "one")
    store = JsonlStore(root / "now")
    await store.append("s", entries(1, 3))
    shutil.copytree(root / "one", root / "other")
    (root / "then").symlink_to(root / "other")
    (root / "then").replace(root / "now")
    with pytest.raises(StoreError, match="another program replaced"):
        await store.append("s", entries(4, 4))
    assert len(Files(root / "one").messages) == len(Files(root / "other").messages) == 3
    await store.close()


async def test_a_file_that_has_one_more_name_is_still_written_to(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    os.link(Files(root).main, root / "one more name")
    await store.append("s", entries(4, 4))
    (root / "one more name").unlink()
    await store.append("s", entries(5, 5))
    assert_same(await store.read("s"), entries(1, 5))
    await store.close()


# -- other things in place of files ------------------------------------------------------------------------------------


PARTS = ["jsonl", "index.jsonl", "archive.jsonl", "checkpoint", "pending", "lock"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("what", ["folder", "pipe", "link", "device"])
async def test_nothing_but_ordinary_files_is_opened_and_nothing_hangs(root: Path, part: str, what: str) -> None:
    store = JsonlStore(root)
    await begin(store)
    await store.close()
    elsewhere = root / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    place = Files(root).path(f"context-messages.{part}")
    place.unlink(missing_ok=True)
    if what == "folder":
        (place / "in it").mkdir(parents=True)
    elif what == "pipe":
        os.mkfifo(place)
    elif what == "link":
        place.symlink_to(elsewhere)
    else:
        try:
            os.mknod(place, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("making a device needs root")

    async def use() -> None:
        await store.open("s")
        await store.load_checkpoint("s")
        await store.replace("s", 2, entries(20, 20))

    with pytest.raises(StoreError, match=f"context-messages.{part}: "):
        await use()
    await store.close()
    assert elsewhere.read_bytes() == b"untouched"
    if place.is_dir():
        (place / "in it").rmdir()
        place.rmdir()
    else:
        place.unlink()
    await store.open("s")
    await store.append("s", entries(90, 90))
    await store.close()


async def test_a_session_folder_that_is_a_link_out_of_the_root_is_refused(root: Path) -> None:
    outside = root / "outside"
    outside.mkdir()
    inside = root / "sessions"
    inside.mkdir()
    (inside / "s").symlink_to(outside)
    (inside / "dangling").symlink_to(root / "nowhere")
    store = JsonlStore(inside)
    for ask in (store.open("s"), store.read("s"), store.append("dangling", entries(1, 1)), store.delete("s")):
        with pytest.raises(StoreError, match="link out of"):
            await ask
    assert list(outside.iterdir()) == []
    await store.append("real", entries(1, 2))
    await store.close()
    (inside / "link").symlink_to(inside / "real")
    assert [one.seq for one in await store.read("link")] == [1, 2]
    await store.close()


async def test_a_file_where_a_folder_should_be_is_named(root: Path) -> None:
    (root / "file").write_bytes(b"")
    store = JsonlStore(root / "file" / "sessions")
    with pytest.raises(StoreError, match="a file is in the place of a folder"):
        await store.append("s", entries(1, 1))
    with pytest.raises(StoreError, match="cannot be listed"):
        await store.sessions()
    await store.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a file system that takes no folders")
async def test_where_no_folder_can_be_made_the_store_says_so_and_does_not_try_for_ever() -> None:
    store = JsonlStore("/proc/nowhere/sessions")
    with pytest.raises(StoreError, match="nowhere"):
        await store.open("s", lambda _: None)
    await store.close()
