"""Databases of format 2, which commit 37ba2a6 wrote, are carried over once; older ones are refused."""

import asyncio
import lzma
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from amplifier_context_core import repair
from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.sqlite.damage import change, overwritten_page

RECORDED = Path(__file__).with_name("format_2.db.xz")
"""Four sessions: one plain, one edited, a fork, and one whose messages 3 and 6 were damaged and taken out."""


@pytest.fixture
def path(path: Path) -> Path:
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    return path


async def assert_whole(store: SqliteStore) -> None:
    assert_same(await store.read("s"), entries(1, 12))
    assert await store.load_checkpoint("s") == b"five"
    assert_same(await store.read("t"), [*entries(1, 6, session_id="t"), entry(10, session_id="t")])
    assert_same(await store.archived("t"), entries(7, 9, session_id="t"))
    assert await store.load_checkpoint("t") == b"seven"
    assert_same(await store.read("child"), entries(1, 4))
    assert await store.extent("child") == Extent(4, 12)
    left = [one for one in entries(1, 8, session_id="holes") if one.seq not in (3, 6)]
    assert_same(await store.read("holes"), left)
    assert_same(await store.find("holes", [8, 4]), [left[2], left[5]])
    assert [info.session_id for info in await store.sessions()] == ["holes", "child", "t", "s"]


async def test_a_database_of_format_2_is_carried_over_and_goes_on(path: Path, store: SqliteStore) -> None:
    change(path, "CREATE TRIGGER refuse BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreError):  # what fails leaves the database as it was
        await store.read("s")
    await store.close()
    change(path, "DROP TRIGGER refuse")
    await store.open("holes")
    await assert_whole(store)
    assert sorted(await store.search("holes", "module", 9)) == [1, 2, 5]
    await store.append("new", entries(1, 1, session_id="new"))
    for name in ("s", "t", "child", "holes"):
        assert await store.verify(name) == []
    await store.append("holes", [entry(9, session_id="holes")])
    await store.close()
    assert [one.seq for one in await store.read("holes")] == [1, 2, 4, 5, 7, 8, 9]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT number FROM sessions WHERE id = 'new'").fetchone() == (6,)  # 4 was deleted
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'damaged'").fetchone() is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: overwritten_page(path, "leases", 0),
        lambda path: change(path, "UPDATE sessions SET last_seq = 0 WHERE id = 's'"),
    ],
)
async def test_a_damaged_one_is_not_carried_over_and_the_version_that_repairs_it_is_named(
    path: Path, store: SqliteStore, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(path)
    with pytest.raises(StoreError, match=r"amplifier_context_core\.repair"):
        await store.read("s")
    await store.close()
    before = path.read_bytes()
    assert await asyncio.to_thread(repair.main, [str(path)]) == 1
    assert "has format 2, which is repaired by the version that wrote it: open it with commit 37ba2a6" in (
        capsys.readouterr().err
    )
    assert path.read_bytes() == before
