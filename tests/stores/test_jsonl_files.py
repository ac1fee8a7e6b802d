"""The files themselves: their format, permissions and lock, when they are written, and how little is read."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import ConfigError, SessionInUse, StoreError
from amplifier_context_core.stores import Checkable, Extent, open_store
from amplifier_context_core.stores.jsonl import engine as jsonl_engine
from amplifier_context_core.stores.jsonl import file_ops, indexed_history, read_only_session
from amplifier_context_core.stores.jsonl import index as jsonl_index
from amplifier_context_core.stores.jsonl.journal import Operation, RedoJournal, Transaction
from amplifier_context_core.stores.jsonl.paths import SessionFiles
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.reference import MatchesReference
from amplifier_context_testing.contract.replace import Replacing
from amplifier_context_testing.contract.rewrite import Rewriting
from amplifier_context_testing.contract.samples import entries, entry, odd_messages
from amplifier_context_testing.store_contract import MakeStore

from .jsonl_support import Files, fast_folder, reopen, write


@pytest.fixture
def root() -> Generator[Path]:
    with fast_folder() as made:
        yield made


# -- format -----------------------------------------------------------------------------------------------------------


async def test_a_line_is_a_message_and_nothing_else(root: Path) -> None:
    files = await write(root, 9)
    assert files.messages == [one.message for one in entries(1, 9)]
    assert files.main.read_bytes().endswith(b"}\n")


async def test_the_main_file_holds_current_messages_only(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 9))
    await store.replace("s", 4, entries(10, 11))
    await store.close()
    assert Files(root).messages == [one.message for one in [*entries(1, 4), *entries(10, 11)]]


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


async def test_counts_added_later_are_patched_into_the_index_lines(root: Path) -> None:
    """A reader that counts adopted messages page by page must not rewrite the whole index for each page."""
    (root / "s").mkdir()
    messages = [{"role": "user", "content": f"m{number}"} for number in range(100)]
    Files(root).main.write_text("".join(json.dumps(message) + "\n" for message in messages))
    store = JsonlStore(root)
    await store.open("s")
    place = Files(root).index.stat().st_ino
    for start in range(0, 100, 10):
        page = await store.read("s", start, start + 10)
        counted = [entry(one.seq, one.message, tokens=10**9 + one.seq, turn=one.turn, created="") for one in page]
        await store.rewrite("s", counted)
    assert Files(root).index.stat().st_ino == place
    assert [one.tokens for one in await store.read("s")] == [10**9 + seq for seq in range(1, 101)]
    await store.close()
    assert (await reopen(root)).repairs == []


async def test_a_forgotten_message_is_in_no_file_any_more(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", [entry(1), entry(2, "the secret is tulip-a"), entry(3), entry(4, "the secret is tulip-b")])
    await store.save_checkpoint("s", 2, b"tulip-a")
    await store.replace("s", 3, [])
    await store.close()
    Files(root).main.write_bytes(Files(root).main.read_bytes() + b'{"torn, with tulip-c')
    await store.append("s", [entry(5, "tulip-d")])
    assert b"tulip-c" in Files(root).damaged.read_bytes()
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


# -- one file as the session ------------------------------------------------------------------------------------------


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
    assert names >= {"transcript.jsonl", "transcript.index.jsonl", "transcript.archive.jsonl", "transcript.checkpoint"}
    other = JsonlStore(root, file=file)
    assert await other.open("another id") == Extent(2, 3)
    assert await other.load_checkpoint("another id") == b"two"
    assert [(info.session_id, info.length) for info in await other.sessions()] == [("transcript", 2)]
    await other.delete("another id")
    await other.close()
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("kind", ["index", "archive"])
@pytest.mark.parametrize("length", [None, 2])
async def test_a_fork_never_takes_the_name_of_a_file_that_belongs_to_another_fork(
    root: Path, kind: str, length: int | None
) -> None:
    store = JsonlStore(root, file=root / "talk.jsonl")
    await store.append("s", entries(1, 4))
    await store.fork("s", "x", length)
    await store.append("x", entries(5, 6))
    await store.replace("x", 1, [])  # that one has an archive now
    files = {path.name: path.read_bytes() for path in root.glob("talk.fork-x*.jsonl")}
    assert set(files) == {f"talk.fork-x{part}.jsonl" for part in ("", ".index", ".archive")}
    with pytest.raises(ConfigError, match="choose another id"):
        await store.fork("s", f"x.{kind}")
    assert (await store.extent(f"x.{kind}")).length == 4  # no fork has this id: the one file
    assert [info.session_id for info in await store.sessions() if info.session_id != "talk"] == ["x"]
    await store.close()
    assert {path.name: path.read_bytes() for path in root.glob("talk.fork-x*.jsonl")} == files


@pytest.mark.parametrize("kind", ["index.jsonl", "archive.jsonl", "checkpoint", "pending", "damaged", "lock", "owner"])
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


# -- URLs and permissions ---------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("url", ["jsonl:", "jsonl: ", "jsonl:a\0b", "jsonl:~nobody-of-this-name/x"])
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
    assert len(paths) > 8
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    folders = [root / "deep", *(path for path in (root / "deep").rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    await store.close()


async def test_a_file_that_others_could_read_is_made_private(root: Path) -> None:
    files = await write(root, 3)
    files.main.chmod(0o644)
    store = JsonlStore(root)
    await store.open("s")
    assert stat.S_IMODE(files.main.stat().st_mode) == 0o600
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
    assert {path.name for path in (root / "s").iterdir()} == {
        "context-messages.jsonl",
        "context-messages.index.jsonl",
        "context-messages.archive.jsonl",
        "context-messages.lock",
    }


# -- locks ------------------------------------------------------------------------------------------------------------

HOLD = """
import asyncio, sys
from amplifier_context_core.stores.jsonl.store import JsonlStore
async def main():
    store = JsonlStore(sys.argv[1])
    await store.open("s")
    print("open", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@pytest.fixture
def holder(root: Path) -> Generator[subprocess.Popen[bytes]]:
    """Another process that has session ``s`` open."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == b"open\n"
        yield made
        made.kill()


async def test_another_process_is_named_and_when_it_is_killed_its_lock_is_free(
    root: Path, holder: subprocess.Popen[bytes]
) -> None:
    store = JsonlStore(root)
    with pytest.raises(SessionInUse) as caught:
        await store.append("s", entries(1, 1))
    assert caught.value.holder == f"pid {holder.pid} on {os.uname().nodename}"
    assert await store.read("s") == []
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert Files(root).path("context-messages.owner").exists()
    assert await store.open("s") == Extent()
    await store.append("s", entries(1, 1))
    assert f"pid {os.getpid()} on" in (await store.sessions())[0].holder
    await store.close()


async def test_a_stale_owner_file_names_no_holder(root: Path) -> None:
    files = await write(root, 2)
    owner = files.path("context-messages.owner")
    store = JsonlStore(root)
    for pid in (os.getpid(), 2**22 + 1, 0, -1, "x"):
        owner.write_text(json.dumps({"pid": pid, "host": os.uname().nodename}))
        assert [info.holder for info in await store.sessions()] == [""]
    for text in ("", "garbage", "[]", "\0"):
        owner.write_text(text)
        assert [info.holder for info in await store.sessions()] == [""]
    await store.open("s")
    await store.close()


async def test_a_store_without_references_releases_its_locks(root: Path) -> None:
    store: JsonlStore | None = JsonlStore(root, durability="none")
    await store.append("s", entries(1, 2))
    del store
    gc.collect()
    other = JsonlStore(root)
    for _ in range(6_000):
        try:
            assert await other.open("s") == Extent(2, 2)
            break
        except SessionInUse:
            await asyncio.sleep(0.01)
    else:
        pytest.fail("its claims are still held")
    await other.close()


def test_a_process_that_ends_without_closing_has_everything_written_and_released(root: Path) -> None:
    program = """
import asyncio, sys
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
store = JsonlStore(sys.argv[1], durability="none")
asyncio.run(store.append("s", entries(1, 3)))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, str(root)], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(Files(root).messages) == 3
    assert not Files(root).path("context-messages.owner").exists()


