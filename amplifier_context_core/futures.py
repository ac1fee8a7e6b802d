"""Futures that are resolved whatever exception the work raised, and the threads that run the work.

No other module puts an exception into a future.

A future refuses `StopIteration`: `set_exception` raises `TypeError`, the future stays unresolved, and its waiter hangs.
A subclass of it is accepted, and `await` then returns it as if it were the result. Here both become a `StoreError`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from time import perf_counter
from typing import Any, Generic, ParamSpec, TypeVar, cast

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

    Args:
        future: what the caller waits for.
        result: what the work returned.
        problem: what the work raised.
    """
    if future.done():
        return
    if problem is None:
        future.set_result(result)
    else:
        future.set_exception(_accepted(problem))


class Outcome(Generic[_T]):
    """The result of work that is done elsewhere. Tasks of any event loop may await it, also of several.

    A cancelled task does not cancel the work. A loop that was closed misses the result; nothing waits for it.
    """

    __slots__ = ("_callbacks", "_guard", "_problem", "_result", "_waiters", "is_settled")

    def __init__(self) -> None:
        self.is_settled = False
        self._result: _T | None = None
        self._problem: BaseException | None = None
        self._callbacks: list[Callable[[BaseException | None], object]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._guard = threading.Lock()

    def __await__(self) -> Generator[Any, None, _T]:
        with self._guard:
            waiter = None if self.is_settled else asyncio.get_running_loop().create_future()
            if waiter is not None:
                self._waiters.append(waiter)
        if waiter is not None:
            yield from waiter
        if self._problem is not None:
            raise self._problem
        return cast(_T, self._result)

    def then(self, callback: Callable[[BaseException | None], object]) -> None:
        """Call a plain function with the exception or None, before any task is woken.

        It runs in the thread that settles the outcome; now, if that has happened. It must not raise.
        """
        with self._guard:
            if not self.is_settled:
                self._callbacks.append(callback)
                return
        callback(self._problem)

    @property
    def is_awaited(self) -> bool:
        """True if a task awaits it that was not cancelled."""
        return any(not waiter.done() for waiter in self._waiters)

    def settle(self, result: _T | None = None, problem: BaseException | None = None) -> list[asyncio.Future[None]]:
        """Set the exception, if there is one, or else the result. Return the futures to `wake`."""
        self._result, self._problem = result, None if problem is None else _accepted(problem)
        while True:
            with self._guard:
                callbacks, self._callbacks = self._callbacks, []
                if not callbacks:
                    self.is_settled = True
                    waiters, self._waiters = self._waiters, []
                    return waiters
            for callback in callbacks:
                callback(self._problem)


def settled() -> Outcome[None]:
    """Return the outcome of work that is done."""
    outcome = Outcome[None]()
    outcome.settle()
    return outcome


def wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    """Wake tasks that await outcomes which were settled; each event loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:  # a thread without a loop
        here = None
    for loop, its in by_loop.items():
        if loop is here:
            _wake(its)
            continue
        with suppress(RuntimeError):  # the loop is closed: none of its tasks waits
            loop.call_soon_threadsafe(_wake, its)


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


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
    """Run a plain function here, or in a thread if it takes long."""
    return await in_thread(work, *args, **kwargs) if long else work(*args, **kwargs)


def start_thread(name: str, work: Callable[..., object], *args: object) -> threading.Thread:
    """Start a daemon thread, for work that resolves futures.

    Raises:
        StoreError: the system cannot start a thread.
    """
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as problem:
        raise StoreError(f"no thread can be started ({problem}); end others, or raise `ulimit -u`") from problem
    return thread


def _accepted(problem: BaseException) -> BaseException:
    """Return the exception as a future accepts it."""
    if not isinstance(problem, StopIteration):
        return problem
    wrapped = StoreError(f"the work ended with {type(problem).__name__}, a fault of this program; please report it")
    wrapped.__cause__ = problem
    return wrapped
