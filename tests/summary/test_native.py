"""`summary_writer: native`: the provider compacts the conversation itself; the digest is the fallback."""

import re
from typing import Any

import pytest

from amplifier_context_core.view import shared_cache
from tests.messages import bare, digest, text
from tests.places import Place
from tests.summary.native_provider import ANSWER, METADATA, NATIVE, NativeProvider, Odd, carrier, carriers
from tests.summary.scripted import (
    SESSION,
    drive,
    opened,
    summary_manager,
    view_of,
)

pytestmark = pytest.mark.kernel

SHORT = SESSION[:43]  # one compaction


async def test_the_carrier_is_first_alone_and_byte_for_byte_and_the_next_one_is_made_from_it() -> None:
    provider = NativeProvider()
    manager = summary_manager(provider, **NATIVE)
    views = await drive(manager, SESSION, provider)
    assert manager.compactor.compactions >= 2
    assert carriers(views[-1]) == [views[-1][0]]
    covered = manager.records.valid()[-1].upto
    beside = re.findall(r"<context_record>\\n\[m(\d+) ", text(views[-1]))
    assert all(int(first) > covered for first in beside), "no chapter that it covers is sent beside it"
    results = [entry for entry in manager.snapshot() if entry.role == "tool" and entry.seq <= covered]
    assert len(results) > 5
    assert not any(entry.message["content"][:200] in text(views[-1]) for entry in results)
    blocks = [carriers(view)[0]["metadata"][METADATA]["block"] for view in views if carriers(view)]
    assert all(block["content"] == ANSWER for block in blocks)
    (former,) = carriers(provider.compactions[-1])
    assert former["metadata"][METADATA]["block"] in blocks, "of the one before"
    await provider.accept(views[-1])
    assert (await manager.explain())["summary"]["calls"] == len(provider.compactions)
    theirs = await view_of(manager, NativeProvider(model="wire-2"))
    assert carriers(theirs) == []
    assert "<context_record>" in text(theirs), "another model cannot read it"


@pytest.mark.parametrize(
    "result",
    [
        {"kind": "text", "message": carrier()},
        {"kind": "native", "message": {**carrier(), "role": "robot"}},
        {"kind": "native", "message": carrier("another model")},
        {"kind": "native", "message": carrier(accepted=False)},
        {"kind": "native", "message": carrier(text="word " * 20_000)},
        ValueError("as the test asked for"),
    ],
)
async def test_with_no_compaction_for_the_model_of_the_session_the_views_are_the_digests(result: Any) -> None:
    provider, unasked = Odd(result), summary_manager(Odd(None), **NATIVE, max_summary_calls=0)
    manager = summary_manager(provider, **NATIVE)
    views, digests = await drive(manager, SHORT, provider), await drive(unasked, SHORT, Odd(None))
    assert provider.asked
    assert digest(bare(views[-1])) == digest(bare(digests[-1]))
    assert (await manager.explain())["summary"]["status"] == "failed"
    assert manager.limits.failures >= 1


def reopened(place: Place, provider: Any) -> Any:
    """The session as another process opens it: nothing is shared."""
    shared_cache.clear()
    return opened(place, provider, **NATIVE)


async def test_another_process_begins_with_the_same_carrier_and_takes_it_back(place: Place) -> None:
    provider = NativeProvider()
    manager = reopened(place, provider)
    before = (await drive(manager, SESSION, provider))[-1]
    await manager.close()
    asked = len(provider.compactions)
    manager = reopened(place, provider)
    assert digest(await view_of(manager, provider)) == digest(before)
    assert len(provider.compactions) == asked
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
    assert ANSWER not in text(view)
    assert "<context_record>" in text(view)
    await last.close()