async def test_a_forked_process_does_not_write_with_its_parents_leases(root: Path) -> None:
    program = """
import asyncio, os, sys
from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
store = JsonlStore(sys.argv[1])
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
"""
    done = await asyncio.to_thread(
        lambda: subprocess.run([sys.executable, "-c", program, str(root)], capture_output=True, timeout=60, check=False)
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(Files(root).messages) == 4


# -- syncs ------------------------------------------------------------------------------------------------------------


class Counted:
    """Counts the syncs of the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        real = file_ops._sync  # pyright: ignore[reportPrivateUsage]

        def sync(descriptor: int) -> None:
            self.syncs += 1
            time.sleep(0.001)  # like a disk; meanwhile other appends arrive
            real(descriptor)

        monkeypatch.setattr(file_ops, "_sync", sync)


async def test_an_append_is_one_fsync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 1))
    counted = Counted(monkeypatch)
    for seq in range(2, 12):
        await store.append("s", entries(seq, seq))
    assert counted.syncs == 10
    await store.append("s", entries(12, 60))
    assert counted.syncs == 12  # the journal is written first
    await store.close()


async def test_appends_at_the_same_time_share_an_fsync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 1))
    counted = Counted(monkeypatch)

    async def talk(number: int) -> None:
        for step in range(10):
            seq = 100 * (number + 1) + step
            await store.append("s", entries(seq, seq))

    await asyncio.gather(*(talk(number) for number in range(16)))
    assert counted.syncs <= 25
    assert (await store.extent("s")).length == 161
    await store.close()


async def test_sessions_written_together_are_synced_two_at_a_time_on_a_quick_disk_and_all_at_once_on_a_slow_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_engine, "_SLOW_SYNC", 0.02)
    store = JsonlStore(root)
    names = [f"s{number}" for number in range(16)]
    for name in names:
        await store.append(name, entries(1, 1))
    now = most = syncs = 0
    seconds = 0.0
    counting = threading.Lock()

    def sync(descriptor: int) -> None:
        nonlocal now, most, syncs
        with counting:
            now, syncs = now + 1, syncs + 1
            most = max(most, now)
        time.sleep(seconds)
        with counting:
            now -= 1

    monkeypatch.setattr(file_ops, "_sync", sync)
    found: list[int] = []
    for seq, takes in ((2, 0.0), (3, 0.03), (4, 0.03), (5, 0.0), (6, 0.0)):
        seconds = takes
        most = syncs = 0
        await asyncio.gather(*(store.append(name, entries(seq, seq)) for name in names))
        assert syncs == 16
        found.append(most)
    assert found[0] <= 2  # a disk counts as fast at first
    assert found[1] == 2  # now known as slow
    assert found[2] > 8
    assert found[4] <= 2  # now known as fast again
    await store.close()


async def test_sessions_written_together_are_on_disk_though_there_is_no_thread_to_be_had(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    store = JsonlStore(root)
    names = [f"s{number}" for number in range(4)]
    await asyncio.gather(*(store.append(name, entries(1, 1)) for name in names))
    counted = Counted(monkeypatch)
    monkeypatch.setattr(jsonl_engine.ThreadPoolExecutor, "submit", submit)
    await asyncio.gather(*(store.append(name, entries(2, 2)) for name in names))
    assert counted.syncs == 4
    await asyncio.gather(*(store.append(name, entries(3, 3)) for name in names))
    assert [(await store.extent(name)).length for name in names] == [3] * 4
    await store.close()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice on files")
@pytest.mark.parametrize("durability", ["fsync", "flush", "none"])
async def test_writeback_of_many_sessions_starts_at_once_if_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    store = JsonlStore(root, durability=durability)
    names = [f"s{number}" for number in range(4)]
    for name in names:
        await store.append(name, entries(1, 1))
    await asyncio.gather(*(store.extent(name) for name in names))
    sizes = {name: Files(root, name).main.stat().st_size for name in names if durability == "fsync"}
    begun: dict[str, tuple[int, int]] = {}

    def advise(descriptor: int, offset: int, length: int, advice: int) -> None:
        begun[Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent.name] = (offset, length)
        raise OSError(errno.EINVAL, "no such advice")

    monkeypatch.setattr(os, "posix_fadvise", advise)
    await asyncio.gather(*(store.append(name, entries(2, 2)) for name in names))
    after = {name: Files(root, name).main.stat().st_size for name in sizes}
    assert begun == {name: (size, after[name] - size) for name, size in sizes.items()}
    assert [(await store.extent(name)).length for name in names] == [2] * 4
    await store.append(names[0], entries(3, 3))
    assert begun.get(names[0]) == ((begun and (sizes[names[0]], after[names[0]] - sizes[names[0]])) or None)
    await store.close()


@pytest.mark.parametrize("slow", [0.0, 1.0], ids=["all at once", "two at a time"])
async def test_of_sessions_synced_together_one_that_fails_stops_no_other(
    root: Path, monkeypatch: pytest.MonkeyPatch, slow: float
) -> None:
    monkeypatch.setattr(jsonl_engine, "_SLOW_SYNC", slow)
    store = JsonlStore(root)
    names = [f"s{number}" for number in range(8)]
    await asyncio.gather(*(store.append(name, entries(1, 1)) for name in names))
    real = file_ops._sync  # pyright: ignore[reportPrivateUsage]

    def sync(descriptor: int) -> None:
        if "/s3/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(file_ops, "_sync", sync)
        calls = [store.append(name, entries(2, 2)) for name in names]
        came = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in came] == [StoreError if name == "s3" else type(None) for name in names]
    await store.close()
    store = JsonlStore(root)
    assert [(await store.extent(name)).length for name in names] == [1 if name == "s3" else 2 for name in names]
    await store.close()


async def test_of_appends_that_share_a_write_one_that_cannot_be_written_stops_no_other(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 1))
    bad = entry(3)._replace(message={"role": "user", "content": {1, 2}})
    calls = [store.append("s", [one]) for one in (*entries(2, 2), bad, *entries(4, 5))]
    came = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in came] == [type(None), StoreError, type(None), type(None)]
    assert "m3" in str(came[1])
    assert [one.seq for one in await store.read("s")] == [1, 2, 4, 5]
    await store.close()


@pytest.mark.parametrize("durability", ["flush", "none"])
async def test_without_durability_nothing_waits_for_the_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    counted = Counted(monkeypatch)
    store = JsonlStore(root, durability=durability)
    await store.append("s", entries(1, 9))
    await store.replace("s", 4, entries(10, 12))
    await store.save_checkpoint("s", 3, b"three")
    await store.fork("s", "child")
    await store.rewrite("s", [entry(1, "rewritten")])
    await store.close()
    assert counted.syncs == 0
    assert (await reopen(root)).seqs == [1, 2, 3, 4, 10, 11, 12]


async def test_without_durability_small_appends_are_buffered(root: Path) -> None:
    store = JsonlStore(root, durability="none")
    await store.append("s", [entry(1)])
    assert not Files(root).main.exists()
    assert await store.extent("s") == Extent(1, 1)
    await store.append("s", [entry(2, "x" * 80_000)])
    assert len(Files(root).messages) == 2
    await store.append("s", [entry(3)])
    assert len(Files(root).messages) == 2
    assert_same(await store.read("s", -1), [entry(3)])
    assert len(Files(root).messages) == 3
    for seq, other in enumerate((store.save_checkpoint("s", 1, b""), store.release("s")), 4):
        await store.append("s", [entry(seq)])
        await other
        assert len(Files(root).messages) == seq
    await store.close()


# -- edits that a crash interrupted -----------------------------------------------------------------------------------


async def interrupted(root: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Leave a session whose last edit is in the journal and not applied."""

    def no_way(self: RedoJournal, transaction: Transaction) -> None:
        raise OSError(5, "Input/output error")

    store = JsonlStore(root, durability="flush")
    await store.append("s", entries(1, 6))
    await store.save_checkpoint("s", 5, b"five")
    with monkeypatch.context() as patch:
        patch.setattr(RedoJournal, "apply", no_way)
        await store.replace("s", 3, entries(7, 8))
        with pytest.raises(StoreError):
            await store.read("s")
        await store.close()
    return Files(root)


async def test_a_committed_edit_is_applied_at_the_next_opening(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = await interrupted(root, monkeypatch)
    assert len(files.messages) == 6
    store = JsonlStore(root)
    assert any("not applied" in line for line in await store.verify("s"))
    await store.close()
    found = await reopen(root, go_on=False)
    assert found.seqs == [1, 2, 3, 7, 8]
    assert found.checkpoint is None
    assert found.extent.last_seq == 8
    assert found.repairs == []
    assert [one.seq for one in await store.archived("s")] == [4, 5, 6]
    await store.close()


async def test_a_partly_applied_edit_is_applied_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = await interrupted(root, monkeypatch)
    written = files.pending.read_bytes()
    session = SessionFiles("s", str(files.main), own_folder=True)
    journal = RedoJournal(session, file_ops.FileOps(durable=False))
    transaction = journal.load()
    assert transaction is not None
    for done in range(len(transaction.operations) + 1):
        journal.apply(Transaction(transaction.operations[:done]))
        assert files.pending.read_bytes() == written
    assert (await reopen(root, go_on=False)).seqs == [1, 2, 3, 7, 8]


@pytest.mark.parametrize("cut", [1, 40, 400])
async def test_a_torn_journal_is_ignored(root: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    files = await interrupted(root, monkeypatch)
    files.pending.write_bytes(files.pending.read_bytes()[:-cut])
    found = await reopen(root)
    assert found.seqs == [1, 2, 3, 4, 5, 6]
    assert found.checkpoint == b"five"
    store = JsonlStore(root)
    assert [one.seq for one in await store.archived("s")] == [7]  # of the edit that `reopen` makes
    await store.close()


async def test_an_edit_of_another_file_is_ignored(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = await interrupted(root, monkeypatch)
    files.main.write_bytes(b"".join(reversed(files.lines)))
    found = await reopen(root, go_on=False)
    assert sorted(found.seqs) == [1, 2, 3, 4, 5, 6]


async def test_a_batch_that_comes_back_after_a_power_cut_takes_nothing_away(root: Path) -> None:
    """Clearing the journal did not reach the disk; the messages after the batch did."""
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    noted: list[bytes] = []
    real = RedoJournal.clear

    def ending(self: RedoJournal, *, durably: bool) -> None:
        noted.append(Files(root).pending.read_bytes())
        real(self, durably=durably)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RedoJournal, "clear", ending)
        await store.append("s", entries(4, 6))
    await store.append("s", entries(7, 7))
    await store.close()
    Files(root).pending.write_bytes(noted[0])
    assert (await reopen(root)).seqs == [1, 2, 3, 4, 5, 6, 7]


def test_an_operation_can_be_applied_twice(root: Path) -> None:
    ops = file_ops.FileOps(durable=False)
    path = str(root / "file")
    for _ in range(2):
        ops.overwrite(path, 0, b"0123456789")
        ops.overwrite(path, 4, b"four")
        assert (root / "file").read_bytes() == b"0123four"
    assert Operation("write", "main").data == b""


# -- how little is read -----------------------------------------------------------------------------------------------


class Reads:
    """Counts the bytes that are read, and the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.calls = 0
        real = os.pread

        def pread(descriptor: int, length: int, offset: int) -> bytes:
            data = real(descriptor, length, offset)
            self.bytes += len(data)
            self.calls += 1
            return data

        monkeypatch.setattr(os, "pread", pread)


async def resume(root: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    store = JsonlStore(root)
    with monkeypatch.context() as patch:
        reads = Reads(patch)
        extent = await store.open("s")
        assert await store.load_checkpoint("s") == b"so far"
        assert len(await store.read("s", -50)) == 50
        assert [one.seq for one in await store.find("s", [17, extent.last_seq - 3])] == [17, extent.last_seq - 3]
    await store.close()
    return reads


async def test_resuming_reads_as_much_of_a_long_session_as_of_a_short_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Reads] = []
    for length in (200, 20_000):
        with fast_folder() as folder:
            store = JsonlStore(folder, durability="flush")
            await store.append("s", entries(1, length))
            await store.save_checkpoint("s", length - 40, b"so far")
            await store.close()
            read.append(await resume(folder, monkeypatch))
    short, long = read
    assert long.bytes < short.bytes + 60_000  # a few more steps of bisecting the index
    assert long.calls < short.calls + 80


async def test_a_steady_session_reads_nothing_from_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 100))
    reads = Reads(monkeypatch)
    for seq in range(101, 120):
        await store.append("s", entries(seq, seq))
        await store.extent("s")
    assert reads.calls < 10
    await store.close()


def test_bisecting_any_index_finds_what_counting_finds(root: Path) -> None:
    writer = jsonl_index.RecordWriter("s")
    for one in entries(1, 3_000):
        writer.add(one)
    path = root / "index"
    path.write_bytes(b"".join(writer.index_lines))
    with file_ops.open_for_reading(str(path)) as descriptor:
        assert descriptor is not None
        index = jsonl_index.Index(descriptor, path.stat().st_size)
        history = indexed_history.IndexedHistory("s", None, 0, index, 3_000, max_seq=3_000)
        for place in (0, 1, 777, 1_500, 2_998, 2_999):
            assert index.record(place).seq == place + 1
            assert [row.entry_index for row in history.records(place, place + 2)] == [
                *range(place, min(place + 2, 3_000))
            ]
        assert index.offset_of(3_000) == index.size
        assert [row.seq for row in history.find_records([5, 2_000, 4_000])] == [5, 2_000]


def test_odd_extras_survive_the_index(root: Path) -> None:
    for message in odd_messages().values():
        row = jsonl_index.IndexRecord(0, 1, 0, 10, 1, 1, 5, {"session_id": str(message)[:80], "big": 2**70}, 9)
        assert jsonl_index.decode_record(row.encode()) == row


async def test_seqs_out_of_order_are_found_by_bisection_or_by_a_scan(root: Path) -> None:
    given = [*entries(1, 400), entry(900), *entries(401, 800), entry(5_000), entry(901)]
    store = JsonlStore(root)
    await store.append("s", given)
    for wanted in ([1], [900, 1], [901], [5_000, 900, 401], [402, 899, 6_000]):
        assert_same(await store.find("s", wanted), [one for one in given if one.seq in wanted])
    await store.close()


async def test_a_session_is_read_whole_while_another_store_changes_it(root: Path) -> None:
    """A reader without the lock sees one history or the next, never a mixture."""
    writer, reader = JsonlStore(root, durability="flush"), JsonlStore(root)
    await writer.append("s", entries(1, 300))
    states = {(300, 300)}
    done = False

    async def change() -> None:
        nonlocal done
        seq = 300
        for _ in range(40):
            states.add((101, seq + 1))
            await writer.replace("s", 100, [entry(seq + 1)])
            new = [entry(one) for one in range(seq + 2, seq + 200)]
            seq += 199
            states.update({(299, seq)})
            await writer.append("s", new)
        done = True

    async def look() -> None:
        while not done:
            found = await reader.read("s")
            assert (len(found), found[-1].seq) in states
            await asyncio.sleep(0)

    await asyncio.gather(change(), look())
    await writer.close()
    await reader.close()


async def test_a_session_that_cannot_be_opened_can_be_deleted(root: Path) -> None:
    files = await write(root, 3)
    files.pending.mkdir()
    store = JsonlStore(root)
    with pytest.raises(StoreError):
        await store.open("s")
    files.pending.rmdir()
    files.index.unlink()
    files.index.symlink_to("/nowhere")
    with pytest.raises(StoreError, match="links are not followed"):
        await store.open("s")
    await store.delete("s")
    assert not (root / "s").exists()
    await store.close()


@pytest.mark.parametrize("left", [0, 1, 5, 39])
def test_an_index_truncated_during_a_read_is_damaged(tmp_path: Path, left: int) -> None:
    path = tmp_path / "index"
    writer = jsonl_index.RecordWriter("s")
    for one in entries(1, 40):
        writer.add(one)
    path.write_bytes(b"".join(writer.index_lines))
    with path.open("r+b") as file:
        index = jsonl_index.Index(file.fileno(), path.stat().st_size)
        assert index.offset_of(39) < index.size
        file.truncate(len(b"".join(writer.index_lines[:left])))
        for ask in (index.offset_of, index.record):
            with pytest.raises(jsonl_index.IndexDamaged):
                ask(39)
        with pytest.raises(jsonl_index.IndexDamaged):
            index.record_at(len(b"".join(writer.index_lines[:39])))


@pytest.mark.parametrize("keep", [0, 5])
async def test_a_reader_finds_what_is_left_while_a_writer_shortens_the_history(root: Path, keep: int) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 10))
    with read_only_session.open_read_only(SessionFiles("s", str(Files(root).main), own_folder=True)) as look:
        assert look.extent() == Extent(10, 10)
        await store.replace("s", keep, [])
        assert_same(look.read(min(keep, 3), None), entries(1 + min(keep, 3), keep))
        assert look.read(7, None) == []
        assert look.find([9]) == []
    await store.close()


async def test_an_open_session_whose_index_was_truncated_is_repaired(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 10))
    os.truncate(Files(root).index, 0)
    assert [one.message for one in await store.read("s")] == [one.message for one in entries(1, 10)]
    await store.append("s", entries(11, 11))
    assert (await store.extent("s")).length == 11
    await store.close()


async def test_a_folder_with_an_odd_name_does_not_hide_the_sessions(tmp_path: Path) -> None:
    store = open_store(f"jsonl:{tmp_path}")
    await store.append("mine", entries(1, 1))
    odd = tmp_path / "evil\x1b[31m"
    odd.mkdir()
    (odd / "context-messages.jsonl").write_text("{}\n")
    assert [info.session_id for info in await store.sessions()] == ["mine"]
    await store.close()
