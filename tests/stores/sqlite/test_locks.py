"""The writer of a session in a SQLite database: a lock of the operating system, which ends with its holder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import filelock
import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries, entry


async def test_a_folder_of_locks_that_another_store_removes_while_it_is_made_is_made_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []
    chmod = Path.chmod

    def after_it_is_gone(self: Path, mode: int, **more: bool) -> None:
        if self.name.endswith(".locks") and not removed:
            removed.append(self)
            self.rmdir()
        chmod(self, mode, **more)

    monkeypatch.setattr(Path, "chmod", after_it_is_gone)
    await store.append("s", entries(1, 2))
    assert removed
    assert (await store.extent("s")).length == 2


async def test_changes_that_fail_leave_their_session_free_and_ended_ones_no_lock(
    path: Path, store: SqliteStore, other: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    await other.append("t", entries(1, 1, session_id="t"))
    bad = entry(1)
    bad.message["content"] = b"no JSON"
    with pytest.raises(TypeError):
        await store.append("s", [bad])
    with pytest.raises(StoreError):
        await store.fork("t", "s", 9)
    await store.close()
    (interrupted := path.with_name("sessions.db.repaired")).touch()
    with pytest.raises(StoreError, match="interrupted"):
        await store.open("s")
    interrupted.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(filelock.FileLock, "_acquire", refuse)
        with pytest.raises(StoreError, match=f"session 's' cannot be locked: the file system of {path}.* has no locks"):
            await store.append("s", entries(1, 1))
    await other.open("s")
    await other.close()
    for name in "abc":
        await store.append(name, entries(1, 1, session_id=name))
    await store.delete("a")
    await store.release("b")
    folder = path.with_name("sessions.db.locks")
    assert len(list(folder.iterdir())) == 1
    await store.close()
    assert not folder.exists()
