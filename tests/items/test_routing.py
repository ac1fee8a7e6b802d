"""Items on their way: from a tool into the pool and the queue of its session, into views, and over a resume."""

import asyncio
import gc
import json
import weakref
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.items.injection import active, offering
from amplifier_context_core.stores import MemoryStore, Store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from tests.items.sessions import ANSWER, PROMPT, asked, fetch, note, opened, run
from tests.managers import ask, feed, new_manager
from tests.messages import call, result


# -- a session ---------------------------------------------------------------------------------------------------------
async def test_sessions_that_run_at_the_same_time_keep_their_items_apart() -> None:
    async def loop(name: str) -> ContextManager:
        manager = await asked(new_manager(session_id=name))
        await asyncio.sleep(0)
        await asyncio.gather(*(asyncio.create_task(run(fetch, doc=f"{name}{number}")) for number in range(3)))
        return manager

    for manager, name in zip(await asyncio.gather(loop("a"), loop("b")), "ab", strict=True):
        assert sorted(item.id or "" for item in manager.pool) == [f"{name}{number}" for number in range(3)]


# -- kept with the session ---------------------------------------------------------------------------------------------
@pytest.fixture(params=["memory", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else JsonlStore(tmp_path)


async def with_items(store: Store) -> ContextManager:
    manager = await asked(opened(store))
    await run(fetch, doc="q3")
    await run(note, text="a note")
    await ask(manager)
    return manager


async def test_a_fork_has_the_items_of_its_parent_and_its_own_from_then_on(store: Store) -> None:
    parent = await with_items(store)
    await parent.close()
    await store.fork("s", "child")
    child = opened(store, "child")
    await ask(child)
    await run(fetch, doc="q4")
    await child.close()
    again = opened(store)
    await again.ready()
    assert ([item.id for item in child.pool], [item.id for item in again.pool]) == (["q3", "q4"], ["q3"])
    await again.close()


async def test_items_are_forgotten_by_their_text_and_with_the_session(store: Store) -> None:
    manager = await with_items(store)
    await manager.forget(containing="body of q3")
    assert (len(manager.pool), len(manager.queue)) == (0, 1)
    await manager.clear()
    assert not manager.queue
    await manager.close()
    again = opened(store)
    await again.ready()
    assert (len(again.pool), len(again.queue)) == (0, 0)
    await again.close()


async def delegated(name: str) -> ContextManager:
    """Run a session in this very task, as a tool does that is no function tool."""
    child = await asked(new_manager(session_id=name))
    await run(fetch, doc=f"of {name}")
    return child


async def test_a_request_takes_the_task_and_a_session_that_is_closed_gives_it_back_to_the_one_before() -> None:
    manager = await asked()
    child = await delegated("child")
    await ask(manager)
    await run(fetch, doc="outer")
    await ask(child)
    grandchild = await delegated("grandchild")
    await asyncio.create_task(grandchild.close())  # a host may end a session in any task
    await run(fetch, doc="later")
    assert [item.id for item in child.pool] == ["of child", "later"]
    await child.close()
    await run(fetch, doc="outermost")
    assert [item.id for item in manager.pool] == ["outer", "outermost"]
    await manager.close()
    assert active() == ()
    await ask(manager)
    await delegated("inside")
    await ask(manager)
    await manager.close()
    assert active() == (), "what began inside ended with the request"


async def test_what_a_function_tool_opens_and_leaves_open_is_not_what_the_next_call_gets() -> None:
    children: list[ContextManager] = []

    async def opens() -> Any:
        children.append(await delegated("left open"))
        return await fetch("first")

    manager = await asked()
    await run(opens)
    await run(fetch, doc="next")
    assert [item.id for item in manager.pool] == ["first", "next"]


async def test_a_task_that_outlives_its_session_gets_no_items_of_the_session_around_it() -> None:
    closed = asyncio.Event()

    async def late() -> Any:
        await closed.wait()
        return active()

    manager = await asked()
    child = await delegated("child")
    left = asyncio.create_task(late())
    await child.close()
    closed.set()
    assert await left == ()
    assert await asyncio.create_task(late()) == (manager.pool, manager.queue), "it begins now"
    await ask(child)
    assert active() == (child.pool, child.queue), "a closed session may be opened again"


async def test_a_session_that_ends_in_a_block_gives_the_task_back_to_the_block() -> None:
    manager, begin = new_manager(), asyncio.Event()

    async def late() -> Any:
        await begin.wait()
        await (await delegated("late")).close()
        return active()

    with offering(manager.pool, manager.queue):
        left = asyncio.create_task(late())
        await (await delegated("child")).close()
        assert active() == (manager.pool, manager.queue)
    begin.set()
    assert await left == (manager.pool, manager.queue)


async def test_a_task_keeps_no_session_alive_that_it_ran_nor_loses_the_one_around_it() -> None:
    manager = await asked()
    dropped = await asked(ContextManager(load_config({"token_counter": "heuristic"})))
    pool = weakref.ref(dropped.pool)
    del dropped
    child = await delegated("child")
    await asyncio.sleep(0)  # the loop still has to call back that a message was appended
    gc.collect()
    assert pool() is None
    await child.close()
    assert active() == (manager.pool, manager.queue)


async def test_an_item_is_durable_once_the_result_that_names_it_is(store: Store) -> None:
    manager = await asked(opened(store))
    await feed(manager, [call("c", name="fetch")])
    output = await run(fetch, doc="q3")
    await run(note, text="a note")
    await feed(manager, [result("c", output)])
    copied = MemoryStore()  # what a process finds that comes after a crash
    await copied.append("s", await store.read("s", 0, 100))
    await copied.save_checkpoint("s", (await store.extent("s")).length, await store.load_checkpoint("s") or b"")
    again = opened(copied)
    await again.ready()
    assert ([item.id for item in again.pool], again.queue.history()) == (["q3"], "a note")
    await manager.close()


SAFE = 'the code of the "saf\u00e9" is\t4711'
compact_json = partial(json.dumps, separators=(",", ":"), ensure_ascii=False, default=str)


def as_the_kernel_writes(payload: object) -> str:
    from amplifier_core import ToolResult

    return ToolResult(output=payload).get_serialized_output()


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("write", "payload"),
    [
        (as_the_kernel_writes, {"price": Decimal(9), "note": SAFE}),
        (as_the_kernel_writes, (SAFE, 1)),
        (partial(json.dumps, indent=2), [{"note": SAFE}]),
        (compact_json, f"{SAFE}\x00\x1b"),
    ],
)
async def test_forgetting_a_result_forgets_the_item_that_it_was_and_the_lists_that_show_it(
    store: Store, write: Callable[[object], str], payload: object
) -> None:
    manager = await feed(await asked(opened(store)), [call("c", name="note")])
    await run(note, text="harmless")
    await feed(manager, [result("c", write(await run(note, text=payload)))])
    assert "4711" in (await ask(manager))[-1]["content"]
    await manager.forget(["m3"])
    assert manager.queue.history() == "harmless"
    assert "4711" not in str(await manager.get_messages())
    assert "4711" not in str(await ask(manager))
    assert "harmless" in str(await ask(manager))
    await manager.close()


async def test_forgetting_a_list_forgets_the_items_that_it_shows(store: Store) -> None:
    manager = await asked(opened(store))
    await run(fetch, doc="q3")
    await run(note, text="the code is 4711")
    assert "4711" in (await ask(manager))[-1]["content"]
    await feed(manager, [ANSWER])
    await run(note, text="harmless")
    assert "4711" in (await ask(manager))[-1]["content"]  # a newer list shows it as well
    await feed(manager, [ANSWER])
    assert await manager.forget(["m2"]) == ["m2", "m4"]
    assert (len(manager.pool), manager.queue.history()) == (0, "harmless")
    view = str(await ask(manager))
    assert "harmless" in view
    await manager.close()
    again = opened(store)
    for shown in (view, str(await ask(again)), str(await again.get_messages()), str(again.session.items.saved())):
        assert "4711" not in shown
        assert "q3" not in shown
    await again.close()


async def test_a_text_that_a_list_shows_in_part_is_forgotten_there_too() -> None:
    manager, secret = await asked(), "4711 " * 100
    await run(note, text=f"begin {secret}")
    assert "4711" in (await ask(manager))[-1]["content"]
    await manager.forget(containing=secret.strip())
    assert "4711" not in f"{await manager.get_messages()} {await ask(manager)}"


def test_a_host_of_one_event_loop_per_request_offers_the_items_itself() -> None:
    manager = new_manager()
    asyncio.run(feed(manager, [PROMPT]))
    asyncio.run(ask(manager))
    with offering(manager.pool, manager.queue):
        asyncio.run(run(fetch, doc="q3"))
    assert [item.id for item in manager.pool] == ["q3"]
