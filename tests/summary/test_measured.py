"""Requests that their provider counts before they are sent (`context.measured_request_view`), with summaries.

A summary is put in when the loop commits its request, and not before; a provider's own compaction too.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from amplifier_core import ChatRequest

from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.session_state import dump
from tests.manager.measured import Counting
from tests.messages import bare, digest, text
from tests.places import Place
from tests.summary.native_provider import NATIVE, Odd, Slow, carriers
from tests.summary.scripted import (
    PAUSE,
    SESSION,
    WORDS,
    Message,
    Provider,
    good,
    opened,
    summary_manager,
    wait_for_summaries,
)
from tests.writers import Writer

pytestmark = pytest.mark.kernel


async def counted(manager: Any, provider: Any = None, *, sent: bool = True) -> list[Message]:
    """A view as a loop takes it that counts its requests, committed or rolled back."""
    result = await manager.measured_request_view(provider=provider, count_view=Counting(ratio=1.0))
    if not sent:
        result["transaction"].rollback()
    assert await result["transaction"].commit() is sent
    return result["base_view"]


async def drive(manager: Any, messages: list[Message], provider: Any = None, *, waits: bool = True) -> list[Any]:
    """Add messages; before each answer a request is counted and rolled back, then one is counted and sent."""
    views: list[list[Message]] = []
    for message in messages:
        await manager.add_message(message)
        if message["role"] != "assistant":
            given_up = await counted(manager, provider, sent=False)
            views.append(await counted(manager, provider))
            assert digest(bare(views[-1])) == digest(bare(given_up)), "a rollback changed what comes next"
            if waits:
                await wait_for_summaries(manager)
    return views


async def state_of(manager: Any) -> bytes:
    counter = await manager.token_counter()
    parts = (manager.history, manager.compactor, counter, manager.state(0))
    return dump(collect_state(*parts))


async def test_a_measured_request_waits_for_its_summary_if_the_config_says_so() -> None:
    async def late_answer(request: ChatRequest, number: int) -> str:
        await asyncio.sleep(0.05)
        return good(request, number)

    manager = summary_manager(Provider(late_answer), summary_background=False)
    views = await drive(manager, SESSION[:43], waits=False)
    first = next(view for view in views if "<context_record>" in text(view))
    assert WORDS in text(first)


@pytest.mark.parametrize("is_native", [False, True])
async def test_what_comes_late_is_put_in_by_the_commit_and_by_nothing_before(is_native: bool, place: Place) -> None:
    provider: Any = Slow() if is_native else Writer("slow")
    config: dict[str, Any] = {"cache_ttl": 60, **(NATIVE if is_native else {})}
    manager = opened(place, provider, **config)

    def is_in(view: list[Message]) -> bool:
        return carriers(view) == [view[0]] if is_native else WORDS in text(view)

    views = await drive(manager, SESSION[:41], provider, waits=False)
    assert "<context_record>" in text(views[-1])
    provider.release.set()
    await wait_for_summaries(manager)
    same = await counted(manager, provider)
    assert digest(bare(same)) == digest(bare(views[-1])), "the prefix stays while it is cached"
    assert not is_in(same)
    await manager.add_message(PAUSE)
    before = await state_of(manager)
    given_up = await counted(manager, provider, sent=False)
    assert is_in(given_up)
    assert await state_of(manager) == before
    view = await counted(manager, provider)
    assert digest(bare(view)) == digest(bare(given_up))
    assert digest(bare(await counted(manager, provider))) == digest(bare(view))
    await manager.store.close()  # the process ends: what was committed is saved
    again = opened(place, Odd(None) if is_native else None, **config)
    assert digest(bare(await counted(again, provider))) == digest(bare(view))
    await again.close()
