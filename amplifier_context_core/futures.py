"""Futures that are resolved whatever exception the work raised, and the threads that run the work.

No other module puts an exception into a future.

A future refuses `StopIteration`: `set_exception` raises `TypeError`, the future stays unresolved, and its waiter hangs.
A subclass of it is accepted, and `await` then returns it as if it were the result. Here both become a `StoreError`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from .errors import StoreError

_P = ParamSpec("_P")
_T = TypeVar("_T")

_TURN_SECONDS = 0.004  # seconds of computing on an event loop before its other tasks run
YIELD_EVERY = 500  # items; how many a loop of cheap steps handles between two yields to the event loop


class LoopTurns:
    """The turns that a task which computes for long gives to the other tasks of its event loop."""

    def __init__(self) -> None:
        self._begun = perf_counter()

    async def give(self) -> None:
        """Let the other tasks run if this one has computed for some milliseconds since they did."""
        if perf_counter() - self._begun > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._begun = perf_counter()


def resolve(future: asyncio.Future[Any], result: object = None, problem: BaseException | None = None) -> None:
    """Give a future its exception, if there is one, or else its result. Never raises.

    Call it on the event loop of the future. A future that is done or cancelled is left as it is.
    """
    if future.done():
        return
    if problem is None:
        future.set_result(result)
    else:
        future.set_exception(_accepted(problem))


async def in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a plain function in a thread and return what it returns, or raise what it raises.

    `asyncio.to_thread` hangs for ever if the function raises `StopIteration`.
    """

    def guarded() -> _T:
        try:
            return work(*args, **kwargs)
        except StopIteration as problem:
            raise _accepted(problem) from problem

    return await asyncio.to_thread(guarded)


async def in_thread_if(long: bool, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    return await in_thread(work, *args, **kwargs) if long else work(*args, **kwargs)


def start_thread(name: str, work: Callable[..., object], *args: object) -> threading.Thread:
    """Start a daemon thread, for work that resolves futures. Raises `StoreError`: the system cannot start a thread."""
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as problem:
        raise StoreError(f"no thread can be started ({problem}); end others, or raise `ulimit -u`") from problem
    return thread


def _accepted(problem: BaseException) -> BaseException:
    if not isinstance(problem, StopIteration):
        return problem
    wrapped = StoreError(f"the work ended with {type(problem).__name__}, a fault of this program; please report it")
    wrapped.__cause__ = problem
    return wrapped
