"""Arguments that a function gets without being passed: the pool and the queue of the session it runs in.

A parameter asks for one by its annotation: the class, ``X | None``, or either as text. An argument that the caller
passes always wins. Outside a session nothing is injected. A function whose annotations cannot be resolved gets nothing.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, Union, get_args, get_origin, get_type_hints


class Injectable:
    """Base of what a parameter can ask for by its annotation."""


class Offer:
    """What a session offers to the functions of its tasks; nothing once it is closed."""

    def __init__(self, *offered: Injectable) -> None:
        self.offered = offered
        self._before: Token[Offer | None] | None = None  # of the task that it is offered in

    def activate(self) -> None:
        """Offer this to the functions that run in this task from now on, and in tasks that it starts."""
        if _current.get() is not self:
            self._before = _current.set(self)

    def withdraw(self) -> None:
        """Offer this no more. In the task that it was offered in, what was offered before is offered again.

        Other tasks get nothing until their next request: they are part of a session that is closed, and must not get
        what belongs to the session around it.
        """
        self.offered = ()
        before, self._before = self._before, None
        try:
            if before is not None:
                _current.reset(before)
        except ValueError:  # this is another task
            pass


_current: ContextVar[Offer | None] = ContextVar("amplifier_context_offer", default=None)


@contextmanager
def offering(*offered: Injectable) -> Generator[None]:
    """Offer these to the functions that run in this block, and in tasks that begin in it, however long they run.

    After the block there is what was offered before, whatever sessions the block runs.
    """
    token = _current.set(Offer(*offered))
    try:
        yield
    finally:
        _current.reset(token)


def active() -> tuple[Injectable, ...]:
    """Nothing is offered outside a session."""
    offer = _current.get()
    return offer.offered if offer else ()


def requested(function: Callable[..., object]) -> Mapping[str, type[Injectable]]:
    """Return the parameters of a function that ask for something, by name."""
    try:
        hints = get_type_hints(annotated(function))
        parameters = inspect.signature(function).parameters
    except Exception:  # noqa: BLE001 - annotations run other people's code; unresolvable ones ask for nothing
        return {}
    return {name: wanted for name, hint in hints.items() if name in parameters and (wanted := _wanted(hint))}


def injected(
    function: Callable[..., object],
    positional: Sequence[object],
    given: Mapping[str, object],
    offered: Sequence[Injectable],
) -> dict[str, Injectable]:
    """Return the arguments to add to a call with these positional and keyword arguments, of what is offered."""
    wanted: Mapping[str, type[Injectable]] = requested(function) if offered else {}
    if not wanted:
        return {}
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in inspect.signature(function).parameters.values() if one.kind in by_place]
    bound = getattr(function, "keywords", {})  # of a `functools.partial`
    passed = {*names[: len(positional)], *given, *bound}
    found = {name: next((one for one in offered if isinstance(one, kind)), None) for name, kind in wanted.items()}
    return {name: one for name, one in found.items() if one is not None and name not in passed}


def annotated(function: Callable[..., object]) -> Any:
    """Return what has the annotations of a function: itself, or what an object runs when it is called."""
    inner = inspect.unwrap(getattr(function, "func", function))
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def _wanted(hint: object) -> type[Injectable] | None:
    """Return the class that an annotation asks for, if it is one of ours."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [one for one in get_args(hint) if one is not type(None)]
        return _wanted(members[0]) if len(members) == 1 else None
    kind = origin or hint  # `ContextPool[str]` asks for a `ContextPool`
    return kind if isinstance(kind, type) and issubclass(kind, Injectable) else None
