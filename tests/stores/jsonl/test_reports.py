"""What a repair and `verify` report, and to which listener."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.stores.jsonl.store import JsonlStore
from tests.stores.jsonl.damage import hit, line_start, seqs
from tests.stores.jsonl.files import NAME, write


async def test_a_repair_is_logged_without_any_content(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = await write(root, 4)
    hit(files.main, line_start(files, 1), b"[")
    store = JsonlStore(root)
    with caplog.at_level(logging.WARNING):
        await store.open("s")
        await store.read("s")
    await store.close()
    (record,) = caplog.records
    size = len(files.quarantined()[0])
    assert record.getMessage() == (
        f"session 's': {size} bytes of {NAME}, from byte 117 on, are damaged; quarantined; 1 message lost; "
        f"kept in {files.damaged}"
    )


async def test_a_manager_reports_a_repair_once_with_its_loss_and_its_quarantine(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = await write(root, 4)
    hit(files.main, line_start(files, 1), b"[")
    hooks = AsyncMock()
    manager = ContextManager(session_id="s", store=JsonlStore(root), hooks=hooks)
    with caplog.at_level(logging.WARNING):
        await manager.get_messages()
        await manager.get_messages_for_request()
    await manager.close()
    reported = f"quarantined; 1 message lost; kept in {files.damaged}"
    (record,) = caplog.records
    assert record.getMessage().endswith(reported)
    (((name, data), _),) = hooks.emit.await_args_list
    assert (name, data["reason"]) == ("context:warning", "repair")
    assert data["message"].endswith(reported)


async def test_verify_reports_everything_and_changes_nothing(root: Path) -> None:
    files = await write(root, 12, checkpoint=3)
    hit(files.main, line_start(files, 1), b"[")
    hit(files.main, line_start(files, 4) + files.lines[4].index(b"module"), b"nodule")
    hit(files.checkpoint, -4, b"?")
    files.main.write_bytes(files.main.read_bytes() + b'{"torn')
    before = {path: path.read_bytes() for path in (root / "s").iterdir()}
    store = JsonlStore(root)
    reported = await store.verify("s")
    assert len(reported) == 4, reported
    assert "1 message is lost" in reported[0]
    await store.close()
    assert {path: path.read_bytes() for path in (root / "s").iterdir()} == before


async def test_verify_of_an_intact_or_missing_session_reports_nothing(root: Path) -> None:
    await write(root, 5, checkpoint=2)
    store = JsonlStore(root)
    assert await store.verify("s") == []
    assert await store.verify("missing") == []
    await store.open("s")
    assert await store.verify("s") == []
    await store.close()


async def test_a_file_that_another_program_wrote_is_no_damage(root: Path) -> None:
    files = await write(root, 12)
    for path in (root / "s").iterdir():
        if path != files.main:
            path.unlink()
    store = JsonlStore(root)
    assert await store.verify("s") == []
    files.main.write_bytes(files.main.read_bytes() + b'{"torn')
    (reported,) = await store.verify("s")
    assert "unfinished" in reported
    await store.close()


async def test_an_index_that_was_lost_beside_files_of_this_store_is_damage(root: Path) -> None:
    files = await write(root, 12, checkpoint=3)
    files.index.unlink()
    store = JsonlStore(root)
    assert any("holds 12 messages without an index" in reported for reported in await store.verify("s"))
    await store.close()


async def test_a_listener_that_fails_does_not_stop_the_repair(root: Path) -> None:
    files = await write(root, 5)
    hit(files.main, line_start(files, 1), b"[")

    def broken(repair: object) -> None:
        raise RuntimeError("listener")

    store = JsonlStore(root)
    await store.open("s", broken)
    assert [one.seq for one in await store.read("s")] == seqs(5, 2)
    await store.close()
