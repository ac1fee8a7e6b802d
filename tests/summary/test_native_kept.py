"""`summary_writer: native` in each store: resumed by another process, forked, erased, and taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amplifier_context_core.view import shared_cache
from tests.manager.measured import Counting
from tests.messages import digest, text
from tests.places import Place
from tests.summary.scripted import BUDGET, SESSION
from tests.summary.test_native import Session, anthropic, carriers, sent

pytestmark = pytest.mark.kernel
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def opened(place: Place, provider: Any, name: str = "s", **config: Any) -> Session:
    """The session as another process opens it: nothing is shared."""
    shared_cache.clear()
    return Session(provider, place.store(), session_id=place.session_id(name), **config)


async def test_another_process_begins_with_the_same_carrier_and_takes_it_back(place: Place) -> None:
    async with anthropic() as found:
        session = opened(place, found.provider)
        before = await session.run(SESSION)
        await session.manager.close()
        asked = len(found.provider.exchanges)
        session = opened(place, found.provider)
        assert digest(await session.view()) == digest(before)
        measured = await session.manager.measured_request_view(provider=found.provider, count_view=Counting(ratio=1.0))
        await measured["transaction"].commit()
        assert digest(measured["base_view"]) == digest(before)
        assert len(found.provider.exchanges) == asked
        assert (await session.manager.undo())["undone"]
        after = await session.view()
        assert digest(after) != digest(before)
        await session.manager.close()
        session = opened(place, found.provider)
        assert digest(await session.view()) == digest(after)
        await sent(found, after)
        await session.manager.close()


async def test_what_is_erased_is_in_no_carrier_of_the_next_process(place: Place) -> None:
    async with anthropic() as found:
        session = opened(place, found.provider)
        [carrier] = carriers(await session.run(SESSION))
        mark = session.manager.snapshot()[4].mark
        await session.manager.close()
        again = opened(place, found.provider)
        assert await again.manager.forget([mark]) == [mark]
        await again.manager.close()
        last = opened(place, found.provider)
        assert await last.manager.records.verified() == []
        view = await last.view()
        assert carriers(view) == []
        assert carrier["metadata"]["anthropic:compaction"]["block"]["content"] not in text(view)
        assert "<context_record>" in text(view)
        await last.manager.close()


async def test_a_pin_and_another_model_show_what_the_carrier_hides(place: Place) -> None:
    async with anthropic() as found, anthropic(model="wire-2") as other:
        session = opened(place, found.provider)
        await session.run(SESSION)
        pinned = session.manager.snapshot()[4]
        await session.manager.pin(pinned.mark)
        await session.manager.close()
        again = opened(place, found.provider)
        view = await again.view()
        assert carriers(view) == [view[0]]
        assert pinned.message["content"] in [message["content"] for message in view[1:]]
        await sent(found, view)
        theirs = await again.view(other.provider)
        assert carriers(theirs) == []
        assert "<context_record>" in text(theirs)
        assert pinned.message["content"] in [message["content"] for message in theirs]
        await again.manager.close()


@pytest.mark.parametrize("words", [600, 1_600])
async def test_a_large_carrier_fits_and_another_model_at_its_budget_brings_no_further_compaction(words: int) -> None:
    """Both caches are cold at each request, so either model may put in what came late."""

    def long(request: Any) -> str:
        return "word " * words if request.metadata else "I go on."

    async def compactions(*, both: bool) -> int:
        async with anthropic(long) as found, anthropic(model="wire-2") as other:
            session = Session(found.provider, cache_ttl=60)
            for number, message in enumerate(SESSION):
                stamp = (START + timedelta(seconds=100 * number)).isoformat()
                await session.run([{**message, "metadata": {"timestamp": stamp}}])
                last = session.manager.compactor.last_sent
                assert last is None or last.counted <= BUDGET
                if both and message["role"] != "assistant":
                    await session.view(other.provider)
            return session.manager.compactor.compactions

    assert await compactions(both=True) == await compactions(both=False) >= 2
