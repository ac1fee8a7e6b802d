"""Requests that their provider counts before they are sent (`context.measured_request_view`), with summaries.

A summary is put in when the loop commits its request, and not before; a provider's own compaction too.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import ChatRequest

from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.session_state import dump
from amplifier_context_testing.summaries.writers import Writer
from tests.manager.measured import Counting
from tests.messages import bare, digest, text, work
from tests.places import BACKENDS, Place, parameters
from tests.summary.scripted import Provider, good, summary_manager, wait_for_summaries
from tests.summary.test_native import NATIVE, Odd, carrier, carriers

pytestmark = pytest.mark.kernel
SESSION = work(60, output=900)
AUTHORED = "in a model's words"
PAUSE = {"role": "user", "content": "Good morning.", "metadata": {"timestamp": "2099-01-01T00:00:00.000+00:00"}}


@pytest.fixture(params=parameters("memory", "sqlite", soak=BACKENDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def session(place: Place, provider: Any, **config: Any) -> Any:
    """The session of a test in its place, as each process opens it."""
    return summary_manager(provider, store=place.store(), session_id=place.session_id(), **config)


async def counted(manager: Any, provider: Any = None, *, sent: bool = True) -> list[dict[str, Any]]:
    """A view as a loop takes it that counts its requests, committed or rolled back."""
    result = await manager.measured_request_view(provider=provider, count_view=Counting(ratio=1.0))
    if not sent:
        result["transaction"].rollback()
    assert await result["transaction"].commit() is sent
    return result["base_view"]


async def drive(
    manager: Any, messages: list[dict[str, Any]], provider: Any = None, *, waits: bool = True
) -> list[list[dict[str, Any]]]:
    """Add messages; before each answer a request is counted and rolled back, then one is counted and sent."""
    views: list[list[dict[str, Any]]] = []
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
    parts = (manager.history, manager.compactor, manager.meter, manager.warnings, counter, manager.state(0))
    return dump(collect_state(*parts))


async def late(manager: Any, release: Any) -> None:
    """A session whose summary, or carrier, comes after its compaction; then a pause in which the cache is lost."""
    views = await drive(manager, SESSION[:41], waits=False)
    assert "<context_record>" in text(views[-1])
    assert AUTHORED not in text(views[-1])
    release.set()
    await wait_for_summaries(manager)
    assert digest(bare(await counted(manager))) == digest(bare(views[-1])), "the prefix stays while it is cached"
    await manager.add_message(PAUSE)


async def test_a_summary_is_in_the_views_of_measured_requests(place: Place) -> None:
    manager = session(place, Provider(good))
    views = await drive(manager, SESSION)
    assert manager.compactor.compactions >= 2
    assert AUTHORED in text(views[-1])
    await manager.close()
    again = session(place, None)
    assert digest(bare(await counted(again))) == digest(bare(views[-1]))
    await again.close()


async def test_a_measured_request_waits_for_its_summary_if_the_config_says_so() -> None:
    async def late_answer(request: ChatRequest, number: int) -> str:
        await asyncio.sleep(0.05)
        return good(request, number)

    manager = summary_manager(Provider(late_answer), summary_background=False)
    views = await drive(manager, SESSION, waits=False)
    first = next(view for view in views if "<context_record>" in text(view))
    assert AUTHORED in text(first)
    await manager.close()


async def test_a_late_summary_is_put_in_by_the_commit_and_by_nothing_before(place: Place) -> None:
    writer = Writer("slow")
    manager = session(place, writer, cache_ttl=60)
    await late(manager, writer.release)
    before = await state_of(manager)
    given_up = await counted(manager, sent=False)
    assert AUTHORED in text(given_up)
    assert await state_of(manager) == before
    view = await counted(manager)
    assert digest(bare(view)) == digest(bare(given_up))
    assert digest(bare(await counted(manager))) == digest(bare(view))
    await manager.store.close()  # the process ends: what was committed is saved
    again = session(place, None, cache_ttl=60)
    assert digest(bare(await counted(again))) == digest(bare(view))
    await again.close()


class Slow(Odd):
    """A provider whose compaction comes when the test says so."""

    def __init__(self) -> None:
        super().__init__({"kind": "native", "message": carrier()})
        self.writer = Writer("slow")

    async def compact_context(self, request: Any) -> Any:
        await self.writer.release.wait()
        return await super().compact_context(request)


async def test_a_late_carrier_is_put_in_by_the_commit_and_by_nothing_before(place: Place) -> None:
    provider = Slow()
    manager = session(place, provider, cache_ttl=60, **NATIVE)
    views = await drive(manager, SESSION[:41], provider, waits=False)
    assert carriers(views[-1]) == []
    provider.writer.release.set()
    await wait_for_summaries(manager)
    assert digest(bare(await counted(manager, provider))) == digest(bare(views[-1]))
    await manager.add_message(PAUSE)
    before = await state_of(manager)
    given_up = await counted(manager, provider, sent=False)
    assert await state_of(manager) == before
    view = await counted(manager, provider)
    assert carriers(view) == [view[0]]
    assert digest(bare(view)) == digest(bare(given_up))
    await manager.store.close()
    again = session(place, Odd(None), cache_ttl=60, **NATIVE)
    assert digest(bare(await counted(again, provider))) == digest(bare(view))
    await again.close()
