"""Laws of queues and pools: whatever is appended, added, branched and written, the rules of each hold."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.items import ContextItem, ContextPool, ContextQueue, ContextQueueHook, HookRegistry

LIMITS = st.integers(1, 5)
CONTENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
BATCHES = st.lists(st.lists(CONTENTS, max_size=4), max_size=6)
IDS = st.lists(st.sampled_from("abcdefg"), max_size=15)


@given(LIMITS, BATCHES, st.integers(0, 30))
async def test_a_queue_holds_the_newest_items_evicts_the_others_in_order_and_a_refused_append_changes_nothing(
    limit: int, batches: list[list[Any]], refused_at: int
) -> None:
    queue: ContextQueue[Any] = ContextQueue(limit)
    evicted: list[Any] = []
    calls = iter(range(1_000))

    async def refuse(*arguments: Any) -> None:
        if next(calls) == refused_at:
            raise RuntimeError

    async def gone(queue: Any, item: ContextItem[Any]) -> None:
        assert item is queue.items[0]
        evicted.append(item.content)

    refuse.type = (ContextQueueHook.BEFORE_APPEND, ContextQueueHook.ON_EVICT)  # type: ignore[attr-defined]
    gone.type = ContextQueueHook.ON_EVICT  # type: ignore[attr-defined]
    queue.hooks += [refuse, gone]
    everything: list[Any] = []
    for batch in batches:
        before, seen = queue.items, len(evicted)
        try:
            await queue.append(*map(ContextItem, batch))
        except RuntimeError:
            assert queue.items == before
            del evicted[seen:]
            continue
        everything += batch
        assert [item.content for item in queue] == everything[-limit:]
        assert evicted + [item.content for item in queue] == everything


@given(LIMITS, st.lists(CONTENTS, max_size=8), st.none() | LIMITS, st.lists(CONTENTS, max_size=3))
async def test_a_branch_begins_as_its_parent_and_neither_changes_the_other(
    limit: int, contents: list[Any], other: int | None, later: list[Any]
) -> None:
    parent: ContextQueue[Any] = ContextQueue(limit, tags=["t"])
    await parent.append(*map(ContextItem, contents))
    child = parent.branch(limit=other)
    kept = parent.items
    assert child.items == kept[-(other or limit) :]
    await child.append(*map(ContextItem, later))
    assert parent.items == kept
    grown = child.items
    await parent.clear()
    assert child.items == grown


@given(st.none() | LIMITS, IDS)
async def test_a_pool_holds_the_ids_that_came_first_least_long_ago(limit: int | None, ids: list[str]) -> None:
    pool: ContextPool[Any] = ContextPool(limit)
    model: dict[str, int] = {}
    for number, id in enumerate(ids):
        if id not in model and limit is not None and len(model) == limit:
            del model[next(iter(model))]
        model[id] = number
        await pool.add(ContextItem(number, f"about {id}", id))
    assert {item.id: item.content for item in pool} == model
    assert [item.id for item in pool] == list(model)
    assert pool.catalogue() == "\n".join(f"- [{id}] about {id}" for id in model)
    child = pool.branch(limit=2)
    assert [item.id for item in child] == list(model)[-2:]


@given(LIMITS, st.lists(CONTENTS, max_size=8), st.sets(st.text(max_size=3), max_size=3))
async def test_what_is_written_is_read_and_is_json(limit: int, contents: list[Any], tags: set[str]) -> None:
    HookRegistry.clear()
    queue: ContextQueue[Any] = ContextQueue(limit, tags=tags)
    pool: ContextPool[Any] = ContextPool(limit, tags=tags)

    async def counted(*arguments: Any) -> None: ...

    queue.after_append(counted)
    pool.on_evict(counted)
    for number, content in enumerate(contents):
        await queue.append(ContextItem(content))
        await pool.add(ContextItem(content, "d", str(number)))
    again = ContextQueue.from_dict(json.loads(json.dumps(queue.to_dict())))
    pool_again = ContextPool.from_dict(json.loads(json.dumps(pool.to_dict())))
    assert again.to_dict() == queue.to_dict()
    assert pool_again.to_dict() == pool.to_dict()
    assert (again.limit, again.items, again.tags) == (queue.limit, queue.items, queue.tags)
    assert pool_again.items == pool.items
    HookRegistry.clear()
