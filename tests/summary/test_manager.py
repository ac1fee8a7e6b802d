"""Sessions with a model for summaries: what is ready is used, and whatever fails, the digest is there."""

from __future__ import annotations

from typing import Any

from amplifier_context_testing import checked
from tests.manager.measured import Counting, measure
from tests.messages import digest, text, work
from tests.summary.scripted import Provider, broken, drive, good, summary_manager, wait_for_summaries


async def test_the_compaction_uses_the_summary_that_was_made_ahead() -> None:
    provider = Provider(good)
    manager = summary_manager(provider)
    views = await drive(manager, work(40))
    assert manager.compactor.compactions > 0
    assert provider.requests
    for view in views:
        checked(view)
    assert "in a model's words" in text(views[-1])
    assert "SAW file" in text(views[-1])


async def test_a_loop_that_lets_its_provider_count_the_views_gets_summaries_too() -> None:
    provider = Provider(good)
    manager = summary_manager(provider)
    shown: list[Any] = []
    for message in work(40):
        await manager.add_message(message)
        if message["role"] != "assistant":
            measured = await measure(manager, Counting())
            assert await measured["transaction"].commit()
            shown = measured["base_view"]
            await wait_for_summaries(manager)
    assert manager.compactor.compactions > 0
    assert provider.requests
    assert "in a model's words" in text(shown)
    assert (await manager.explain())["summary"]["session_cost"] > 0


async def test_with_every_call_failing_the_view_is_the_digests_byte_for_byte() -> None:
    plain = await drive(summary_manager(None, max_summary_calls=0), work(60))
    failing = await drive(summary_manager(Provider(broken)), work(60))
    assert [digest(bare(view)) for view in failing] == [digest(bare(view)) for view in plain]


def bare(view: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from tests.messages import bare as without_times

    return without_times(view)
