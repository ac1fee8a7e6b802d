"""One writer per session: locks name their holder, and end with it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from amplifier_context_core.errors import SessionInUse
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
from tests.stores.jsonl.files import Files, write
from tests.stores.other_process import running

HOLD = """
import asyncio, sys
from amplifier_context_core.stores.jsonl.store import JsonlStore
async def main():
    store = JsonlStore(sys.argv[1])
    await store.open("s")
    print("ready", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@pytest.fixture
def holder(root: Path) -> Generator[subprocess.Popen[bytes]]:
    """Another process that has session ``s`` open."""
    with running(HOLD, str(root)) as process:
        yield process


async def test_another_process_is_named_and_when_it_is_killed_its_lock_is_free(
    root: Path, holder: subprocess.Popen[bytes]
) -> None:
    store = JsonlStore(root)
    with pytest.raises(SessionInUse) as caught:
        await store.append("s", entries(1, 1))
    assert caught.value.holder.startswith(f"pid {holder.pid} on {os.uname().nodename}, since 20")
    assert await store.read("s") == []
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert await store.open("s") == Extent()
    await store.append("s", entries(1, 1))
    assert f"pid {os.getpid()} on" in (await store.sessions())[0].holder
    await store.close()


async def test_a_lock_file_that_is_not_locked_names_no_holder(root: Path) -> None:
    files = await write(root, 2)
    owner = files.path("context-messages.lock")
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
    assert not Files(root).path("context-messages.lock").exists()
