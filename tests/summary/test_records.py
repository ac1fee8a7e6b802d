"""Records of a resumed session hold for the entries that they were made from, loaded or not."""

from __future__ import annotations

import json

import pytest
from amplifier_core.message_models import ChatRequest

from amplifier_context_core.stores import MemoryStore
from tests.messages import call, rounds, work
from tests.summary.scripted import Provider, drive, good, summary_manager

pytestmark = pytest.mark.kernel
SECRET = "hunter2-0815"


def repeating(request: ChatRequest, number: int) -> str:
    """A patch that repeats the password, if the request shows it."""
    patch = json.loads(good(request, number))
    if SECRET in str(request.messages[1].content):
        patch["open"] = [{"text": f"use the password {SECRET}"}]
    return json.dumps(patch)


async def test_what_came_late_is_in_no_state_after_it_was_forgotten() -> None:
    """Its call is in an earlier piece of the range than itself."""
    manager = summary_manager(Provider(repeating), summary_input=600)
    late = {"role": "tool", "tool_call_id": "late", "content": f"The job is done. {SECRET}"}
    session = [{"role": "user", "content": "Fix it."}, call("late"), *rounds(12, output=900), late]
    session += [{"role": "user", "content": "Go on."}, *rounds(30, start=12, output=900)]
    for length in range(len(session)):
        await drive(manager, session[length : length + 1])
        if SECRET in str(manager._extra_state()):
            break
    records = manager.records.valid(manager.history)
    assert [record.upto for record in records] == sorted(record.upto for record in records)
    assert SECRET in str(manager._extra_state())
    assert await manager.forget(containing=SECRET)
    assert SECRET not in str(manager._extra_state())
    await manager.close()


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
