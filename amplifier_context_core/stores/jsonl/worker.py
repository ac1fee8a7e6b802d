"""One thread that does a store's work, one call after another, for callers on any event loop.

Appends that wait together are handed on together, so that they share a write and an fsync. A caller that is cancelled
is only not told: its call is carried out.
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
from ...transcript.transcript import Entry
from .file_ops import begin_work

_Answer = TypeVar("_Answer")
PendingAppend = tuple[str, Sequence[Sequence[Entry]]]  # a session, and batches, each of which is written whole or not
AppendAll = Callable[[Sequence[PendingAppend]], Sequence[BaseException | None]]
Notifications = Callable[[], Sequence[Callable[[], None]]]
_TOGETHER = 512  # appends handed on at once, at most
_PATIENCE = 0.0002  # seconds


@dataclass(slots=True)
class _Call:
    """One call: an append, or any other work."""

    loop: asyncio.AbstractEventLoop | None = None
    waiting: asyncio.Future[Any] | None = None
    work: Callable[[], object] | None = None
    append: PendingAppend | None = None
    answer: object = None
    problem: BaseException | None = None

    def resolve(self) -> None:
        """On the caller's loop: hand it the answer, if it still waits."""
        if self.waiting is not None:
            resolve(self.waiting, self.answer, self.problem)


_Calls = queue.SimpleQueue[_Call | None]


class JsonlWorker:
    """The thread and its queue. It begins with the first call, ends with `stop`, and begins anew with the next call."""

    def __init__(self, appends: AppendAll, told: Notifications) -> None:
        """Begin nothing yet.

        Args:
            appends: carries out appends; what became of each.
            told: what is to be called, on the caller's loop, before its call returns.
        """
        self._appends = appends
        self._told = told
        self._lock = threading.Lock()
        self._calls: _Calls | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    async def run(self, work: Callable[[], _Answer]) -> _Answer:
        """Have something done, after all that was asked for before."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()
        self._put(_Call(loop, waiting, work))
        return cast("_Answer", await waiting)

    async def append(self, session_id: str, batches: Sequence[Sequence[Entry]]) -> None:
        """Have batches of entries appended, perhaps together with others."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()
        self._put(_Call(loop, waiting, append=(session_id, batches)))
        await waiting

    def stop(self, last: Callable[[], object] | None = None) -> threading.Thread | None:
        """Have the thread end when its queue, and this last work, is done. Gives it; does not wait for it."""
        with self._lock:
            calls, self._calls = self._calls, None
            if calls is not None:
                if last is not None:
                    calls.put(_Call(work=last))
                calls.put(None)
            return self._thread

    def _put(self, call: _Call) -> None:
        with self._lock:
            if self._calls is None:
                calls: _Calls = queue.SimpleQueue()
                self._thread = start_thread("jsonl-store", _serve, calls, self._thread, self._appends, self._told)
                self._calls, self._process = calls, os.getpid()
            elif self._process != os.getpid():
                raise StoreError("this store was used before the process forked; make a new one in the child")
            self._calls.put(call)


def _serve(calls: _Calls, before: threading.Thread | None, appends: AppendAll, told: Notifications) -> None:
    """The thread's life. It knows the queue, not the worker, so that a worker nobody has any more can go."""
    if before is not None:
        before.join()
    company = 1  # appends that came together of late
    last = 1
    call = calls.get()
    while call is not None:
        if call.append is None:
            _do(call)
            _answer([call], told())
            call = calls.get()
        else:
            together, call = _together(call, calls, company)
            company, last = max(last, len(together)), len(together)
            _append(together, appends)
            _answer(together, told())
            del together
            call = calls.get() if call is _NOTHING else call


_NOTHING = _Call()


def _together(first: _Call, calls: _Calls, company: int) -> tuple[list[_Call], _Call | None]:
    """The appends that wait now, up to the first call that is none; that call, or that there is nothing yet.

    Where many came together of late and few are here, the others were answered this moment and are about to come again:
    a moment's patience then spares an fsync. Who appends alone is never kept waiting.
    """
    together = [first]
    patience = 2 * len(together) < company
    while len(together) < _TOGETHER:
        if calls.empty():  # nobody else takes from it
            if not patience or 2 * len(together) >= company:
                return together, _NOTHING
            patience = False
            time.sleep(_PATIENCE)
            continue
        call = calls.get_nowait()
        if call is None or call.append is None:
            return together, call
        together.append(call)
    return together, _NOTHING


def _do(call: _Call) -> None:
    if call.work is not None:
        begin_work()
        try:
            call.answer = call.work()
        except BaseException as problem:  # noqa: BLE001 - it is the caller's to see
            call.problem = problem


def _append(together: list[_Call], appends: AppendAll) -> None:
    begin_work()
    try:
        problems = appends([call.append for call in together if call.append is not None])
    except BaseException as problem:  # noqa: BLE001 - it is the callers' to see
        problems = [problem] * len(together)
    for call, problem in zip(together, problems, strict=True):
        call.problem = problem


def _answer(done: list[_Call], told: Sequence[Callable[[], None]]) -> None:
    """Wake the callers, once for each event loop; what is to be told is told to the first."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for call in done:
        if call.loop is not None:
            by_loop.setdefault(call.loop, []).append(call)
    for loop, calls in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, calls, told)
        except RuntimeError:  # that loop is closed: nobody waits there any more
            continue
        told = ()
    for tell in told:  # nobody is left to be told there: then it is told here, rather than never
        tell()


def _resolve(calls: list[_Call], told: Sequence[Callable[[], None]]) -> None:
    try:
        for tell in told:
            tell()
    finally:  # a listener may raise anything, and the callers must be answered
        for call in calls:
            call.resolve()
