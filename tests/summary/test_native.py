"""`summary_writer: native`: the provider compacts the conversation itself; the digest is the fallback."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from amplifier_core import ChatRequest

from amplifier_context_core.view import shared_cache
from amplifier_context_core.view.candidate import carrier_of
from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.session_state import dump
from tests.manager.measured import Counting
from tests.messages import bare, digest, text
from tests.places import Place
from tests.summary.native_provider import ANSWER, METADATA, NATIVE, NativeProvider, Odd, Slow, carrier, carriers
from tests.summary.scripted import (
    BUDGET,
    PAUSE,
    SESSION,
    WORDS,
    Message,
    Provider,
    drive,
    good,
    opened,
    summary_manager,
    view_of,
    wait_for_summaries,
)
from tests.writers import Writer

pytestmark = pytest.mark.kernel

SHORT = SESSION[:43]  # one compaction
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


async def test_the_carrier_is_first_alone_and_byte_for_byte_and_the_next_one_is_made_from_it() -> None:
    provider = NativeProvider()
    manager = summary_manager(provider, **NATIVE)
    views = await drive(manager, SESSION, provider)
    assert manager.compactor.compactions >= 2
    assert carriers(views[-1]) == [views[-1][0]]
    segments = manager.compactor.last_sent.view.checkpoint.segments
    covered = max(segment.last for segment in segments if carrier_of(segment))
    beside = re.findall(r"<context_record>\\n\[m(\d+) ", text(views[-1]))
    assert all(int(first) > covered for first in beside), "no chapter that it covers is sent beside it"
    results = [entry for entry in manager.snapshot() if entry.role == "tool" and entry.seq <= covered]
    assert len(results) > 5
    assert not any(entry.message["content"][:200] in text(views[-1]) for entry in results)
    shown = [carriers(view)[0] for view in views if carriers(view)]
    assert len({digest([one]) for one in shown}) <= len(provider.compactions)
    blocks = [one["metadata"][METADATA]["block"] for one in shown]
    assert all(block["content"] == ANSWER for block in blocks)
    (former,) = carriers(provider.compactions[-1])
    assert former["metadata"][METADATA]["block"] in blocks, "of the one before"
    for view in views[-3:]:
        await provider.accept(view)


@pytest.fixture(scope="module")
def digests() -> list[str]:
    """The views of the same session when no model is asked."""

    async def run() -> list[str]:
        manager = summary_manager(Odd(None), **NATIVE, max_summary_calls=0)
        views = await drive(manager, SHORT, Odd(None))
        assert manager.compactor.compactions
        return [digest(bare(view)) for view in views]

    return asyncio.run(run())


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {"kind": "text", "message": carrier()},
        {"kind": "native", "message": None},
        {"kind": "native", "message": {"role": "user", "content": "no carrier"}},
        {"kind": "native", "message": {**carrier(), "role": "robot"}},
        {"kind": "native", "message": carrier("another model")},
        {"kind": "native", "message": carrier(accepted=False)},
        {"kind": "native", "message": carrier(text="word " * 20_000)},
        ValueError("as the test asked for"),
    ],
)
async def test_with_no_compaction_for_the_model_of_the_session_the_views_are_the_digests_byte_for_byte(
    result: Any, digests: list[str]
) -> None:
    provider = Odd(result)
    manager = summary_manager(provider, **NATIVE)
    views = await drive(manager, SHORT, provider)
    assert provider.asked
    assert [digest(bare(view)) for view in views] == digests
    assert (await manager.explain())["summary"]["status"] == "failed"
    assert manager.limits.failures >= 1


@pytest.mark.parametrize("config", [{}, {"summary_model": "wire-2"}])
async def test_where_it_is_not_offered_there_is_one_warning_and_a_model_is_asked(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    provider = NativeProvider(compaction=bool(config))
    await drive(summary_manager(provider, **NATIVE, **config), SESSION, provider)
    assert provider.compactions == []
    assert provider.answers
    assert len([record for record in caplog.records if "summary_writer native" in record.getMessage()]) == 1


async def test_its_calls_are_counted_and_compact_reports_the_words_of_the_carrier() -> None:
    provider = NativeProvider()
    manager = summary_manager(provider, **NATIVE, max_summary_calls=2)
    await drive(manager, SESSION[:27], provider)
    report = await manager.compact()
    assert (report["author"], report["chapter"]) == ("native", ANSWER)
    assert carriers(await view_of(manager, provider))
    await drive(manager, SESSION[27:], provider)
    assert len(provider.compactions) == 2
    report = (await manager.explain())["summary"]
    assert (report["calls"], report["reason"]) == (2, "max_summary_calls")
    assert report["summary_cost"] > 0


# -- in each store: resumed by another process, erased, and taken back -------------------------------------------------


def reopened(place: Place, provider: Any) -> Any:
    """The session as another process opens it: nothing is shared."""
    shared_cache.clear()
    return opened(place, provider, **NATIVE)


async def test_another_process_begins_with_the_same_carrier_and_takes_it_back(place: Place) -> None:
    provider = NativeProvider()
    manager = reopened(place, provider)
    before = (await drive(manager, SESSION, provider))[-1]
    await manager.close()
    asked = len(provider.compactions), provider.answers
    manager = reopened(place, provider)
    assert digest(await view_of(manager, provider)) == digest(before)
    measured = await manager.measured_request_view(provider=provider, count_view=Counting(ratio=1.0))
    await measured["transaction"].commit()
    assert digest(measured["base_view"]) == digest(before)
    assert (len(provider.compactions), provider.answers) == asked
    assert (await manager.undo())["undone"]
    after = await view_of(manager, provider)
    assert digest(after) != digest(before)
    await manager.close()
    manager = reopened(place, provider)
    assert digest(await view_of(manager, provider)) == digest(after)
    await provider.accept(after)
    await manager.close()


async def test_what_is_erased_is_in_no_carrier_of_the_next_process(place: Place) -> None:
    provider = NativeProvider()
    manager = reopened(place, provider)
    assert carriers((await drive(manager, SESSION, provider))[-1])
    mark = manager.snapshot()[4].mark
    await manager.close()
    again = reopened(place, provider)
    assert await again.forget([mark]) == [mark]
    await again.close()
    last = reopened(place, provider)
    assert await last.records.verified() == []
    view = await view_of(last, provider)
    assert carriers(view) == []
    assert ANSWER not in text(view)
    assert "<context_record>" in text(view)
    await last.close()


async def test_a_pin_and_another_model_show_what_the_carrier_hides(place: Place) -> None:
    provider, other = NativeProvider(), NativeProvider(model="wire-2")
    manager = reopened(place, provider)
    await drive(manager, SESSION, provider)
    pinned = manager.snapshot()[4]
    await manager.pin(pinned.mark)
    await manager.close()
    again = reopened(place, provider)
    view = await view_of(again, provider)
    assert carriers(view) == [view[0]]
    assert pinned.message["content"] in [message["content"] for message in view[1:]]
    await provider.accept(view)
    theirs = await view_of(again, other)
    assert carriers(theirs) == []
    assert "<context_record>" in text(theirs)
    assert pinned.message["content"] in [message["content"] for message in theirs]
    await again.close()


@pytest.mark.parametrize("words", [600, 1_600])
async def test_a_large_carrier_fits_and_another_model_at_its_budget_brings_no_further_compaction(words: int) -> None:
    """Both caches are cold at each request, so either model may put in what came late."""

    async def compactions(*, both: bool) -> int:
        provider, other = NativeProvider("word " * words), NativeProvider(model="wire-2")
        manager = summary_manager(provider, **NATIVE, cache_ttl=60)
        for number, message in enumerate(SESSION):
            stamp = (START + timedelta(seconds=100 * number)).isoformat()
            stamped: Message = {**message, "metadata": {"timestamp": stamp}}
            await drive(manager, [stamped], provider)
            last = manager.compactor.last_sent
            assert last is None or last.counted <= BUDGET
            if both and message["role"] != "assistant":
                await view_of(manager, other)
        return manager.compactor.compactions

    assert await compactions(both=True) == await compactions(both=False) >= 2


# -- measured requests: a compaction or a summary is put in when the loop commits its request, and not before ----------


async def counted(manager: Any, provider: Any = None, *, sent: bool = True) -> list[Message]:
    """A view as a loop takes it that counts its requests, committed or rolled back."""
    result = await manager.measured_request_view(provider=provider, count_view=Counting(ratio=1.0))
    if not sent:
        result["transaction"].rollback()
    assert await result["transaction"].commit() is sent
    return result["base_view"]


async def driven(manager: Any, messages: list[Message], provider: Any = None, *, waits: bool = True) -> list[Any]:
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
    views = await driven(manager, SESSION[:43], waits=False)
    first = next(view for view in views if "<context_record>" in text(view))
    assert WORDS in text(first)


@pytest.mark.parametrize("is_native", [False, True])
async def test_what_comes_late_is_put_in_by_the_commit_and_by_nothing_before(is_native: bool, place: Place) -> None:
    provider: Any = Slow() if is_native else Writer("slow")
    config: dict[str, Any] = {"cache_ttl": 60, **(NATIVE if is_native else {})}
    manager = opened(place, provider, **config)

    def is_in(view: list[Message]) -> bool:
        return carriers(view) == [view[0]] if is_native else WORDS in text(view)

    views = await driven(manager, SESSION[:41], provider, waits=False)
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
