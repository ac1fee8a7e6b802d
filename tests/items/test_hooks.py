"""Hooks of queues and pools: where they come from, in which order they run, what they get."""

import asyncio
import logging
from typing import Any, cast

import pytest

from amplifier_context_core.items import (
    ContextItem,
    ContextPool,
    ContextPoolHook,
    ContextQueue,
    ContextQueueHook,
    HookRegistry,
    UnregisteredHookError,
    hook,
)
from amplifier_context_core.items.injection import offering

ITEM = ContextItem("x", "d", "i")


# -- decorators --------------------------------------------------------------------------------------------------------
async def test_a_decorator_returns_the_hook_bare_or_with_arguments_and_attaches_it_once() -> None:
    queue = ContextQueue(1)

    @queue.before_append
    async def bare(*arguments: Any) -> None: ...

    @queue.before_append(lock=True, label="x")
    async def with_arguments(*arguments: Any, label: str) -> None: ...

    queue.before_append(bare)
    assert queue.hooks == [bare, with_arguments]
    assert HookRegistry.get("bare") is bare
    assert (bare.lock is None, with_arguments.lock is None) == (True, False)


def test_what_can_be_no_hook_is_refused_and_not_registered() -> None:
    with pytest.raises(TypeError, match="'plain' must be an async function"):

        @hook(ContextQueueHook.BEFORE_APPEND)
        def plain() -> None: ...  # type: ignore[type-var]

    with pytest.raises(ValueError, match="at least one type"):

        @hook([])
        async def none() -> None: ...

    with pytest.raises(TypeError, match="'noted' does not take label"):

        @hook(ContextQueueHook.AFTER_CLEAR, label="x")
        async def noted(queue: object) -> None: ...

    with pytest.raises(UnregisteredHookError):
        HookRegistry.get("plain")


# -- order and selection -----------------------------------------------------------------------------------------------
async def test_hooks_of_the_object_run_first_then_global_ones_each_once() -> None:
    calls: list[str] = []

    def noting(name: str) -> Any:
        async def noted(*arguments: Any) -> None:
            calls.append(name)

        noted.__name__ = name
        return noted

    for_all = hook(ContextPoolHook.BEFORE_ADD)
    for_all(noting("everywhere"))
    both = for_all(noting("both"))
    pool = ContextPool()
    pool.before_add(noting("own"))
    pool.hooks += [both, both]
    await pool.add(ITEM)
    assert calls == ["own", "both", "everywhere"]


async def test_a_global_hook_runs_for_its_event_and_for_objects_that_share_one_of_its_tags() -> None:
    tagged, untagged = list[object](), list[object]()

    @hook(ContextQueueHook.BEFORE_CLEAR, tags={"a", "b"})
    async def of_tags(queue: object, *arguments: Any) -> None:
        tagged.append(queue)

    @hook(ContextQueueHook.BEFORE_CLEAR)
    async def of_all(queue: object, *arguments: Any) -> None:
        untagged.append(queue)

    queues = [ContextQueue(1), ContextQueue(1, tags=["c"]), ContextQueue(1, tags=["b", "c"])]
    for one in queues:
        await one.clear()
    await ContextPool(tags=["b"]).clear()  # an event of the same name
    assert (tagged, untagged) == (queues[2:], queues)


async def test_a_hook_without_a_name_cannot_be_saved() -> None:
    class Bare:
        type = (ContextQueueHook.BEFORE_APPEND, ContextQueueHook.AFTER_CLEAR)

        async def __call__(self, *arguments: Any) -> None:
            calls.append("bare")

    calls: list[str] = []
    queue = ContextQueue(1)
    queue.hooks.append(Bare())
    await queue.append(ITEM)
    await queue.clear()
    assert calls == ["bare", "bare"]
    with pytest.raises(ValueError, match="without __name__ cannot be saved"):
        queue.to_dict()


# -- arguments ---------------------------------------------------------------------------------------------------------
async def test_fixed_arguments_are_passed_lambdas_among_them_are_called_each_time_and_the_calls_own_win(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = iter(range(9))
    calls: list[Any] = []
    queue = ContextQueue(1)

    @queue.after_clear(label="x", number=lambda: next(numbers), made=int)
    async def noted(queue: object, label: str, number: int, made: type) -> None:
        calls.append((label, number, made))

    await queue.clear()
    await queue.clear()
    assert calls == [("x", 0, int), ("x", 1, int)]
    with caplog.at_level(logging.WARNING):
        await noted(queue, label="given")
    assert calls[2:] == [("given", 2, int)]
    assert "'label'" in caplog.text


async def test_a_locked_hook_runs_one_call_at_a_time() -> None:
    running = 0
    most = 0

    @hook(ContextQueueHook.AFTER_CLEAR, lock=True)
    async def slow(queue: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await asyncio.gather(*(ContextQueue(1).clear() for _ in range(5)))
    assert most == 1


async def test_a_hook_gets_the_pool_and_the_queue_of_the_session_that_it_asks_for() -> None:
    seen: list[object] = []

    @hook(ContextQueueHook.AFTER_CLEAR)
    async def noted(queue: ContextQueue, pool: ContextPool, other: ContextQueue | None = None) -> None:
        seen.extend((queue, pool, other))

    changed, queue, pool = ContextQueue(1), ContextQueue(1), ContextPool()
    with offering(queue, pool):
        await changed.clear()
    assert [one is other for one, other in zip(seen, (changed, pool, queue), strict=True)] == [True] * 3


# -- registry ----------------------------------------------------------------------------------------------------------
def test_a_name_is_of_one_hook_until_the_registry_is_cleared() -> None:
    @hook(ContextQueueHook.AFTER_CLEAR)
    async def noted(queue: object) -> None: ...

    first = noted
    HookRegistry.register(first)  # once more: nothing changes
    with pytest.raises(ValueError, match="'noted' is already registered"):

        @hook(ContextQueueHook.AFTER_CLEAR)
        async def noted(queue: object) -> None: ...

    assert HookRegistry.get_global_by_type(ContextQueueHook.AFTER_CLEAR) == [first]
    HookRegistry.clear()
    assert HookRegistry.get_global_by_type(ContextQueueHook.AFTER_CLEAR) == []


async def test_the_registry_selects_and_runs_hooks_of_a_list() -> None:
    calls: list[Any] = []

    async def noted(*arguments: Any, **named: Any) -> None:
        calls.append((arguments, named))

    made = HookRegistry.wrap(noted, ContextQueueHook.ON_EVICT)
    other = HookRegistry.wrap(cast("Any", noted), ContextQueueHook.AFTER_CLEAR)
    assert HookRegistry.get_by_type([other, made], ContextQueueHook.ON_EVICT) == [made]
    await HookRegistry.fire([made, other], ContextQueueHook.ON_EVICT, 1, tags=["t"], label="x")
    assert calls == [((1,), {"label": "x"})]
