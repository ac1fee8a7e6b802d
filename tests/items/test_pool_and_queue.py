"""Items, pools and queues as their documentation describes them; the laws have what holds for all contents."""

import asyncio
from copy import deepcopy
from typing import Any, cast

import pytest

from amplifier_context_core.errors import UnregisteredHookError
from amplifier_context_core.items import ContextItem, ContextPool, ContextPoolHook, ContextQueue, ContextQueueHook


def item(id: str, content: Any = None) -> ContextItem[Any]:
    return ContextItem(content, f"about {id}", id)


async def pool_of(limit: int | None, *ids: str) -> ContextPool[Any]:
    pool: ContextPool[Any] = ContextPool(limit)
    for id in ids:
        await pool.add(item(id))
    return pool


async def queue_of(limit: int, *contents: Any) -> ContextQueue[Any]:
    queue: ContextQueue[Any] = ContextQueue(limit)
    await queue.append(*map(ContextItem, contents))
    return queue


def ids(pool: ContextPool[Any]) -> str:
    return "".join(one.id or "" for one in pool.items)


def contents(queue: ContextQueue[Any]) -> list[Any]:
    return [one.content for one in queue.items]


async def never(*arguments: Any, **more: Any) -> None:
    raise AssertionError("no hook may run")


never.type = [*ContextPoolHook, *ContextQueueHook]  # type: ignore[attr-defined]


# -- what is read of both, and what is refused -------------------------------------------------------------------------
def test_a_limit_that_is_not_at_least_one_and_tags_that_are_a_text_are_refused() -> None:
    for limit in (0, float("nan")):
        with pytest.raises(ValueError, match="limit must be >= 1"):
            ContextPool(cast(Any, limit))
    with pytest.raises(TypeError):
        ContextQueue(cast(Any, None))  # the pool alone may have none
    with pytest.raises(TypeError, match="list of texts"):
        ContextQueue(1, tags="monitored")


async def test_items_are_a_copy_in_order_and_those_of_a_pool_are_found_by_id() -> None:
    pool, queue = await pool_of(None, "b", "a"), await queue_of(3, "a", "b")
    pool.items.clear()
    queue.items.clear()
    assert (ids(pool), contents(queue)) == ("ba", ["a", "b"])
    assert (list(pool), len(pool), bool(pool), pool.get("b")) == (pool.items, 2, True, item("b"))
    assert (queue.history(), queue.history(last=1), bool(ContextQueue(3))) == ("a\nb", "b", False)
    with pytest.raises(KeyError, match="c"):
        await pool.remove("c")


async def test_what_is_no_item_or_lacks_what_a_pool_needs_is_refused_and_nothing_of_its_batch_is_added() -> None:
    pool, queue = await pool_of(None), await queue_of(2, "a")
    for bad in (ContextItem(1, "d"), ContextItem(1, None, "i")):
        with pytest.raises(ValueError, match="both 'id' and 'description' set"):
            await pool.add(bad)
    queue.before_append(never)
    queue.on_evict(never)
    for refused in (pool.add("raw"), queue.append(ContextItem("b"), "raw")):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="ContextItem"):
            await refused
    assert (ids(pool), contents(queue)) == ("", ["a"])
    queue.items = [ContextItem("b"), ContextItem("c"), ContextItem("d")]
    with pytest.raises(TypeError, match="ContextItem"):
        queue.items = ["e"]  # type: ignore[list-item]
    assert contents(queue) == ["c", "d"], "set without hooks, the newest that fit"


# -- hooks around a change ---------------------------------------------------------------------------------------------
async def test_hooks_of_a_pool_run_around_each_change_with_the_items_as_they_are() -> None:
    pool = await pool_of(2, "a", "b")
    calls: list[Any] = []

    async def noted(where: Any, *arguments: Any) -> None:
        (subject,) = arguments or (None,)
        calls.append((where is pool, getattr(subject, "id", subject), ids(pool)))
        if isinstance(subject, dict):
            subject.clear()  # a copy

    for point in ContextPoolHook:
        getattr(pool, point.value)(noted)
    await pool.add(item("c"))
    await pool.remove("b")
    await pool.clear()
    calls_by_change = [("a", "ab"), ("c", "b"), ("c", "bc"), ("b", "bc"), ("b", "c"), ({}, "c"), (None, "")]
    assert calls == [(True, *each) for each in calls_by_change]
    assert not pool


