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


async def test_by_default_it_is_at_the_threshold_and_down_to_the_target() -> None:
    for before, after in await grown(new_manager()):
        assert 0.91 * BUDGET < before <= 0.95 * BUDGET
        assert after <= 0.42 * BUDGET + 400


async def test_with_auto_it_is_sooner_where_views_grow_slowly_and_further_down() -> None:
    manager = new_manager(**AUTO, protected_recent=0.0)
    first, *later = await grown(manager, output=120)
    assert first[0] > 0.88 * BUDGET, "before the first compaction there is nothing to go by"
    assert later, "too little to see a cadence"
    assert max(before for before, _ in later) < 0.88 * BUDGET
    assert min(after for _, after in later) < 0.48 * BUDGET


async def test_the_sooner_a_compaction_the_less_often_must_it_not_be() -> None:
    """However little a round adds, a compaction frees what it must free at least."""
    compactions = await grown(new_manager(**AUTO), output=40)
    assert all(before - after >= 0.04 * BUDGET for before, after in compactions)


async def test_beside_a_long_system_prompt_the_threshold_is_a_share_of_what_it_leaves() -> None:
    async def largest(**config: Any) -> int:
        manager = new_manager(**config)
        await manager.add_message({"role": "system", "content": "Follow the rules. " * 900})
        sizes: list[int] = []
        await manager.add_message({"role": "user", "content": "Do the work."})
        for number in range(120):
            for message in rounds(1, start=number, output=120):
                await manager.add_message(message)
            sizes.append(size(await ask(manager, BUDGET)))
        return max(sizes)

    assert await largest(**AUTO | {"cadence": "fixed"}) <= 0.92 * BUDGET
    assert 0.93 * BUDGET < await largest(**AUTO) <= BUDGET


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
