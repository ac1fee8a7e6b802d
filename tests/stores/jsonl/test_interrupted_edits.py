"""Edits that a crash interrupted are made whole at the next opening, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.jsonl import file_ops
from amplifier_context_core.stores.jsonl.journal import Operation, RedoJournal, Transaction
from amplifier_context_core.stores.jsonl.paths import SessionFiles
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
from tests.stores.jsonl.files import Files, reopen


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
