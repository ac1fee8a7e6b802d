"""What both stores in files keep to: their owner's files, the processes that use them, and what is left of them."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_context_core import open_store
from amplifier_context_core.errors import SessionInUse
from amplifier_context_core.stores import Extent, Searchable
from amplifier_context_testing.contract.fixtures import assert_unknown
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import begin, running


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
