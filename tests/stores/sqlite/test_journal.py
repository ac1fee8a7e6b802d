"""On network file systems a journal keeps transactions whole. Nothing else changes."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amplifier_context_core.stores import Repair, Repairable, open_store
from amplifier_context_core.stores.sqlite import journal
from amplifier_context_testing.contract.concurrency import Concurrency
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.reference import MatchesReference
from amplifier_context_testing.contract.samples import entries, entry
from amplifier_context_testing.store_contract import CheckContract, StoreContract, WriterContract
from tests.stores.jsonl.files import begin
from tests.stores.test_contract import OnEachStore

MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - {root} /dev/sda1 rw
30 22 0:26 / /home rw,nosuid - nfs4 server:/home rw,vers=4.2
31 30 0:27 / /home/me/my\040disk rw - ext4 /dev/sdb1 rw
33 32 0:29 / /home rw - fuse.sshfs me@host: rw
no mount
"""


@pytest.mark.parametrize(("kind", "mode"), [("nfs4", "truncate"), ("ext4", "wal")])
async def test_the_mode_is_that_of_the_file_system_of_the_innermost_mount(
    tmp_path: Path, kind: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, expected in {"/homes": kind, "/home/me": "fuse.sshfs", "/home/me/my disk/x": "ext4"}.items():
        assert journal.file_system(path, MOUNTS.format(root=kind)) == expected
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(root=kind))
    monkeypatch.setattr(journal, "_MOUNTS", mounts)
    store = open_store(f"sqlite:{tmp_path / 'a.db'}")
    await store.append("s", entries(1, 3))
    assert (tmp_path / "a.db-wal").exists() == (mode == "wal")
    await store.close()


@pytest.fixture(params=["sqlite:{}/a.db", "jsonl:{}"], ids=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param.format(tmp_path)}?journal=truncate"


async def test_a_session_of_the_other_mode_is_opened_and_continued(url: str) -> None:
    plain = url.removesuffix("?journal=truncate")
    for seq, one in enumerate((plain, url, plain, url), 1):
        store = open_store(one)
        await store.append("s", entries(seq, seq))
        assert_same(await store.read("s"), entries(1, seq))
        await store.close()


async def test_no_log_is_left_beside_the_file_and_erased_text_is_in_none(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    await begin(store)
    await store.rewrite("s", [entry(5, "(erased)")])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name.endswith(".db-journal") for path in files)
    assert not any(path.name.endswith(("-wal", "-shm")) for path in files)
    assert b"message 5" not in b"".join(path.read_bytes() for path in files)
    await store.delete("s")
    await store.close()
    assert await store.sessions() == []


def interrupt_commit(path: Path) -> None:
    """Leave of a database and its journal what a crash amid a commit leaves."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = TRUNCATE")
        before = path.read_bytes()
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN")
        db.execute("UPDATE entries SET message = CAST(message || ? AS TEXT)", ("x" * 100_000,))
        left = {ending: path.with_name(path.name + ending).read_bytes() for ending in ("", "-journal")}
        db.execute("ROLLBACK")
    assert left[""] != before, "pages were written before the commit"
    for ending, content in left.items():
        path.with_name(path.name + ending).write_bytes(content)


@pytest.mark.parametrize("call", ["sessions", "read", "repair"])
async def test_a_journal_of_an_interrupted_commit_is_applied(url: str, tmp_path: Path, call: str) -> None:
    """Also by what opens no session, and where nothing but the journal says that the file is not what was committed."""
    store, repairs = open_store(url), list[Repair]()
    await store.append("s", entries(1, 3))
    await store.close()
    interrupt_commit(next(tmp_path.rglob("*.db")))
    if call == "sessions":
        assert [(info.session_id, info.length) for info in await store.sessions()] == [("s", 3)]
    elif call == "repair":
        assert isinstance(store, Repairable)
        await store.repair("s", repairs.append)
    assert repairs == []
    assert_same(await store.read("s"), entries(1, 3))
    await store.close()


class TestStoresWithAJournal(OnEachStore, Concurrency, WriterContract, MatchesReference):
    """Where a journal differs: readers and a writer wait for each other."""

    examples = 10


@pytest.mark.soak
class TestAllOfTheContractWithAJournal(OnEachStore, StoreContract, WriterContract, CheckContract):
    examples = 10
