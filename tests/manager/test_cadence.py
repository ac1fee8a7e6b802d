"""When views are compacted, and how far: by what it costs to carry on, or by fixed shares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amplifier_context_core import ContextManager
from tests.managers import ask, feed, new_manager
from tests.messages import rounds, size, work

BUDGET = 8_000


AUTO: dict[str, Any] = {"cadence": "auto", "target_usage": 0.5, "compact_threshold": 0.92}


async def grown(manager: ContextManager, budget: int = BUDGET, *, output: int = 400) -> list[tuple[int, int]]:
    """A session of many rounds; tokens of the views before and after each compaction, as the manager counts them."""
    await manager.add_message({"role": "user", "content": "Do the work."})
    compactions: list[tuple[int, int]] = []
    before = 0
    for number in range(300):
        for message in rounds(1, start=number, output=output):
            await manager.add_message(message)
        view = await ask(manager, budget)
        assert manager.compactor.last_sent is not None
        now = manager.compactor.last_sent.counted
        assert size(view) <= now
        if now < before:
            compactions.append((before, now))
        before = now
    return compactions


async def test_with_auto_it_is_sooner_where_views_grow_slowly_and_further_down() -> None:
    manager = new_manager(**AUTO, protected_recent=0.0)
    first, *later = await grown(manager, output=120)
    assert first[0] > 0.88 * BUDGET, "before the first compaction there is nothing to go by"
    assert later, "too little to see a cadence"
    assert max(before for before, _ in later) < 0.88 * BUDGET
    assert min(after for _, after in later) < 0.48 * BUDGET


async def test_where_the_provider_names_its_prices_the_break_even_is_theirs() -> None:
    """Where reads are nearly free, to carry the history on costs little: compactions come later."""

    async def threshold(read: float) -> int:
        pricing = {"input_per_million": 4.0, "cache_read_per_million": read, "cache_write_per_million": 5.0}
        provider = SimpleNamespace(name="openai", get_model_info=lambda: {"pricing": pricing})
        manager = await feed(new_manager(**AUTO), work(1))
        number = 0
        while (await manager.explain())["compactions"] == 0:  # the first one has no costs to go by
            number += 1
            await feed(manager, rounds(1, start=number))
            await ask(manager, BUDGET, provider)
        await feed(manager, rounds(2, start=900))
        await ask(manager, BUDGET, provider)
        return int((await manager.explain())["view"]["trigger"])

    assert await threshold(4.0) < await threshold(0.4) < await threshold(0.1)
