"""The threads of the stores answer every call, whatever the work raised and whatever the system refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.sqlite import worker as sqlite_worker
from amplifier_context_core.stores.sqlite.engine import SqliteEngine
from amplifier_context_servers.leased.loop_thread import LoopThread

DEADLINE = 5.0  # seconds
PROBLEMS = [StopIteration(1), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError(), ValueError("no")]


def raising(problem: BaseException) -> Callable[..., None]:
    def work(*_: object) -> None:
        raise problem

    return work


async def ended(call: asyncio.Future[object]) -> BaseException | None:
    """Return what a call raised, None if it returned; fail if it did neither in time."""
    done, _ = await asyncio.wait((call,), timeout=DEADLINE)
    assert done, "the call hangs"
    return call.exception()


def of(problem: BaseException) -> type[BaseException]:
    return StoreError if isinstance(problem, StopIteration) else type(problem)


async def test_a_thread_that_cannot_be_started_is_an_error_and_the_next_call_starts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    database = SqliteEngine(tmp_path / "sessions.db", "fsync", 1.0)
    server = LoopThread("test")
    calls: list[Callable[[], asyncio.Future[object]]] = [
        lambda: asyncio.ensure_future(database.run(lambda: "done")),
        lambda: asyncio.ensure_future(server.run(asyncio.sleep(0, "done"))),
    ]
    for call in calls:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            for _ in range(2):
                assert isinstance(await ended(call()), StoreError)
        assert await asyncio.wait_for(call(), DEADLINE) == "done"
    server.stop()
    await database.close()


def begun(worker: sqlite_worker.SqliteWorker, *task: Any) -> asyncio.Future[object]:
    """Queue a task, and return what its caller waits for: no coroutine, which `GeneratorExit` would close."""
    future = asyncio.get_running_loop().create_future()
    worker.submit(sqlite_worker.Task(*task, future=future))
    return future


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
async def test_a_sqlite_job_that_raises_anything_is_answered(problem: BaseException, tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "sessions.db", "fsync", 1.0)
    work = raising(problem)
    for task, call in (((partial(engine._alone, work),), engine.run), ((work, engine._commit), engine.write)):
        assert type(await ended(begun(engine._worker, *task))) is of(problem)  # pyright: ignore[reportPrivateUsage]
        assert await asyncio.wait_for(call(lambda *_: "goes on"), DEADLINE) == "goes on"
    await engine.close()
