"""What both stores in files keep to: their owner's files, the processes that use them, and disks that are full or
read-only, where they lose nothing acknowledged and name the way out.
"""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_context_core import SessionInUse, StoreError, open_store
from amplifier_context_core.stores import Extent, Searchable
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same, assert_unknown, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.refusals import refused
from tests.stores.jsonl.files import CHANGES, begin, running
from tests.stores.sqlite.damage import change


@pytest.fixture(params=["jsonl:{}/deep/er/sessions", "sqlite:{}/deep/er/sessions.db"], ids=["jsonl", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.param.format(tmp_path)


@pytest.mark.parametrize("mask", [0o000, 0o277])
async def test_files_are_the_owners_only_whatever_the_umask(url: str, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        store = open_store(url)
        await begin(store)
        await store.rewrite("s", [entry(1, "rewritten")])
        await store.fork("s", "child")
    finally:
        os.umask(before)
    found = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
    await store.close()
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left in ({"sessions.db"}, {"context.db", "context-messages.jsonl"})


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
async def test_a_url_names_a_path_as_a_shell_does_and_reading_makes_no_file(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, place in (("~/in home/x", "home/in home/x"), ("relative", "relative"), (f"{tmp_path}/y", "y")):
        store = open_store(f"{scheme}:{name}")
        assert isinstance(store, Searchable)
        await assert_unknown(store, "s")
        assert await store.search("s", "anything", 3) == []
        await store.release("s")
        assert not (tmp_path / place).exists()
        await store.append("s", entries(1, 1))
        assert (tmp_path / place).exists()
        await store.close()


FILES = [("jsonl:{}", f"s/{name}") for name in ("context-messages.jsonl", "context-messages.lock", "context.db")]
DATABASE = [("sqlite:{}/sessions.db", name) for name in ("sessions.db", "sessions.db-wal")]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda place: place.symlink_to(place.with_name("elsewhere"))])
@pytest.mark.parametrize(("url", "file"), [*FILES, *DATABASE])
async def test_nothing_but_ordinary_files_is_opened_until_it_is_moved_away_and_nothing_hangs(
    tmp_path: Path, url: str, file: str, make: Callable[[Path], None]
) -> None:
    store, place = open_store(url.format(tmp_path)), tmp_path / file
    await begin(store)
    await store.close()
    place.unlink(missing_ok=True)
    make(place)
    await refused(store.append("s", entries(90, 90)), says=rf"{place.name}|is no file|symbolic link")
    assert not place.with_name("elsewhere").exists()
    await store.close()
    place.rmdir() if place.is_dir() else place.unlink()
    await store.append("s", entries(90, 90))
    await store.close()


async def test_without_an_archive_nothing_replaced_is_kept(url: str, tmp_path: Path) -> None:
    store = open_store(url, archive=False)
    await store.append("s", entries(1, 6))
    assert isinstance(store, Searchable)
    assert await store.search("s", "module_5", 5)  # the index holds it now
    await store.replace("s", 2, [])
    await store.close()
    assert b"module_5" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


PRELUDE = """
import asyncio, os, sys
from amplifier_context_core import open_store
from amplifier_context_core.errors import StoreError
from amplifier_context_testing.contract.samples import entries
"""
WRITER = """
async def main():
    store = open_store(sys.argv[1])
    await store.append("s", entries(1, 2))
    print("ready", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


async def test_a_writer_is_named_and_once_it_is_killed_its_session_is_free_and_its_work_is_there(url: str) -> None:
    store = open_store(url)
    with running(PRELUDE + WRITER, url) as process:
        with pytest.raises(SessionInUse) as caught:
            await store.append("s", entries(3, 3))
        assert caught.value.holder.startswith(f"pid {process.pid} on {os.uname().nodename}, since 20")
        process.kill()
    await store.append("s", entries(3, 3))
    assert [one.seq for one in await store.read("s")] == [1, 2, 3]
    await store.close()


UNCLOSED = """
asyncio.run(open_store(sys.argv[1], durability="none").append("s", entries(1, 4)))
"""
FORKED = """
store = open_store(sys.argv[1])
asyncio.run(store.append("s", entries(1, 3)))
child = os.fork()
if not child:
    try:
        asyncio.run(store.append("s", entries(4, 4)))
    except StoreError as problem:
        os._exit(7 if "forked" in str(problem) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
asyncio.run(store.append("s", entries(4, 4)))
asyncio.run(store.close())
"""


@pytest.mark.parametrize("program", [UNCLOSED, FORKED], ids=["it does not close", "it forks, and says so in the child"])
async def test_a_process_that_ends_has_everything_written_and_released(url: str, program: str) -> None:
    command = [sys.executable, "-W", "error", "-c", PRELUDE + program, url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    store = open_store(url)
    assert [(info.length, info.holder) for info in await store.sessions()] == [(4, "")]
    assert await store.open("s") == Extent(4, 4)
    await store.close()


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A file system of a megabyte, in memory."""
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def fill(disk: Path, free: int = 0) -> None:
    """Write until so many bytes are free."""
    with open(disk / "filling", "wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(1_024))
        file.truncate(file.tell() - free)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


KILLED = """
import asyncio, os, sys
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries
async def main():
    await SqliteStore(sys.argv[1]).append("s", entries(1, 1_200))
    os._exit(9)
asyncio.run(main())
"""


@pytest.mark.parametrize(("limit", "says"), [(fill, "the disk is full; free some"), (make_read_only, "read-only")])
@pytest.mark.parametrize("is_log_readable", [True, False])
async def test_on_a_disk_that_takes_no_byte_what_a_killed_writer_left_is_read_or_refused_as_a_whole(
    disk: Path, limit: Callable[[Path], None], says: str, is_log_readable: bool
) -> None:
    path = disk / "sessions.db"
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    if not is_log_readable:  # without the shared memory beside it
        path.with_name("sessions.db-shm").unlink()
    store = SqliteStore(path, busy=0.1)
    limit(disk)
    if is_log_readable:
        assert_same((await whole(store)).history, entries(1, 1_200))
        assert len(await store.search("s", "module 7", 3)) == 3
        assert await store.verify("s") == []
    else:
        await refused(store.read("s"), says=says)
    await refused(store.append("s", entries(1_201, 1_201)), store.rewrite("s", entries(1, 1)), says=says)
    await store.close()


async def test_a_repair_for_which_the_disk_has_some_space_is_whole_or_changes_nothing(disk: Path) -> None:
    path, outcomes = disk / "sessions.db", set[str]()
    store = SqliteStore(path)
    await store.append("s", entries(1, 150))
    await store.close()
    change(path, "UPDATE sessions SET length = 2")
    broken = path.read_bytes()
    for free in range(16_384, 4 * len(broken), 16_384):
        fill(disk, free)
        try:
            await store.repair(None)
        except StoreError:
            outcomes.add("refused")
            await store.close()
            assert path.read_bytes() == broken
        else:
            outcomes.add("repaired")
            assert_same(await store.read("s"), entries(1, 150))
            await store.close()
        for one in disk.iterdir():
            one.unlink() if one.is_file() else one.rmdir()
        path.write_bytes(broken)
    assert outcomes == {"refused", "repaired"}


async def test_closing_a_database_on_a_full_disk_keeps_what_was_acknowledged(disk: Path) -> None:
    store, big = SqliteStore(disk / "sessions.db"), [entry(seq, "x" * 90_000) for seq in range(10, 16)]
    await store.append("s", big)
    fill(disk)
    with suppress(StoreError):
        await store.close()
    (disk / "filling").unlink()
    assert_same(await store.read("s"), big)
    await store.append("s", entries(20, 21))
    await store.close()


async def test_files_are_read_where_none_can_be_written_and_deleted_where_the_disk_is_full(disk: Path) -> None:
    store = JsonlStore(disk / "sessions")
    await begin(store)
    await store.append("s", [entry(20, "x" * 40_000)])
    before = await whole(store)
    await store.close()
    make_read_only(disk)
    assert not (await whole(store)).differs(before)
    for one in (*CHANGES.values(), lambda store: store.open("s"), lambda store: store.delete("s")):
        await refused(one(store), says="read-only")
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    await store.append("s", entries(90, 91))
    await store.close()
    fill(disk)
    await refused(store.append("t", entries(1, 5)), says="free some space")
    assert_same(await store.read("s", -2), entries(90, 91))
    await store.delete("s")
    await store.append("t", entries(1, 5))
    assert [info.session_id for info in await store.sessions()] == ["t"]
    await store.close()
