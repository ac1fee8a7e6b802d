"""When views are compacted, and how far: by what it costs to carry on, or by fixed shares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.managers import ask, feed, new_manager
from tests.messages import rounds, work

BUDGET = 8_000


AUTO: dict[str, Any] = {"cadence": "auto", "target_usage": 0.5, "compact_threshold": 0.92}


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
