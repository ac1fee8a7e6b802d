"""Records of a resumed session hold for the entries that they were made from, loaded or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_context_core.stores import MemoryStore
from tests.messages import digest, text, work
from tests.summary.scripted import BUDGET, Provider, drive, good, summary_manager

pytestmark = pytest.mark.kernel
SECRET = "hunter2-0815"


async def test_a_record_that_begins_before_the_loaded_entries_is_compared_with_all_of_its_own() -> None:
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, work(60, output=900))
    newest = manager.records.valid()[-1]
    covered = manager.compactor.last_sent.view.checkpoint.covered
    assert newest.start < covered, "the record begins in what a resumed session does not load"
    assert newest.covered > covered, "and ends in what it loads"
    await manager.close()
    entries = await store.read("s")
    await store.replace("s", covered + 1, entries[covered + 2 :])  # by another program: no round has lost its call
    again = summary_manager(None, store=store)
    await again.ready()
    assert again.history.snapshot().gap
    held = await again.records.verified()
    assert newest not in held
    await again.close()


async def test_a_resumed_session_keeps_records_of_entries_that_are_not_loaded() -> None:
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, work(60, output=900))
    kept = manager.records.valid()
    await manager.close()
    again = summary_manager(None, store=store)
    await again.ready()
    assert again.history.snapshot().gap
    assert await again.records.verified() == kept
    assert again.history.snapshot().gap, "nothing was loaded for it"
    await again.close()


@pytest.mark.parametrize("odd", [[1], "text", 7, {"records": 3}])
async def test_a_session_whose_summary_state_is_of_no_use_opens(odd: Any) -> None:
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, work(60, output=900))
    await manager.close()
    saved = json.loads(await store.load_checkpoint("s") or b"")
    saved["extra"]["context-summary"] = odd
    await store.save_checkpoint("s", len(await store.read("s")), json.dumps(saved).encode())
    again = summary_manager(None, store=store)
    assert len(await again.get_messages_for_request(BUDGET)) > 1
    assert "cannot be read" in str(again.warnings.texts)
    await again.close()


async def test_a_session_that_was_saved_with_a_summary_state_opens_with_its_view() -> None:
    """As sessions were saved until each answer was the whole text (version 2 of the records)."""
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, work(60, output=900))
    before = await manager.get_messages_for_request(BUDGET)
    assert "in a model's words" in text(before)
    await manager.close()
    saved = json.loads(await store.load_checkpoint("s") or b"")
    extra = saved["extra"]["context-summary"]
    extra["version"] = 2
    for record in extra["records"]:
        record["state"] = record.pop("text")
    await store.save_checkpoint("s", len(await store.read("s")), json.dumps(saved).encode())
    again = summary_manager(None, store=store)
    assert digest(await again.get_messages_for_request(BUDGET)) == digest(before)
    assert again.limits.calls == manager.limits.calls
    assert "cannot be read" in str(again.warnings.texts)
    await again.close()
