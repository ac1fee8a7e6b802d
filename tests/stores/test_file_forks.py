"""Stores in files that were used before their process forked: the child must not write beside its parent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_context_core import open_store
from amplifier_context_core.stores import Extent

PROGRAM = """
import asyncio, os, sys
from amplifier_context_core import open_store
from amplifier_context_core.errors import StoreError
from amplifier_context_testing.contract.samples import entries
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


@pytest.mark.parametrize("name", ["jsonl:{}/sessions", "sqlite:{}/sessions.db"])
async def test_a_store_that_was_used_before_a_fork_says_so_in_the_child(tmp_path: Path, name: str) -> None:
    url = name.format(tmp_path)
    command = [sys.executable, "-c", PROGRAM, url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    store = open_store(url)
    assert await store.extent("s") == Extent(4, 4)
    await store.close()
