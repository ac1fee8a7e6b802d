"""A pool as its documentation describes it, one behaviour a test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_context_core.items import ContextItem, ContextPool, ContextPoolHook, UnregisteredHookError, hook


def item(id: str, content: Any = None) -> ContextItem[Any]:
    return ContextItem(content, f"about {id}", id)


async def filled(limit: int | None, *ids: str) -> ContextPool[Any]:
    pool: ContextPool[Any] = ContextPool(limit)
    for id in ids:
        await pool.add(item(id))
    return pool


def ids(pool: ContextPool[Any]) -> str:
    return "".join(one.id or "" for one in pool.items)


# -- construction and reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, float("nan")])
def test_a_limit_that_is_not_at_least_one_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="limit must be >= 1"):
        ContextPool(limit)


async def test_an_item_is_found_by_its_id_and_items_are_a_copy_in_order() -> None:
    pool = await filled(None, "b", "a")
    pool.items.clear()
    assert ids(pool) == "ba"
    assert (list(pool), len(pool), bool(pool), pool.get("b")) == (pool.items, 2, True, item("b"))
    for unknown in (pool.get, pool.remove):
        with pytest.raises(KeyError, match="c"):
            await unknown("c")  # type: ignore[misc]


# -- adding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [ContextItem(1, "d"), ContextItem(1, None, "i")])
async def test_an_item_without_id_or_description_is_refused(bad: ContextItem[int]) -> None:
    pool: ContextPool[Any] = ContextPool()
    with pytest.raises(ValueError, match="both 'id' and 'description' set"):
        await pool.add(bad)
    with pytest.raises(TypeError, match="ContextItem"):
        await pool.add("raw")  # type: ignore[arg-type]
    assert not pool


async def test_an_item_of_a_known_id_is_replaced_in_its_place_without_an_eviction() -> None:
    pool = await filled(2, "a", "b")
    calls: list[str] = []

    @hook(list(ContextPoolHook))
    async def noted(*arguments: Any, **more: Any) -> None:
        calls.append(str(arguments[1].content))

    pool.hooks.append(noted)
    await pool.add(item("a", "new"))
    assert ids(pool) == "ab"
    assert pool.get("a").content == "new"
    assert calls == ["new", "new"]  # before and after the addition


async def test_hooks_run_around_each_change_with_the_items_as_they_are() -> None:
    pool = await filled(2, "a", "b")
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
    assert calls == [
        (True, "a", "ab"),
        (True, "c", "b"),
        (True, "c", "bc"),
        (True, "b", "bc"),
        (True, "b", "c"),
        (True, {}, "c"),
        (True, None, ""),
    ]
    assert not pool


@pytest.mark.parametrize("point", ["on_evict", "before_add"])
async def test_a_hook_that_raises_before_an_addition_leaves_the_pool_as_it_was(point: str) -> None:
    pool = await filled(2, "a", "b")

    @getattr(pool, point)
    async def refused(pool: Any, item: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await pool.add(item("c"))
    assert ids(pool) == "ab"


async def test_additions_of_many_tasks_never_exceed_the_limit() -> None:
    pool = await filled(2)

    @pool.on_evict
    @pool.before_add
    async def slow(pool: Any, item: Any) -> None:
        await asyncio.sleep(0)

    await asyncio.gather(*(pool.add(item(str(number))) for number in range(9)))
    assert len(pool) == 2


# -- branching --------------------------------------------------------------------------------------------------------


async def test_a_branch_inherits_limit_items_hooks_and_tags_unless_it_gets_another_limit() -> None:
    class Mine(ContextPool[Any]):
        pass

    parent = Mine(3, tags=["t"])
    await parent.add(item("a"))
    await parent.add(item("b"))

    async def never(*arguments: Any) -> None:
        raise AssertionError("no hook may run")

    never.type = list(ContextPoolHook)  # type: ignore[attr-defined]

    parent.hooks.append(never)
    child = parent.branch()
    assert type(child) is Mine
    assert (child.limit, ids(child), child.hooks, child.tags) == (3, "ab", [never], frozenset("t"))
    child.hooks.clear()
    await child.add(item("c"))
    assert (ids(parent), parent.hooks) == ("ab", [never])
    assert (parent.branch(limit=None).limit, ids(parent.branch(limit=1))) == (None, "b")


# -- saving -----------------------------------------------------------------------------------------------------------


async def test_a_pool_is_read_as_it_was_written() -> None:
    pool: ContextPool[Any] = ContextPool(3, tags=["t"])
    await pool.add(item("a", [1]))

    @pool.after_add
    async def counted(*arguments: Any) -> None: ...

    data = pool.to_dict()
    assert data == {
        "limit": 3,
        "items": [{"id": "a", "description": "about a", "content": [1]}],
        "hooks": {"after_add": ["counted"]},
        "tags": ["t"],
    }
    again = ContextPool.from_dict(data)
    assert (again.limit, again.items, again.hooks, again.tags) == (3, pool.items, pool.hooks, pool.tags)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"items": [{"content": 1}]}, ValueError, "requires a ContextItem with 'id' set"),
        ({"hooks": {"before_add": ["gone"]}}, UnregisteredHookError, "'gone' is not registered"),
    ],
)
def test_what_cannot_be_read_is_an_error(data: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ContextPool.from_dict(data)
