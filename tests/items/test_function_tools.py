"""Function tools: which functions can be one, what they do outside a session, and what outlives their call."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest
from pydantic import Field

from amplifier_context_core import ContextManager
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.items import ContextItem, ContextPool, ContextQueue, tool_from_function
from amplifier_context_core.items.function_tools import log_no_session
from amplifier_context_core.items.injection import offering
from tests.managers import ask, feed, new_manager

PROMPT = [{"role": "user", "content": "Read."}]


async def fetch(doc: str, pages: int = 1) -> ContextItem[str]:
    """Fetch a report."""
    return ContextItem(f"body of {doc}, {pages} pages", f"report {doc}", doc)


class Counting:
    """Count."""

    async def __call__(self, start: int, pool: ContextPool) -> int:
        return start + len(pool)


@functools.wraps(fetch)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return fetch(*args, **kwargs)


async def run(function: Callable[..., Any], **arguments: Any) -> Any:
    result = await tool_from_function(function, name="tool").execute(arguments)
    assert result.success, result.output
    return result.output


async def test_a_partial_a_wrapper_and_a_callable_object_are_tools_too() -> None:
    with offering(ContextPool(), ContextQueue(1)):
        assert await run(functools.partial(fetch, "a"), pages=2) == "Kept in the pool: [a] report a"
        assert await run(functools.partial(fetch, doc="b")) == "Kept in the pool: [b] report b"
        assert await run(wrapped, doc="c") == "Kept in the pool: [c] report c"
        assert await run(Counting(), start=3) == 6
    tool = tool_from_function(functools.partial(fetch, "a"), name="tool")
    assert tool.description == "Fetch a report."
    assert list(tool.input_schema["properties"]) == ["pages"]


async def test_a_pool_that_a_partial_binds_wins_unless_the_call_passes_one() -> None:
    async def count(pool: ContextPool, queue: ContextQueue | None = None) -> str:
        return f"{len(pool)} {queue is None}"

    mine = ContextPool()
    await mine.add(ContextItem(1, "mine", "m"))
    with offering(ContextPool(), ContextQueue(1)):
        assert await run(functools.partial(count, pool=mine)) == "1 False"
        assert await run(functools.partial(count, mine)) == "1 False"
        assert await run(functools.partial(count, mine, None)) == "1 True"
        assert await run(functools.partial(count, queue=None), pool=mine) == "1 True"
        assert await run(functools.partial(count, pool=mine), pool=ContextPool()) == "0 False"


async def test_an_item_goes_where_the_session_offers_it_whatever_the_call_passes() -> None:
    """As in the source: its agent keeps what a tool returns, and passed arguments decide what the tool reads."""

    async def copy(pool: ContextPool[Any]) -> ContextItem[str]:
        return ContextItem(pool.catalogue(), "a copy", "copy")

    mine, pool = ContextPool[Any](), ContextPool[Any]()
    with offering(pool, ContextQueue[Any](3)):
        await run(copy, pool=mine)
    assert [one.id for one in pool.items] == ["copy"]
    assert mine.items == []


def special(
    _x: int,
    model_config: str,
    model_fields_set: int = 1,
    copy: bool = False,
    schema: str = "s",
    json: str = "j",
    a0: int = 0,
    work: int = 0,
) -> str:
    return f"{_x} {model_config} {model_fields_set} {copy} {schema} {json} {a0} {work}"


async def test_a_parameter_may_have_any_name() -> None:
    tool = tool_from_function(special)
    names = ["_x", "model_config", "model_fields_set", "copy", "schema", "json", "a0", "work"]
    assert list(tool.input_schema["properties"]) == names
    assert tool.input_schema["required"] == names[:2]
    assert await run(special, _x=1, model_config="m") == "1 m 1 False s j 0 0"
    given = dict(zip(names, [2, "n", 3, True, "t", "k", 4, 5], strict=True))
    assert await run(special, **given) == "2 n 3 True t k 4 5"
    refused = await tool.execute({"_x": "many", "model_config": "m"})
    assert "_x" in str(refused.output)
    assert not (await tool.execute({"_x": 1, "model_config": "m", "a1": 1})).success


async def test_an_alias_that_a_parameter_has_names_its_argument() -> None:
    def search(since: Annotated[str, Field(alias="from", description="A day.")], most: int = Field(5, ge=1)) -> str:
        return f"{since} {most}"

    schema = tool_from_function(search).input_schema
    assert list(schema["properties"]) == ["from", "most"]
    assert schema["properties"]["from"] == {"title": "From", "type": "string", "description": "A day."}
    assert await run(search, **{"from": "today"}, most=2) == "today 2"
    assert not (await tool_from_function(search).execute({"from": "today", "most": 0})).success


def either(items: ContextPool | ContextQueue) -> None: ...
def no_json(callback: Callable[[], int]) -> None: ...
def unknown(value: NoSuchName) -> None: ...  # noqa: F821 # type: ignore[name-defined]
def by_place(value: int, /) -> None: ...
def many(*values: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "way_out"),
    [
        (either, "ContextPool or ContextQueue alone"),
        (no_json, "JSON"),
        (unknown, "NoSuchName"),  # pyright: ignore[reportUnknownArgumentType]
        (by_place, "by name"),
        (many, "by name"),
        (functools.partial(fetch, "a"), "name="),
    ],
)
def test_a_function_that_can_be_no_tool_is_refused_with_the_way_out(function: Callable[..., Any], way_out: str) -> None:
    with pytest.raises((TypeError, ConfigError), match=way_out):
        tool_from_function(function)


def test_a_host_of_one_event_loop_per_request_offers_the_items_itself() -> None:
    manager = new_manager()
    asyncio.run(feed(manager, PROMPT))
    asyncio.run(ask(manager))
    with offering(manager.pool, manager.queue):
        asyncio.run(run(fetch, doc="q3"))
    assert [item.id for item in manager.pool] == ["q3"]


async def test_a_tool_of_a_closed_session_keeps_its_item_in_that_session() -> None:
    ended = asyncio.Event()

    async def slow(pool: ContextPool) -> ContextItem[str]:
        await ended.wait()
        return await fetch("late")

    async def delegate() -> str:
        child = await feed(new_manager(session_id="child"), PROMPT)
        await ask(child)
        late = asyncio.create_task(run(slow))
        await asyncio.sleep(0)
        await child.close()
        ended.set()
        await late
        return str([item.id for item in child.pool])

    manager = await feed(new_manager(), PROMPT)
    await ask(manager)
    assert await run(delegate) == "['late']"
    assert not manager.pool


@pytest.mark.parametrize("is_generator", [False, True])
async def test_a_tool_that_leaves_a_session_open_returns_its_item_to_its_own(is_generator: bool) -> None:
    kept_beside = list[Any]()

    async def note_queue(pool: ContextPool, item: ContextItem[Any], queue: ContextQueue) -> None:
        kept_beside.append(queue)

    async def returning() -> ContextItem[str]:
        child = await feed(new_manager(session_id="child"), PROMPT)
        await ask(child)
        await run(fetch, doc="of child")
        children.append(child)
        return await fetch("result")

    async def yielding() -> AsyncIterator[ContextItem[str]]:
        yield await returning()

    children = list[ContextManager]()
    manager = await feed(new_manager(), PROMPT)
    manager.pool.after_add(note_queue)
    await ask(manager)
    await run(yielding if is_generator else returning)
    assert [item.id for item in manager.pool] == ["result"]
    assert [item.id for item in children[0].pool] == ["of child"]
    assert kept_beside == [manager.queue]


async def test_an_item_that_nothing_keeps_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log_no_session.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert await run(fetch, doc="secret-id") == "body of secret-id, 1 pages"
        await run(fetch, doc="secret-id")
    assert caplog.text.count("outside a session") == 1
    assert "offering" in caplog.text
    assert "secret-id" not in caplog.text
