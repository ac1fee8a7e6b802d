"""What a type checker makes of items, queues and pools. `make lint` checks this file.

An error that is expected is ignored by its rule, and an ignored error that does not occur is an error itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

from amplifier_context_core.items import ContextItem, ContextPool, ContextQueue, ContextQueueHook, hook
from amplifier_context_core.items.hooks import Hook, HookFunction


@dataclass
class Report:
    text: str


class ReportPool(ContextPool[Report]):
    pass


async def queue_of_text() -> None:
    queue: ContextQueue[str] = ContextQueue(limit=10)
    await queue.append(ContextItem(content="hello"))
    await queue.append(ContextItem(content=42))  # pyright: ignore[reportArgumentType]
    await queue.append("hello")  # pyright: ignore[reportArgumentType]
    assert_type(queue.items, list[ContextItem[str]])
    assert_type(queue.items[0].content, str)
    assert_type(queue.branch(limit=3), ContextQueue[str])
    for item in queue:
        assert_type(item, ContextItem[str])
    queue.items = [ContextItem(content=1)]  # pyright: ignore[reportAttributeAccessIssue]


async def pool_of_reports() -> None:
    pool: ContextPool[Report] = ContextPool(limit=50)
    await pool.add(ContextItem(id="r1", description="Q3 report", content=Report("...")))
    await pool.add(ContextItem(id="r2", description="Q4 report", content="text"))  # pyright: ignore[reportArgumentType]
    assert_type(pool.get("r1"), ContextItem[Report])
    assert_type(pool.items[0].content.text, str)
    assert_type(pool.branch(limit=None), ContextPool[Report])
    assert_type(ReportPool().branch(), ReportPool)
    assert_type(ContextPool(), ContextPool[Any])
    assert_type(ContextPool.from_dict({}), ContextPool[Any])


def decorators() -> None:
    queue = ContextQueue(1)

    @queue.before_append
    async def bare(queue: ContextQueue, incoming: list[ContextItem], current: list[ContextItem]) -> None: ...

    assert_type(bare, Hook)
    assert_type(queue.after_append, Callable[[HookFunction], Hook])

    @hook(ContextQueueHook.ON_EVICT, tags={"t"})
    async def everywhere(queue: ContextQueue, item: ContextItem) -> None: ...

    assert_type(everywhere, Hook)
    assert_type(queue.hooks, list[HookFunction])

    @queue.on_evict  # pyright: ignore[reportArgumentType]
    def not_async(queue: ContextQueue, item: ContextItem) -> None: ...
