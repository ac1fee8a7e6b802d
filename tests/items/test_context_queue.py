"""A queue as its documentation describes it, one behaviour a test."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any, cast

import pytest

from amplifier_context_core.items import ContextItem, ContextQueue, ContextQueueHook, hook


def item(content: Any) -> ContextItem[Any]:
    return ContextItem(content)


async def filled(limit: int, *contents: Any) -> ContextQueue[Any]:
    queue: ContextQueue[Any] = ContextQueue(limit)
    await queue.append(*map(item, contents))
    return queue


def contents(queue: ContextQueue[Any]) -> list[Any]:
    return [one.content for one in queue.items]


# -- construction and reading -----------------------------------------------------------------------------------------


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be >= 1"):
        ContextQueue(0)
    with pytest.raises(TypeError):
        ContextQueue(cast(Any, None))  # the pool alone may have none


async def test_a_queue_shows_its_limit_items_hooks_and_tags() -> None:
    queue: ContextQueue[Any] = ContextQueue(3, tags=["a", "b", "a"])
    assert (queue.limit, queue.items, queue.hooks, queue.tags) == (3, [], [], frozenset("ab"))
    assert not queue
    await queue.append(item("a"), item("b"))
    queue.items.clear()  # a copy
    assert list(queue) == queue.items == [item("a"), item("b")]
    assert (len(queue), bool(queue), repr(queue)) == (2, True, "ContextQueue(limit=3, len=2)")
    with pytest.raises(TypeError, match="list of texts"):
        ContextQueue(1, tags="monitored")


async def test_setting_items_replaces_them_without_hooks_and_keeps_the_newest_that_fit() -> None:
    queue = await filled(2, "a")

    @queue.on_evict
    async def evicted(queue: Any, gone: Any) -> None:
        raise AssertionError("no hook may run")

    queue.items = [item("b"), item("c"), item("d")]
    with pytest.raises(TypeError, match="ContextItem"):
        queue.items = ["e"]  # type: ignore[list-item]
    assert contents(queue) == ["c", "d"]


async def test_history_joins_the_contents_of_the_newest_items() -> None:
    queue = await filled(5, "a", 2, {"c": 3})
    assert queue.history() == "a\n2\n{'c': 3}"
    assert queue.history(last=2) == "2\n{'c': 3}"
    assert queue.history(last=9) == queue.history(last=0) == queue.history()
    assert ContextQueue(1).history() == ""


# -- appending --------------------------------------------------------------------------------------------------------


async def test_what_is_no_item_is_refused_and_nothing_of_its_batch_is_appended() -> None:
    queue = await filled(3, "a")
    calls: list[Any] = []

    @queue.before_append
    async def before(*arguments: Any) -> None:
        calls.append(arguments)

    with pytest.raises(TypeError, match="ContextItem"):
        await queue.append(item("b"), "raw")  # type: ignore[arg-type]
    assert contents(queue) == ["a"]
    assert calls == []


async def test_hooks_get_copies_and_run_around_each_change() -> None:
    queue = await filled(2, "a", "b")
    calls: list[Any] = []

    async def called(where: Any, *arguments: Any) -> None:
        calls.append((where is queue, deepcopy(arguments), contents(queue)))
        for argument in arguments:
            if isinstance(argument, list):
                argument.clear()

    for point in ContextQueueHook:
        getattr(queue, point.value)(called)
    await queue.append(item("c"), item("d"))
    a, b, c, d = map(item, "abcd")
    assert calls == [
        (True, ([c, d], [a, b]), ["a", "b"]),
        (True, (a,), ["a", "b"]),
        (True, (b,), ["b", "c"]),
        (True, ([c, d], [c, d]), ["c", "d"]),
    ]
    calls.clear()
    await queue.append()
    await queue.clear()
    assert calls[:2] == [(True, ([], [c, d]), ["c", "d"])] * 2
    assert calls[2:] == [(True, ([c, d],), ["c", "d"]), (True, (), [])]


async def test_an_after_append_hook_of_two_arguments_is_not_given_the_queue() -> None:
    queue = await filled(2)
    calls: list[Any] = []

    @queue.after_append(label="x")
    async def after(appended: Any, current: Any, label: str) -> None:
        calls.append((appended, current, label))

    async def bare(appended: Any, current: Any, more: int = 0) -> None:
        calls.append((appended, current, more))

    bare.type = ContextQueueHook.AFTER_APPEND  # type: ignore[attr-defined]
    queue.hooks.append(bare)
    await queue.append(item("a"))
    assert calls == [([item("a")], [item("a")], "x"), ([item("a")], [item("a")], 0)]


async def test_appends_of_many_tasks_never_exceed_the_limit_and_announce_each_eviction() -> None:
    queue = await filled(3)
    announced: set[int] = set()

    @queue.on_evict
    async def evicted(queue: Any, gone: Any) -> None:
        announced.add(gone.content)
        await asyncio.sleep(0)
        assert len(queue) <= 3

    await asyncio.gather(*(queue.append(item(number)) for number in range(20)))
    assert len(queue) == 3
    assert announced | set(contents(queue)) == set(range(20))


# -- branching --------------------------------------------------------------------------------------------------------


async def test_a_branch_inherits_limit_hooks_and_tags_unless_it_gets_others() -> None:
    class Mine(ContextQueue[Any]):
        pass

    parent = Mine(3, tags=["t"])
    await parent.append(*map(item, "abc"))

    @hook(list(ContextQueueHook))
    async def never(*arguments: Any, **more: Any) -> None:
        raise AssertionError("no hook may run")

    parent.hooks.append(never)
    child = parent.branch(limit=2)
    assert type(child) is Mine
    assert (child.limit, contents(child), child.hooks, child.tags) == (2, ["b", "c"], [never], frozenset("t"))
    assert child.hooks is not parent.hooks
    assert parent.branch(limit=None).limit == 3
    others = [parent.branch(hooks=hooks).hooks for hooks in (None, [], [child.append])]
    assert others == [[], [], [child.append]]


# -- saving -----------------------------------------------------------------------------------------------------------


async def test_a_queue_is_written_with_limit_items_hooks_and_tags_and_read_with_them() -> None:
    queue: ContextQueue[Any] = ContextQueue(3, tags=["b", "a"])
    await queue.append(ContextItem("x", "d", "i"))

    @hook([ContextQueueHook.BEFORE_APPEND, ContextQueueHook.AFTER_CLEAR])
    async def both(*arguments: Any, **more: Any) -> None: ...

    queue.hooks.append(both)
    data = queue.to_dict()
    assert data == {
        "limit": 3,
        "items": [{"id": "i", "description": "d", "content": "x"}],
        "hooks": {"before_append": ["both"], "after_clear": ["both"]},
        "tags": ["a", "b"],
    }
    again = ContextQueue.from_dict(data)
    assert (again.limit, again.items, again.hooks, again.tags) == (3, queue.items, [both], queue.tags)


def test_items_and_hooks_may_be_missing_and_items_beyond_the_limit_fall_off_the_front() -> None:
    assert ContextQueue.from_dict({"limit": 2}).items == []
    many = [{"content": number} for number in range(4)]
    assert contents(ContextQueue.from_dict({"limit": 2, "items": many})) == [2, 3]


async def test_one_function_of_two_objects_is_read_for_the_event_it_had_on_each() -> None:
    first, second = ContextQueue(1), ContextQueue(1)

    @first.before_append
    @second.before_clear
    async def shared(*arguments: Any) -> None: ...

    again = ContextQueue.from_dict(first.to_dict()), ContextQueue.from_dict(second.to_dict())
    assert [one.to_dict()["hooks"] for one in again] == [{"before_append": ["shared"]}, {"before_clear": ["shared"]}]
