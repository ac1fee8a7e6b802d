"""Records of a resumed session hold for the entries that they were made from, loaded or not."""

from __future__ import annotations

import json

import pytest

from amplifier_context_core.stores import MemoryStore
from tests.messages import digest, rounds, text, work
from tests.summary.scripted import BUDGET, Provider, drive, good, summary_manager

pytestmark = pytest.mark.kernel
SECRET = "hunter2-0815"


async def test_a_record_that_begins_before_the_loaded_entries_is_compared_with_all_of_its_own() -> None:
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, work(60, output=900))
    newest = manager.records.valid(manager.history)[-1]
    covered = manager.compactor.last_sent.view.checkpoint.covered
    assert newest.start < covered, "the record begins in what a resumed session does not load"
    assert newest.covered > covered, "and ends in what it loads"
    await manager.close()
    entries = await store.read("s")
    await store.replace("s", covered + 1, entries[covered + 2 :])  # by another program: no round has lost its call
    again = summary_manager(None, store=store)
    await again.ready()
    assert again.history.snapshot().gap
    held = await again.records.verified(again.history)
    assert newest not in held
    await again.close()


async def test_a_resumed_session_keeps_records_of_entries_that_are_not_loaded() -> None:
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, work(60, output=900))
    kept = manager.records.valid(manager.history)
    await manager.close()
    again = summary_manager(None, store=store)
    await again.ready()
    assert again.history.snapshot().gap
    assert await again.records.verified(again.history) == kept
    assert again.history.snapshot().gap, "nothing was loaded for it"
    await again.close()


async def test_a_session_that_was_saved_with_a_summary_state_opens_with_its_view_and_goes_on_from_it() -> None:
    """As sessions were saved until each answer was the whole text (version 2 of the records)."""
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, work(60, output=900))
    before = await manager.get_messages_for_request(BUDGET)
    assert "in a model's words" in text(before)
    await manager.close()
    saved = json.loads(await store.load_checkpoint("s") or b"")
    extra = saved["extra"]["context-summary"]
    item = {"id": "t1", "section": "open", "text": "add a test", "detail": "", "marks": ["m3"], "changed": 9}
    rule = {**item, "id": "r2", "section": "rule", "text": "Do the work.", "marks": ["m1"]}
    state = {"items": [item, rule], "next": "go on", "next_changed": 9, "hints": [], "made": 2, "closed": []}
    extra["version"] = 2
    for record in extra["records"]:
        del record["text"], record["writer"], record["cost"]
        record |= {"reach": record["covered"], "state": state}
    await store.save_checkpoint("s", len(await store.read("s")), json.dumps(saved).encode())
    provider = Provider(good)
    again = summary_manager(provider, store=store)
    assert digest(await again.get_messages_for_request(BUDGET)) == digest(before), "a text that is shown stays"
    assert again.warnings.texts == manager.warnings.texts
    kept = str(again.records.valid(again.history)[-1].text)
    assert kept == '## Person\n- Rule: "Do the work." (m1)\n\n## Work\n- Open: add a test (m3)\n- Next: go on'
    await drive(again, rounds(40, start=90, output=900))
    assert "- Open: add a test (m3)" in provider.text(0)
    await again.close()
