"""Hooks of queues and pools: where they come from, in which order they run, what they get."""

from typing import Any

import pytest

from amplifier_context_core.errors import UnregisteredHookError
from amplifier_context_core.items import ContextItem, ContextPool, ContextPoolHook, ContextQueue, ContextQueueHook
from amplifier_context_core.items.hooks import HookRegistry, hook

ITEM = ContextItem("x", "d", "i")


def noting(name: str, calls: Any = None) -> Any:
    async def noted(*arguments: Any) -> None:
        calls.append(name)

    noted.__name__ = name
    return noted


# -- decorators --------------------------------------------------------------------------------------------------------
async def test_a_decorator_returns_the_hook_and_attaches_it_once() -> None:
    queue = ContextQueue(1)
    attached = queue.before_append(noting("attached"))
    assert queue.before_append(attached) is attached
    assert queue.hooks == [attached]
    assert HookRegistry.get("attached") is attached


def test_what_can_be_no_hook_is_refused_and_not_registered_and_a_name_is_of_one_hook() -> None:
    cleared = hook(ContextQueueHook.AFTER_CLEAR)
    with pytest.raises(TypeError, match="'<lambda>' must be an async function"):
        cleared(lambda queue: None)  # type: ignore[arg-type]
    with pytest.raises(UnregisteredHookError):
        HookRegistry.get("<lambda>")
    with pytest.raises(ValueError, match="at least one type"):
        hook([])(noting("none"))
    first = cleared(noting("named"))
    HookRegistry.register(first)  # once more: nothing changes
    with pytest.raises(ValueError, match="'named' is already registered"):
        cleared(noting("named"))
    assert HookRegistry.get_global_by_type(ContextQueueHook.AFTER_CLEAR) == [first]
    HookRegistry.clear()
    assert HookRegistry.get_global_by_type(ContextQueueHook.AFTER_CLEAR) == []


# -- order and selection -----------------------------------------------------------------------------------------------
async def test_hooks_of_the_object_run_first_then_global_ones_each_once() -> None:
    calls: list[str] = []
    for_all = hook(ContextPoolHook.BEFORE_ADD)
    for_all(noting("everywhere", calls))
    both = for_all(noting("both", calls))
    pool = ContextPool()
    pool.before_add(noting("own", calls))
    pool.hooks += [both, both]
    await pool.add(ITEM)
    assert calls == ["own", "both", "everywhere"]


async def test_a_global_hook_runs_for_its_event_and_for_objects_that_share_one_of_its_tags() -> None:
    calls: list[str] = []
    tagged = ContextQueue(1).before_clear(noting("tagged", calls))
    hook(ContextQueueHook.BEFORE_CLEAR, tags={"a", "b"})(tagged)
    hook(ContextQueueHook.BEFORE_CLEAR)(noting("untagged", calls))
    for tags, found in (((), ["untagged"]), (["c"], ["untagged"]), (["b", "c"], ["tagged", "untagged"])):
        calls.clear()
        await ContextQueue(1, tags=tags).clear()
        assert sorted(calls) == found
    calls.clear()
    await ContextPool(tags=["b"]).clear()  # an event of the same name
    assert calls == []
