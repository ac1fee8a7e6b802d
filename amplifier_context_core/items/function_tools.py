"""Kernel tools made from typed functions, and the way of an item that a tool returns.

A function gets the pool and the queue of its session by annotation. An item that it returns goes into the pool (with an
id) or into the queue (without one) before the call ends, so the next call finds it there.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model

from ..errors import ConfigError
from ..futures import in_thread
from .context_pool import ContextPool
from .context_queue import ContextQueue
from .injection import Injectable, active, annotated, requested, unchanged
from .item import KEPT, ContextItem, label_of

if TYPE_CHECKING:
    from amplifier_core import ToolResult

log = logging.getLogger(__name__)

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


async def _routed(result: Any, offered: Sequence[Injectable]) -> Any:
    if not isinstance(result, ContextItem):
        return result
    if not offered:
        log_no_session()
    pool = next((cast("ContextPool[Any]", one) for one in offered if isinstance(one, ContextPool)), None)
    queue = next((cast("ContextQueue[Any]", one) for one in offered if isinstance(one, ContextQueue)), None)
    return await keep_item(cast("ContextItem[Any]", result), pool, queue)


@cache
def log_no_session() -> None:
    way_out = "if there is one, it ran in another task: `with items.injection.offering(context.pool, context.queue):`"
    log.warning("an item that a tool returned outside a session is not kept; %s", way_out)


async def keep_item(item: ContextItem[Any], pool: ContextPool[Any] | None, queue: ContextQueue[Any] | None) -> Any:
    """Put an item into a pool or a queue, and return what the model is to read of it.

    That is the content where the item is not kept in the pool. Of an item with an id and no description the log warns.
    """
    if item.id is not None and item.description is None:
        log.warning("an item with an id has no description; it stays a plain result")
        return item.content
    if item.id is not None and pool is not None:
        await pool.add(item)
        return f"{KEPT}{label_of(item)}"
    if item.id is None and queue is not None:
        await queue.append(item)
    return item.content


def tool_from_function(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None
) -> FunctionTool:
    """Return a kernel tool that calls a function.

    Args:
        function: with annotated parameters; plain (run in a thread), async, or an async generator. It may be any object
            that can be called, such as a `functools.partial`. Parameters annotated with `ContextPool` or `ContextQueue`
            are not arguments of the tool: they get those of the session.
        name: by default that of the function.
        description: for the model; by default the docstring of the function.

    Raises:
        ConfigError: neither is a name given, nor has the function one.
        TypeError: a parameter cannot be passed by name, or an annotation cannot be made a JSON schema.
    """
    name = name or getattr(function, "__name__", None)
    if name is None:
        raise ConfigError("name", f"a {type(function).__name__} has none of its own; give the tool one with `name=`")
    documented = getattr(function, "func", function)  # of a `functools.partial`
    return FunctionTool(function, name, description or inspect.getdoc(documented) or "")


class FunctionTool:
    """A kernel tool around a function; made by `tool_from_function`."""

    def __init__(self, function: Callable[..., Any], name: str, description: str) -> None:
        self.name, self.description = name, description
        self._function = function
        self._injectable = requested(function)
        self._model, self._names = _arguments_of(function, name, self._injectable)

    @property
    def input_schema(self) -> dict[str, Any]:
        return self._model.model_json_schema()

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Call the function, and route the items that it returns.

        Raises:
            TypeError: outside a session, a pool or a queue is missing that the function requires.
        """
        from amplifier_core import ToolResult

        if not isinstance(input, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - loops pass what a model wrote
            return ToolResult(success=False, output=f"{self.name}: the arguments must be an object")
        # A model's JSON is never a pool or a queue, so only code can pass one.
        explicit = {key: value for key, value in input.items() if isinstance(value, self._injectable.get(key, ()))}
        try:
            checked = self._model.model_validate({key: input[key] for key in input if key not in explicit})
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(map(str, first["loc"])) or "arguments"
            return ToolResult(success=False, output=f"{self.name}: {where}: {first['msg']}")
        given = {self._names[field]: getattr(checked, field) for field in checked.model_fields_set} | explicit
        # What the function opens, closes or outlives changes neither where its items go nor what the next call gets.
        offered = active()
        passed = {*given, *getattr(self._function, "keywords", ())}  # of a `functools.partial`
        for name, kind in self._injectable.items():
            if name not in passed and (found := [one for one in offered if isinstance(one, kind)]):
                given[name] = found[0]
        with unchanged():
            result = await self._call(given, offered)
        return result if isinstance(result, ToolResult) else ToolResult(success=True, output=result)

    async def _call(self, given: Mapping[str, Any], offered: Sequence[Injectable]) -> Any:
        function = partial(self._function, **given)
        is_async = inspect.iscoroutinefunction(self._function) or inspect.isasyncgenfunction(self._function)
        result = function() if is_async else await in_thread(function)
        if inspect.isasyncgen(result):
            parts = [await _routed(part, offered) async for part in result]
            return parts[0] if len(parts) == 1 else parts
        return await _routed(await result if inspect.isawaitable(result) else result, offered)


def _arguments_of(
    function: Callable[..., Any], tool: str, injectable: Collection[str]
) -> tuple[type[BaseModel], dict[str, str]]:
    """Return a model of the arguments, and the parameter of each of its fields.

    A field has a name that means nothing to pydantic (`model_config` would), and its parameter as an alias.
    """
    fields, names = dict[str, Any](), dict[str, str]()
    try:
        hints = get_type_hints(annotated(function), include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in _NAMED:
                raise TypeError(f"`{name}` is {parameter.kind.description}; a tool needs each by name")
            if name not in injectable:
                default: Any = ... if parameter.default is parameter.empty else parameter.default
                field = f"a{len(fields)}"
                fields[field], names[field] = (hints.get(name, Any), default), name
        config = ConfigDict(extra="forbid", alias_generator=names.__getitem__)
        model = create_model(f"{tool}_arguments", __config__=config, **fields)
        model.model_json_schema()
    except PydanticUserError as problem:
        way_out = "annotate with types that JSON has, and what the session gives with ContextPool or ContextQueue alone"
        raise TypeError(f"{tool}: no JSON schema can be made of an annotation; {way_out}") from problem
    except (NameError, TypeError) as problem:
        raise TypeError(f"{tool}: {problem}") from problem
    return model, names
