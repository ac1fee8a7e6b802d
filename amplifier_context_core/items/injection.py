"""Arguments that a function gets without being passed: the pool and the queue of the session it runs in.

A parameter asks for one by its annotation: the class, ``X | None``, or either as text. An argument that the caller
passes always wins. Outside a session nothing is injected. A function whose annotations cannot be resolved gets nothing.
"""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Union, get_args, get_origin, get_type_hints


class Injectable:
    """Base of what a parameter can ask for by its annotation."""


class Offer:
    """What a session offers to the functions of its tasks; nothing once it is closed."""

    def __init__(self, *offered: Injectable) -> None:
        self.offered = offered
        self.outer: Callable[[], Offer | None] = _nothing  # returns what was offered before, unless it was collected


# The offer of the session or block that this task runs. Those around it are not kept alive.
_innermost: ContextVar[Offer | None] = ContextVar("amplifier_context_offer", default=None)


def activate(offer: Offer) -> None:
    """Offer this to the functions that run in this task from now on, and in tasks that it starts.

    Sessions that began inside this one end with that.
    """
    around = outer = _innermost.get()
    while around is not None and around is not offer:
        around = around.outer()
    if outer is not None and around is None:
        offer.outer = weakref.ref(outer)
    _innermost.set(offer)


def withdraw(offer: Offer) -> None:
    """Offer this no more. If it is what this task was offered last, the task gets what was offered before.

    Any other task is part of a session that is closed, and must not get what belongs to the session around it.
    """
    offer.offered = ()
    left = _innermost.get()
    if left is offer:
        while left is not None and not left.offered:
            left = left.outer()
        _innermost.set(left)


@contextmanager
def unchanged() -> Generator[None]:
    """Offer in this block what was offered before, and again after it, whatever sessions the block runs."""
    token = _innermost.set(_innermost.get())
    try:
        yield
    finally:
        _innermost.reset(token)


@contextmanager
def offering(*offered: Injectable) -> Generator[None]:
    """Offer these to the functions that run in this block, and in tasks that begin in it, however long they run."""
    with unchanged():
        _innermost.set(Offer(*offered))
        yield


def active() -> tuple[Injectable, ...]:
    """Nothing is offered outside a session."""
    offer = _innermost.get()
    return offer.offered if offer else ()


def _nothing() -> None:
    return None


def requested(function: Callable[..., object]) -> Mapping[str, type[Injectable]]:
    try:
        hints = get_type_hints(annotated(function))
        parameters = inspect.signature(function).parameters
    except Exception:  # noqa: BLE001 - annotations run other people's code; unresolvable ones ask for nothing
        return {}
    return {name: wanted for name, hint in hints.items() if name in parameters and (wanted := _wanted(hint))}


def annotated(function: Callable[..., object]) -> Any:
    """Return what has the annotations of a function: itself, or what an object runs when it is called."""
    inner = inspect.unwrap(getattr(function, "func", function))
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def _wanted(hint: object) -> type[Injectable] | None:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [one for one in get_args(hint) if one is not type(None)]
        return _wanted(members[0]) if len(members) == 1 else None
    kind = origin or hint  # `ContextPool[str]` asks for a `ContextPool`
    return kind if isinstance(kind, type) and issubclass(kind, Injectable) else None
