"""Function tools: which functions can be one, their arguments, and where their items go."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Optional

import pytest
from pydantic import Field

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.items import ContextItem, ContextPool, ContextQueue, tool_from_function
from amplifier_context_core.items.function_tools import log_no_session
from amplifier_context_core.items.injection import offering, requested
from tests.items.sessions import fetch


async def look(question: str, pool: ContextPool[Any], memory: "Optional[ContextQueue[Any]]" = None) -> str:  # noqa: UP037, UP045
    return f"{question}: {pool.catalogue()} / {memory.history() if memory else None}"


@functools.wraps(fetch)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return fetch(*args, **kwargs)


async def run(function: Callable[..., Any], **arguments: Any) -> Any:
    result = await tool_from_function(function, name="tool").execute(arguments)
    assert result.success, result.output
    return result.output


# -- arguments ---------------------------------------------------------------------------------------------------------
async def test_a_tool_has_the_name_description_and_arguments_of_its_function() -> None:
    tool = tool_from_function(fetch)
    assert (tool.name, tool.description) == ("fetch", "Fetch a report.")
    assert tool.input_schema["properties"]["doc"]["type"] == "string"
    assert tool.input_schema["required"] == ["doc"]
    assert list(tool_from_function(look).input_schema["properties"]) == ["question"]
    other = tool_from_function(functools.partial(fetch, "a"), name="get")
    assert (other.name, list(other.input_schema["properties"])) == ("get", ["pages"])
    wrong = [([], "an object"), ({}, "doc"), ({"doc": "a", "pages": "?"}, "pages"), ({"doc": "a", "x": 1}, "x")]
    for given, named in wrong:
        result = await tool.execute(given)  # pyright: ignore[reportArgumentType]
        assert not result.success
        assert named in str(result.output)


def special(_x: int, model_config: str, copy: bool = False, schema: str = "s", json: str = "j", a0: int = 0) -> str:
    return f"{_x} {model_config} {copy} {schema} {json} {a0}"


async def test_a_parameter_may_have_any_name() -> None:
    tool = tool_from_function(special)
    names = ["_x", "model_config", "copy", "schema", "json", "a0"]
    assert list(tool.input_schema["properties"]) == names
    assert tool.input_schema["required"] == names[:2]
    assert await run(special, _x=1, model_config="m") == "1 m False s j 0"
    given = dict(zip(names, [2, "n", True, "t", "k", 4], strict=True))
    assert await run(special, **given) == "2 n True t k 4"
    assert "_x" in str((await tool.execute({"_x": "many", "model_config": "m"})).output)

    def search(since: Annotated[str, Field(alias="from", description="A day.")], most: int = Field(5, ge=1)) -> str:
        return f"{since} {most}"

    schema = tool_from_function(search).input_schema
    assert schema["properties"]["from"] == {"title": "From", "type": "string", "description": "A day."}
    assert await run(search, **{"from": "today"}, most=2) == "today 2"
    assert not (await tool_from_function(search).execute({"from": "today", "most": 0})).success


def either(items: ContextPool | ContextQueue) -> None: ...
def no_json(callback: Callable[[], int]) -> None: ...
def unknown(value: NoSuchName) -> None: ...  # noqa: F821 # type: ignore[name-defined]
def by_place(value: int, /) -> None: ...


def test_a_function_that_can_be_no_tool_is_refused_with_the_way_out() -> None:
    partial = functools.partial(fetch, "a")
    ways_out = {either: "ContextPool or ContextQueue alone", no_json: "JSON", unknown: "NoSuchName"}
    for function, way_out in {**ways_out, by_place: "by name", partial: "name="}.items():
        with pytest.raises((TypeError, ConfigError), match=way_out):
            tool_from_function(function)


# -- pool and queue ----------------------------------------------------------------------------------------------------
async def test_pool_and_queue_are_injected_by_annotation_and_an_explicit_one_wins() -> None:
    mine, pool, queue = ContextPool[Any](), ContextPool[Any](), ContextQueue[Any](3)
    await mine.add(ContextItem(1, "mine", "m"))
    await pool.add(ContextItem(1, "theirs", "t"))
    await queue.append(ContextItem("kept"))
    with offering(pool, queue):
        assert await run(look, question="q") == "q: - [t] theirs / kept"
        assert await run(look, question="q", pool=mine) == "q: - [m] mine / kept"
        assert await run(functools.partial(look, memory=None), question="q") == "q: - [t] theirs / None"
        assert await run(functools.partial(look, pool=mine), question="q", pool=pool) == "q: - [t] theirs / kept"
        for given in ("evil", None, {"items": []}, ContextQueue(1)):  # as a model may write it
            result = await tool_from_function(look).execute({"question": "q", "pool": given})
            assert not result.success
            assert "pool" in str(result.output)
    assert await run(look, question="q", pool=mine) == "q: - [m] mine / None", "outside a session"


def of_unknown_type(pool: ContextPool, other: NoSuchName) -> None: ...  # noqa: F821 # type: ignore[name-defined]


def of_any_type(either: ContextPool | ContextQueue, any: Any, anything: object) -> None: ...


def test_what_is_not_clear_asks_for_nothing() -> None:
    assert [requested(one) for one in (of_unknown_type, of_any_type, len)] == [{}, {}, {}]


# -- items -------------------------------------------------------------------------------------------------------------
async def test_items_of_any_function_go_where_the_session_offers_it() -> None:
    async def several(docs: list[str]) -> AsyncIterator[ContextItem[str]]:
        for doc in docs:
            yield await fetch(doc)

    async def copy(pool: ContextPool[Any]) -> ContextItem[str]:
        return ContextItem(pool.catalogue(), "a copy", "copy")

    def plain(number: int) -> int:
        return number + 1

    pool, mine = ContextPool[Any](), ContextPool[Any]()
    with offering(pool, ContextQueue(1)):
        assert await run(functools.partial(fetch, "a"), pages=2) == "Kept in the pool: [a] report a"
        assert await run(wrapped, doc="b") == "Kept in the pool: [b] report b"
        await run(several, docs=["c", "d"])
        await run(copy, pool=mine)  # what is passed decides what the tool reads, not where its item goes
        assert await run(plain, number=1) == 2
    assert [item.id for item in pool] == ["a", "b", "c", "d", "copy"]
    assert mine.items == []


async def test_an_id_without_a_description_is_a_warning_and_a_plain_result(caplog: pytest.LogCaptureFixture) -> None:
    async def undescribed() -> ContextItem[str]:
        return ContextItem("body", None, "secret-id")

    pool = ContextPool()
    with offering(pool, ContextQueue(1)), caplog.at_level(logging.WARNING):
        assert await run(undescribed) == "body"
    assert not pool
    assert "no description" in caplog.text
    assert "secret-id" not in caplog.text


async def test_an_item_that_nothing_keeps_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log_no_session.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert await run(fetch, doc="secret-id") == "body of secret-id, 1 pages"
        await run(fetch, doc="secret-id")
    assert caplog.text.count("outside a session") == 1
    assert "offering" in caplog.text
    assert "secret-id" not in caplog.text
