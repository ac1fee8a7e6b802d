"""Records of a resumed session hold for the entries that they were made from, loaded or not."""

from __future__ import annotations

import asyncio
import json

import pytest
from amplifier_core.message_models import ChatRequest, ChatResponse, TextBlock, Usage

from amplifier_context_core.stores import MemoryStore
from tests.messages import call, rounds, work
from tests.summary.scripted import Provider, drive, good, summary_manager, wait_for_summaries

pytestmark = pytest.mark.kernel
SECRET = "hunter2-0815"


def repeating(request: ChatRequest, number: int) -> str:
    """A patch that repeats the password, if the request shows it."""
    patch = json.loads(good(request, number)) if len(request.messages) == 2 else {"next": f"STEP {number}"}
    if SECRET in str([message.content for message in request.messages[1:]]):
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
        if SECRET in str(manager.extra_state()):
            break
    records = manager.records.valid(manager.history)
    assert [record.upto for record in records] == sorted(record.upto for record in records)
    assert SECRET in str(manager.extra_state())
    assert await manager.forget(containing=SECRET)
    assert SECRET not in str(manager.extra_state())
    await manager.close()


async def test_what_a_forked_request_showed_after_its_range_is_in_no_state_after_it_was_forgotten() -> None:
    manager = summary_manager(Provider(repeating), summary_call="fork")
    session = work(60, output=900)
    pasted = {"role": "user", "content": f"The password is {SECRET}."}
    await drive(manager, [*session[:25], pasted])
    for message in session[25:]:
        await drive(manager, [message])
        if SECRET in str(manager.extra_state()):
            break
    newest = manager.records.valid(manager.history)[-1]
    assert newest.reach > newest.covered
    assert SECRET in str(manager.extra_state())
    (mark,) = await manager.forget(containing=SECRET)
    assert int(mark[1:]) > newest.upto, "it came after the range"
    assert SECRET not in str(manager.extra_state())
    await manager.close()


async def test_what_a_forked_request_showed_is_in_no_state_that_was_made_from_its_state() -> None:
    """A forked call that cost too much is followed by separate ones; the message is forgotten during the next."""
    asked, release = asyncio.Event(), asyncio.Event()

    async def script(request: ChatRequest, number: int) -> ChatResponse:
        if number == 2:
            asked.set()
            await release.wait()
        usage = Usage(input_tokens=60_000 if len(request.messages) > 2 else 900, output_tokens=90, total_tokens=0)
        text = TextBlock(text=repeating(request, number))
        return ChatResponse(content=[text], finish_reason="stop", usage=usage)

    provider = Provider(script)
    manager = summary_manager(provider, summary_call="fork", summary_input=1_500, max_summary_tokens=10**9)
    session = work(90, output=700)
    session.insert(15, {"role": "user", "content": "Look at this log, line by line. " * 180})
    session[17] = session[17] | {"content": f"{session[17]['content']} {SECRET}"}
    for message in session:
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(4_000)
            while manager.writer.is_running and not asked.is_set():
                await asyncio.sleep(0.001)
        if asked.is_set():
            break
    assert [len(request.messages) > 2 for request in provider.requests] == [True, False]
    assert SECRET not in str(provider.requests[1].messages[1].content).split("[history ")[1], "not in its range"
    (first,) = manager.records.valid(manager.history)
    assert SECRET in str(first.state)
    assert await manager.forget(containing=SECRET)
    release.set()
    await wait_for_summaries(manager)
    assert SECRET not in str(manager.extra_state())
    await manager.close()


async def test_a_resumed_session_keeps_a_record_that_showed_more_than_its_range() -> None:
    store = MemoryStore()
    manager = summary_manager(Provider(repeating), store=store, summary_call="fork")
    await drive(manager, work(40, output=900))
    kept = manager.records.valid(manager.history)
    assert any(record.reach > record.covered for record in kept)
    await manager.close()
    again = summary_manager(None, store=store)
    await again.ready()
    assert await again.records.verified(again.history) == kept
    await again.close()


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
