"""One thread that executes a store's calls in order, for callers on any event loop.

Appends that wait together are executed as one batch, so that they share a write and an fsync (group commit). A
cancelled caller gets no result, but its call is executed.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ...errors import StoreError
from ...futures import resolve, start_thread
from ...transcript.entry import Entry
from .file_ops import start_yield_timer

_Result = TypeVar("_Result")
# a session, and batches that are each written completely or not at all
PendingAppend = tuple[str, Sequence[Sequence[Entry]]]
AppendAll = Callable[[Sequence[PendingAppend]], Sequence[BaseException | None]]
Notifications = Callable[[], Sequence[Callable[[], None]]]
_MAX_BATCH = 512  # appends in one batch
_LINGER = 0.0002  # seconds


@dataclass(slots=True)
class _QueuedCall:
    """One call: an append, or any other work."""

    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None
    work: Callable[[], object] | None = None
    append: PendingAppend | None = None
    result: object = None
    error: BaseException | None = None

    def resolve(self) -> None:
        """Complete the caller's future; runs on the caller's loop."""
        if self.future is not None:
            resolve(self.future, self.result, self.error)


_Calls = queue.SimpleQueue[_QueuedCall | None]


class JsonlWorker:
    """The thread and its queue. It starts with the first call and ends with `stop`; a later call starts another."""

    def __init__(self, append_all: AppendAll, take_notifications: Notifications) -> None:
        """Start nothing yet.

        Args:
            append_all: Executes a batch of appends and returns the error of each, or None.
            take_notifications: Returns functions to call on the caller's loop before its call returns.
        """
        self._append_all = append_all
        self._take_notifications = take_notifications
        self._lock = threading.Lock()
        self._calls: _Calls | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run a function in the thread, after all earlier calls."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._put(_QueuedCall(loop, future, work))
        return cast("_Result", await future)

    async def append(self, session_id: str, batches: Sequence[Sequence[Entry]]) -> None:
        """Append batches of entries, perhaps together with other appends."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._put(_QueuedCall(loop, future, append=(session_id, batches)))
        await future

    def stop(self, last: Callable[[], object] | None = None) -> threading.Thread | None:
        """Let the thread end after its queue and this last function. Return the thread without waiting for it."""
        with self._lock:
            calls, self._calls = self._calls, None
            if calls is not None:
                if last is not None:
                    calls.put(_QueuedCall(work=last))
                calls.put(None)
            return self._thread

    def _put(self, call: _QueuedCall) -> None:
        with self._lock:
            if self._calls is None:
                calls: _Calls = queue.SimpleQueue()
                self._thread = start_thread(
                    "jsonl-store", _serve, calls, self._thread, self._append_all, self._take_notifications
                )
                self._calls, self._process = calls, os.getpid()
            elif self._process != os.getpid():
                raise StoreError("this store was used before the process forked; make a new one in the child")
            self._calls.put(call)


def _serve(
    calls: _Calls, previous: threading.Thread | None, append_all: AppendAll, take_notifications: Notifications
) -> None:
    """Run the thread's loop. It refers to the queue and not to the worker, so that an unused worker can be freed."""
    if previous is not None:
        previous.join()
    recent_batch_size = 1  # of the largest recent batch
    last_batch_size = 1
    call = calls.get()
    while call is not None:
        if call.append is None:
            _run(call)
            _complete([call], take_notifications())
            call = calls.get()
        else:
            batch, call = _collect_batch(call, calls, recent_batch_size)
            recent_batch_size, last_batch_size = max(last_batch_size, len(batch)), len(batch)
            _append(batch, append_all)
            _complete(batch, take_notifications())
            del batch
            call = calls.get() if call is _NOTHING else call


_NOTHING = _QueuedCall()


def _collect_batch(
    first: _QueuedCall, calls: _Calls, recent_batch_size: int
) -> tuple[list[_QueuedCall], _QueuedCall | None]:
    """Return the waiting appends up to the first other call, and that call or `_NOTHING`.

    If recent batches were much larger, the missing callers were just answered and are about to append again: lingering
    briefly saves an fsync. A single caller never lingers.
    """
    batch = [first]
    may_linger = 2 * len(batch) < recent_batch_size
    while len(batch) < _MAX_BATCH:
        if calls.empty():  # this thread is the only consumer
            if not may_linger or 2 * len(batch) >= recent_batch_size:
                return batch, _NOTHING
            may_linger = False
            time.sleep(_LINGER)
            continue
        call = calls.get_nowait()
        if call is None or call.append is None:
            return batch, call
        batch.append(call)
    return batch, _NOTHING


def _run(call: _QueuedCall) -> None:
    if call.work is not None:
        start_yield_timer()
        try:
            call.result = call.work()
        except BaseException as error:  # noqa: BLE001 - becomes the result of the call
            call.error = error


def _append(batch: list[_QueuedCall], append_all: AppendAll) -> None:
    start_yield_timer()
    try:
        errors = append_all([call.append for call in batch if call.append is not None])
    except BaseException as error:  # noqa: BLE001 - becomes the result of the calls
        errors = [error] * len(batch)
    for call, error in zip(batch, errors, strict=True):
        call.error = error


def _complete(done: list[_QueuedCall], notifications: Sequence[Callable[[], None]]) -> None:
    """Wake the callers, once for each event loop. The first loop also runs the notifications."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_QueuedCall]] = {}
    for call in done:
        if call.loop is not None:
            by_loop.setdefault(call.loop, []).append(call)
    for loop, calls in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, calls, notifications)
        except RuntimeError:  # the loop is closed: no caller waits on it
            continue
        notifications = ()
    for notify in notifications:  # no loop is left to run them: run them here
        notify()


def _resolve(calls: list[_QueuedCall], notifications: Sequence[Callable[[], None]]) -> None:
    try:
        for notify in notifications:
            notify()
    finally:  # a listener may raise anything, and the callers must get their results
        for call in calls:
            call.resolve()
