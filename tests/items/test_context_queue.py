"""A queue as its documentation describes it, one behaviour a test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_context_core.items import ContextItem, ContextQueue, ContextQueueHook, UnregisteredHookError, hook


def item(content: Any) -> ContextItem[Any]:
    return ContextItem(content)


async def filled(limit: int, *contents: Any) -> ContextQueue[Any]:
    queue: ContextQueue[Any] = ContextQueue(limit)
    await queue.append(*map(item, contents))
    return queue


def contents(queue: ContextQueue[Any]) -> list[Any]:
    return [one.content for one in queue.items]


# -- construction and reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1, -7])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit must be >= 1"):
        ContextQueue(limit)


def test_a_new_queue_is_empty_and_has_no_hooks_and_no_tags() -> None:
    queue = ContextQueue(3)
    assert (queue.limit, queue.items, queue.hooks, queue.tags, len(queue), bool(queue)) == (
        3,
        [],
        [],
        frozenset(),
        0,
        False,
    )


def test_tags_become_a_frozen_set() -> None:
    assert ContextQueue(1, tags=["a", "b", "a"]).tags == frozenset({"a", "b"})
    assert ContextQueue(1, frozenset({"a"})).tags == frozenset({"a"})


def test_a_text_in_place_of_tags_is_refused() -> None:
    with pytest.raises(TypeError, match="list of texts"):
        ContextQueue(1, tags="monitored")


async def test_length_iteration_truth_and_repr() -> None:
    queue = await filled(3, "a", "b")
    assert len(queue) == 2
    assert list(queue) == [item("a"), item("b")]
    assert queue
    assert repr(queue) == "ContextQueue(limit=3, len=2)"


async def test_items_is_a_copy() -> None:
    queue = await filled(3, "a")
    queue.items.clear()
    assert contents(queue) == ["a"]


async def test_setting_items_replaces_them_without_hooks_and_keeps_the_newest_that_fit() -> None:
    queue = await filled(2, "a")

    @queue.on_evict
    async def evicted(queue: Any, gone: Any) -> None:
        raise AssertionError("no hook may run")

    queue.items = [item("b"), item("c"), item("d")]
    assert contents(queue) == ["c", "d"]


async def test_setting_items_that_are_none_changes_nothing() -> None:
    queue = await filled(2, "a")
    with pytest.raises(TypeError, match="ContextItem"):
        queue.items = ["b"]  # type: ignore[list-item]
    assert contents(queue) == ["a"]


async def test_history_joins_the_contents_of_the_newest_items() -> None:
    queue = await filled(5, "a", 2, {"c": 3})
    assert queue.history() == "a\n2\n{'c': 3}"
    assert queue.history(last=2) == "2\n{'c': 3}"
    assert queue.history(last=9) == queue.history(last=0) == queue.history()
    assert ContextQueue(1).history() == ""


# -- appending --------------------------------------------------------------------------------------------------------


async def test_the_oldest_items_are_evicted_when_the_window_is_full() -> None:
    assert contents(await filled(3, "a", "b", "c", "d")) == ["b", "c", "d"]


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


async def test_before_append_gets_the_queue_what_comes_and_what_is_there() -> None:
    queue = await filled(2, "a", "b")
    calls: list[Any] = []

    @queue.before_append
    async def before(*arguments: Any) -> None:
        calls.append((*arguments, contents(queue)))

    await queue.append(item("c"))
    assert calls == [(queue, [item("c")], [item("a"), item("b")], ["a", "b"])]


async def test_after_append_gets_the_queue_what_came_and_what_is_there_now() -> None:
    queue = await filled(2, "a", "b")
    calls: list[Any] = []

    @queue.after_append
    async def after(queue: Any, appended: Any, current: Any) -> None:
        calls.append((queue, appended, current))

    await queue.append(item("c"))
    assert calls == [(queue, [item("c")], [item("b"), item("c")])]


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


async def test_on_evict_runs_while_the_item_is_still_in_once_for_each_item() -> None:
    queue = await filled(2, "a", "b")
    calls: list[Any] = []

    @queue.on_evict
    async def evicted(where: Any, gone: Any) -> None:
        calls.append((where is queue, gone.content, contents(queue)))

    await queue.append(item("c"), item("d"), item("e"))
    assert calls == [(True, "a", ["a", "b"]), (True, "b", ["b", "c"]), (True, "c", ["c", "d"])]


async def test_appending_nothing_runs_both_hooks() -> None:
    queue = await filled(2, "a")
    calls: list[str] = []

    @queue.before_append
    async def before(*arguments: Any) -> None:
        calls.append("before")

    @queue.after_append
    async def after(*arguments: Any) -> None:
        calls.append("after")

    await queue.append()
    assert calls == ["before", "after"]
    assert contents(queue) == ["a"]


async def test_hooks_get_copies() -> None:
    queue = await filled(3, "a")

    @queue.before_append
    async def before(queue: Any, incoming: list[Any], current: list[Any]) -> None:
        incoming.clear()
        current.clear()

    @queue.after_append
    async def after(queue: Any, appended: list[Any], current: list[Any]) -> None:
        assert appended
        assert len(current) == 2
        appended.clear()
        current.clear()

    await queue.append(item("b"))
    assert contents(queue) == ["a", "b"]


async def test_a_hook_that_raises_before_an_append_leaves_the_queue_as_it_was() -> None:
    queue = await filled(2, "a", "b")

    @queue.before_append
    async def before(*arguments: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await queue.append(item("c"))
    assert contents(queue) == ["a", "b"]


async def test_a_hook_that_raises_at_an_eviction_leaves_the_queue_as_it_was() -> None:
    queue = await filled(2, "a", "b")

    @queue.on_evict
    async def evicted(queue: Any, gone: Any) -> None:
        if gone.content == "b":
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await queue.append(item("c"), item("d"))
    assert contents(queue) == ["a", "b"]


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


# -- clearing ---------------------------------------------------------------------------------------------------------


async def test_clear_runs_its_hooks_around_the_removal() -> None:
    queue = await filled(2, "a")
    calls: list[Any] = []

    @queue.before_clear
    async def before(queue: Any, items: Any) -> None:
        calls.append((items, contents(queue)))

    @queue.after_clear
    async def after(queue: Any) -> None:
        calls.append(contents(queue))

    await queue.clear()
    assert calls == [([item("a")], ["a"]), []]


# -- branching --------------------------------------------------------------------------------------------------------


async def test_a_branch_and_its_parent_are_independent() -> None:
    parent = await filled(3, "a", "b")
    child = parent.branch()
    grandchild = child.branch()
    await child.append(item("c"))
    await parent.append(item("x"))
    assert (contents(parent), contents(child), contents(grandchild)) == (
        ["a", "b", "x"],
        ["a", "b", "c"],
        ["a", "b"],
    )


@pytest.mark.parametrize(("limit", "left", "limit_left"), [(None, "abc", 3), (2, "bc", 2), (9, "abc", 9)])
async def test_a_branch_keeps_the_newest_items_that_fit(limit: int | None, left: str, limit_left: int) -> None:
    child = (await filled(3, *"abc")).branch(limit=limit)
    assert contents(child) == list(left)
    assert child.limit == limit_left


async def test_a_branch_inherits_a_copy_of_the_hooks_and_the_tags() -> None:
    parent = ContextQueue(2, tags=["t"])

    @parent.before_append
    async def before(*arguments: Any) -> None: ...

    child = parent.branch()
    assert child.hooks == [before]
    assert child.hooks is not parent.hooks
    assert child.tags == frozenset({"t"})


@pytest.mark.parametrize("hooks", [None, []])
async def test_a_branch_may_have_no_hooks(hooks: Any) -> None:
    parent = ContextQueue(2)

    @parent.before_append
    async def before(*arguments: Any) -> None: ...

    assert parent.branch(hooks=hooks).hooks == []


async def test_a_branch_may_have_other_hooks() -> None:
    async def other(*arguments: Any) -> None: ...

    assert ContextQueue(2).branch(hooks=[other]).hooks == [other]


async def test_no_hook_runs_for_a_branch() -> None:
    queue = await filled(3, "a", "b")

    @hook(list(ContextQueueHook))
    async def never(*arguments: Any, **more: Any) -> None:
        raise AssertionError("no hook may run")

    queue.hooks.append(never)
    assert len(queue.branch(limit=1)) == 1


async def test_a_branch_of_a_subclass_is_of_that_class() -> None:
    class Mine(ContextQueue[Any]):
        pass

    assert type(Mine(1).branch()) is Mine


# -- saving -----------------------------------------------------------------------------------------------------------


async def test_a_queue_is_written_with_limit_items_hooks_and_tags() -> None:
    queue: ContextQueue[Any] = ContextQueue(3, tags=["b", "a"])
    await queue.append(ContextItem("x", "d", "i"))

    @queue.after_append
    async def counted(*arguments: Any) -> None: ...

    assert queue.to_dict() == {
        "limit": 3,
        "items": [{"id": "i", "description": "d", "content": "x"}],
        "hooks": {"after_append": ["counted"]},
        "tags": ["a", "b"],
    }


async def test_a_queue_is_read_with_its_hooks() -> None:
    queue = await filled(3, "a", "b")

    @hook([ContextQueueHook.BEFORE_APPEND, ContextQueueHook.AFTER_CLEAR])
    async def both(*arguments: Any, **more: Any) -> None: ...

    queue.hooks.append(both)
    again = ContextQueue.from_dict(queue.to_dict())
    assert (again.limit, again.items, again.hooks, again.tags) == (3, queue.items, [both], queue.tags)


def test_items_and_hooks_may_be_missing_and_items_beyond_the_limit_fall_off_the_front() -> None:
    assert ContextQueue.from_dict({"limit": 2}).items == []
    many = [{"content": number} for number in range(4)]
    assert contents(ContextQueue.from_dict({"limit": 2, "items": many})) == [2, 3]


def test_a_hook_that_is_not_registered_is_an_error_that_names_it() -> None:
    with pytest.raises(UnregisteredHookError, match="'gone' is not registered"):
        ContextQueue.from_dict({"limit": 1, "hooks": {"before_append": ["gone"]}})


async def test_one_function_of_two_objects_is_read_for_the_event_it_had_on_each() -> None:
    first, second = ContextQueue(1), ContextQueue(1)

    @first.before_append
    @second.before_clear
    async def shared(*arguments: Any) -> None: ...

    again = ContextQueue.from_dict(first.to_dict()), ContextQueue.from_dict(second.to_dict())
    assert [one.to_dict()["hooks"] for one in again] == [{"before_append": ["shared"]}, {"before_clear": ["shared"]}]
