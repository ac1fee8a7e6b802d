"""Arguments that a function gets without being passed: the pool and the queue of the session it runs in.

A parameter asks for one by its annotation: the class, ``X | None``, or either as text. An argument that the caller
passes always wins. Outside a session nothing is injected. A function whose annotations cannot be resolved gets nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import types
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from typing import Any, Union, get_args, get_origin, get_type_hints


class Injectable:
    """Base of what a parameter can ask for by its annotation."""


class Offer:
    """What a session offers to the functions of its tasks; nothing once it is closed."""

    def __init__(self, *offered: Injectable) -> None:
        self.offered = offered
        self.task: Callable[[], object | None] = lambda: None  # returns the task that made the offer last


# The sessions and blocks that this task runs, the innermost last. A task keeps blocks alive, but no session.
_offers: ContextVar[tuple[Callable[[], Offer | None], ...]] = ContextVar("amplifier_context_offers", default=())


def activate(offer: Offer) -> None:
    """Offer this to the functions that run in this task from now on, and in tasks that it starts.

    Sessions that began inside this one end with that.
    """
    task = _current_task()
    offer.task = weakref.ref(task) if task else lambda: None
    outer = takewhile(lambda one: one() is not offer, _present())
    _offers.set((*outer, weakref.ref(offer)))


def withdraw(offer: Offer) -> None:
    """Offer this no more. The task that made the offer, and those it starts now, get what was offered before.

    Any other task is part of a session that is closed, and must not get what belongs to the session around it.
    """
    offer.offered = ()
    _offers.set(_present())


@contextmanager
def unchanged() -> Generator[None]:
    """Offer in this block what was offered before, and again after it, whatever sessions the block runs."""
    token = _offers.set(_offers.get())
    try:
        yield
    finally:
        _offers.reset(token)


@contextmanager
def offering(*offered: Injectable) -> Generator[None]:
    """Offer these to the functions that run in this block, and in tasks that begin in it, however long they run."""
    offer = Offer(*offered)
    with unchanged():
        _offers.set((*_offers.get(), lambda: offer))
        yield


def active() -> tuple[Injectable, ...]:
    """Nothing is offered outside a session."""
    offer = present[-1]() if (present := _present()) else None
    return offer.offered if offer else ()


def _present() -> tuple[Callable[[], Offer | None], ...]:
    """Leave out what is withdrawn, in the task that offered it, and sessions that were collected."""
    task = _current_task() or _offers  # in a thread without a loop no task is that of an offer
    return tuple(one for one in _offers.get() if (offer := one()) and (offer.offered or offer.task() is not task))


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
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
