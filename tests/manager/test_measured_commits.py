"""The transaction of a measured request, and the events of its compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager
from amplifier_context_core.view import shared_cache
from tests.authors import make_manager
from tests.manager.measured import BUDGET, Counting, measure, settings, state_of
from tests.managers import ask, feed, new_manager
from tests.messages import text, user, work


async def pending(number: int = 40, hooks: Any = None, **more: Any) -> tuple[ContextManager, dict[str, Any], bytes]:
    """A manager with a measured request that needs a compaction, and its state before."""
    manager = await feed(new_manager(hooks=hooks, **settings(**more)), work(number))
    before = await state_of(manager)
    return manager, await measure(manager, Counting()), before


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_commit_that_is_cancelled_or_rolled_back_while_it_waits_changes_nothing(cancelled: bool) -> None:
    manager, result, before = await pending()
    async with manager.compactor.lock.hold():
        task = asyncio.create_task(result["transaction"].commit())
        await asyncio.sleep(0)
        if cancelled:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            result["transaction"].rollback()
    assert cancelled or await task is False
    await asyncio.sleep(0)
    assert await state_of(manager) == before
    result["transaction"].rollback()
    assert await result["transaction"].commit() is False
    assert shared_cache.is_empty(), "no other session finds the compaction"


async def test_a_commit_cancelled_while_handlers_run_has_happened_and_is_saved() -> None:
    hooks, entered, leave = HookRegistry(), asyncio.Event(), asyncio.Event()

    async def slow(event: str, data: dict[str, Any]) -> None:
        entered.set()
        await leave.wait()

    hooks.register("context:compaction", slow, 0, name="slow")
    manager, result, _ = await pending(hooks=hooks)
    task = asyncio.create_task(result["transaction"].commit())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result["transaction"].rollback()
    leave.set()
    assert await result["transaction"].commit() is True
    await manager.close()
    assert (await manager.explain())["compactions"] == 1


async def shortened(manager: ContextManager) -> None:
    await manager.set_messages((await manager.get_messages())[:-4])


@pytest.mark.parametrize(
    "edit", [shortened, ContextManager.clear, lambda manager: manager.forget(containing="file 39: ")]
)
async def test_a_request_of_a_history_that_was_edited_since_may_not_be_sent_and_brings_nothing_back(
    edit: Callable[[ContextManager], Awaitable[object]],
) -> None:
    manager, result, _ = await pending()
    await edit(manager)
    assert await result["transaction"].commit() is False
    assert (await manager.explain())["compactions"] == 0
    await manager.add_message(user())
    assert "file 39: " not in text(await ask(manager, None))


async def test_a_compaction_that_came_between_is_kept() -> None:
    manager, result, _ = await pending()
    view = await ask(manager, None)
    assert await result["transaction"].commit() is True
    assert (await manager.explain())["compactions"] == len(await manager.compactions()) == 1
    assert text(await ask(manager, None)) == text(view)


async def test_a_pin_that_came_between_holds_after_the_commit() -> None:
    manager, result, _ = await pending()
    pinned = manager.snapshot()[5]
    await manager.pin(pinned.mark)
    assert await result["transaction"].commit() is True
    await ask(manager, None)
    sent = manager.compactor.last_sent
    assert sent is not None
    assert sent.view.shows(pinned.seq)
    assert (await manager.explain())["compactions"] == 1, "that of the request after the commit"


async def test_the_first_request_of_a_resumed_session_changes_nothing_before_its_commit() -> None:
    first = await feed(new_manager(**settings()), work(60))
    await ask(first, BUDGET)
    await first.close()
    manager = make_manager(first.config, session_id=first.session_id, store=first.store)
    await manager.ready()
    before = await state_of(manager)
    (await measure(manager, Counting()))["transaction"].rollback()
    assert await state_of(manager) == before
    await manager.close()


@pytest.mark.parametrize("answer", ["continue", "deny"])
async def test_a_compaction_is_asked_about_once_before_and_reported_when_it_is_committed(answer: str) -> None:
    events: list[str] = []

    class Hooks:
        async def emit(self, event: str, data: dict[str, Any]) -> Any:
            events.append(event)
            return SimpleNamespace(action=answer if event == "context:pre_compact" else "continue")

    manager, result, before = await pending(22 if answer == "deny" else 40, hooks=Hooks())
    assert events == ["context:pre_compact"]
    assert (result["outcome"] == "postponed") is (answer == "deny")
    assert await state_of(manager) == before
    assert await result["transaction"].commit()
    if answer == "deny":
        assert (await measure(manager, Counting()))["outcome"] == "not_needed"
    else:
        assert events[1:] == ["context:compaction", "context:post_compact", "context:usage"]
