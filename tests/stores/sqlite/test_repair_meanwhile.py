"""A database that other programs use while it is repaired."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from amplifier_context_core import repair
from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.sqlite.schema import replacement
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries
from tests.stores.other_process import running
from tests.stores.sqlite.damage import filled, overwritten_page


async def test_a_database_in_use_is_not_repaired(path: Path) -> None:
    await filled(path, 30)
    overwritten_page(path, "archive", 0)
    broken = path.read_bytes()
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('select 1 from sessions').fetchone();"
        "print('ready', flush=True); sys.stdin.read()"
    )
    with running(code, str(path)):
        assert await asyncio.to_thread(repair.main, [str(path)]) == 1
        assert path.read_bytes() == broken
    other = SqliteStore(path)
    await other.append("new", entries(1, 1, session_id="new"))
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="in use"):
        await store.repair(None)
    await other.close()
    await store.repair(None)
    assert_same(await store.read("s"), entries(1, 30))
    await store.append("s", entries(31, 31))
    await store.close()


VISITOR = """
import asyncio, sys
from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entry
async def main():
    seq = 0
    print("ready", flush=True)
    while True:
        store = SqliteStore(sys.argv[1])
        try:
            await store.append("visited", [entry(seq + 1, session_id="visited")])
            seq += 1
            print(seq, flush=True)
        except StoreError as problem:
            pass
        await store.close()
asyncio.run(main())
"""


async def test_a_program_that_comes_during_a_repair_loses_no_message(path: Path) -> None:
    """It may open what is damaged, and add to a session that is not: then the repair must not take its place."""
    await filled(path, 3_000)
    overwritten_page(path, "checkpoints", 0)
    with running(VISITOR, str(path)) as process:
        for _ in range(12):
            await asyncio.to_thread(repair.main, [str(path)])
            await asyncio.sleep(0.02)
        process.kill()
        assert process.stdout is not None
        acknowledged = len(process.stdout.read().split())
    if replacement(path).exists():
        assert await asyncio.to_thread(repair.main, [str(path)]) == 0
    store = SqliteStore(path)
    assert acknowledged > 3
    assert [one.seq for one in await store.read("visited")][:acknowledged] == [*range(1, acknowledged + 1)]
    await store.close()