async def test_hooks_of_a_queue_get_copies_and_run_around_each_change() -> None:
    queue = await queue_of(2, "a", "b")
    calls: list[Any] = []

    async def called(where: Any, *arguments: Any) -> None:
        calls.append((where is queue, deepcopy(arguments), contents(queue)))
        for argument in arguments:
            if isinstance(argument, list):
                argument.clear()

    async def called_too(where: Any, *arguments: Any) -> None:
        await called(where, *arguments)

    for point in ContextQueueHook:
        getattr(queue, point.value)(called)
        getattr(queue, point.value)(called_too)
    a, b, c, d = map(ContextItem, "abcd")
    await queue.append(c, d)
    await queue.clear()
    assert calls[::2] == calls[1::2]
    assert calls[::2] == [
        (True, ([c, d], [a, b]), ["a", "b"]),
        (True, (a,), ["a", "b"]),
        (True, (b,), ["b", "c"]),
        (True, ([c, d], [c, d]), ["c", "d"]),
        (True, ([c, d],), ["c", "d"]),
        (True, (), []),
    ]


async def test_a_hook_that_raises_before_an_addition_leaves_the_pool_as_it_was() -> None:
    for point in ("on_evict", "before_add"):
        pool = await pool_of(2, "a", "b")
        getattr(pool, point)(never)
        with pytest.raises(AssertionError, match="no hook"):
            await pool.add(item("c"))
        assert ids(pool) == "ab"


async def test_additions_of_many_tasks_never_exceed_the_limit_and_announce_each_eviction() -> None:
    pool, queue = await pool_of(2), await queue_of(3)
    announced: set[int] = set()

    @pool.on_evict
    @pool.before_add
    async def slow(pool: Any, item: Any) -> None:
        await asyncio.sleep(0)

    @queue.on_evict
    async def evicted(queue: Any, gone: Any) -> None:
        announced.add(gone.content)
        await asyncio.sleep(0)
        assert len(queue) <= 3

    await asyncio.gather(*(pool.add(item(str(number))) for number in range(9)))
    await asyncio.gather(*(queue.append(ContextItem(number)) for number in range(20)))
    assert (len(pool), len(queue)) == (2, 3)
    assert announced | set(contents(queue)) == set(range(20))


# -- branching and saving ----------------------------------------------------------------------------------------------
async def test_a_branch_inherits_limit_items_hooks_and_tags_unless_it_gets_others() -> None:
    class MyPool(ContextPool[Any]):
        pass

    pool, queue = MyPool(3, tags=["t"]), ContextQueue[Any](3)
    await pool.add(item("a"))
    pool.hooks.append(never)
    child = pool.branch()
    assert (type(child), child.limit, ids(child), child.hooks, child.tags) == (MyPool, 3, "a", [never], frozenset("t"))
    child.hooks.clear()
    assert pool.hooks == [never]
    assert (pool.branch(limit=None).limit, queue.branch(limit=None).limit) == (None, 3)
    assert [queue.branch(hooks=hooks).hooks for hooks in (None, [], [never])] == [[], [], [never]]


def test_what_cannot_be_read_is_an_error_but_items_and_hooks_may_be_missing() -> None:
    with pytest.raises(KeyError, match="content"):
        ContextItem.from_dict({"id": "x"})
    with pytest.raises(ValueError, match="requires a ContextItem with 'id' set"):
        ContextPool.from_dict({"items": [{"content": 1}]})
    with pytest.raises(UnregisteredHookError, match="'gone' is not registered"):
        ContextPool.from_dict({"hooks": {"before_add": ["gone"]}})
    assert ContextQueue.from_dict({"limit": 2}).items == []
    many = [{"content": number} for number in range(4)]
    assert contents(ContextQueue.from_dict({"limit": 2, "items": many})) == [2, 3], "the newest that fit"
