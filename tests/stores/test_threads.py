"""Threads of stores answer every call, whatever the work raised; so do changes that are sent together."""

import asyncio
import random
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.sqlite import worker as sqlite_worker
from amplifier_context_core.stores.sqlite.engine import SqliteEngine
from amplifier_context_servers.leased.batching import MicroBatcher
from amplifier_context_servers.leased.loop_thread import LoopThread
from amplifier_context_servers.leased.protocol import new_revision

DEADLINE = 5.0  # seconds
PROBLEMS = [StopIteration(1), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]


async def ended(call: Awaitable[object]) -> BaseException | None:
    """Return what a call raised, None if it returned; fail if it did neither in time."""
    task = asyncio.ensure_future(call)
    done, _ = await asyncio.wait((task,), timeout=DEADLINE)
    assert done, "the call hangs"
    return task.exception()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
async def test_a_sqlite_job_that_raises_anything_is_answered(problem: BaseException, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise problem

    def begun(*task: Any) -> asyncio.Future[object]:
        """Queue a task; no coroutine waits for it, which `GeneratorExit` would close."""
        future = asyncio.get_running_loop().create_future()
        engine._worker.submit(sqlite_worker.Task(*task, future=future))
        return future

    engine = SqliteEngine(tmp_path / "sessions.db", "fsync", 1.0)
    expected = StoreError if isinstance(problem, StopIteration) else type(problem)
    for task, call in (((partial(engine._alone, fail),), engine.run), ((fail, engine._commit), engine.write)):
        assert type(await ended(begun(*task))) is expected
        assert await asyncio.wait_for(call(lambda *_: "goes on"), DEADLINE) == "goes on"
    await engine.close()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
async def test_whatever_one_coroutine_of_a_loop_thread_raises_the_others_are_answered(problem: BaseException) -> None:
    loop_thread = LoopThread("test")

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise problem

    async def call() -> None:
        with suppress(BaseException):  # `SystemExit` would end the event loop of the test
            await loop_thread.run(fail())

    waiting = asyncio.create_task(loop_thread.run(asyncio.sleep(0.05, "answered")))
    await asyncio.wait_for(call(), DEADLINE)
    for answer in (waiting, loop_thread.run(asyncio.sleep(0, "answered"))):
        assert await asyncio.wait_for(answer, DEADLINE) == "answered"
    loop_thread.stop()


@pytest.mark.parametrize("problem", [asyncio.CancelledError(), GeneratorExit(), None])
async def test_no_item_of_a_batch_waits_for_ever_whatever_was_raised_or_not_answered(
    problem: BaseException | None,
) -> None:
    async def fail(items: Sequence[int]) -> list[int | Exception]:
        await asyncio.sleep(0.001)
        if min(items) > 0 and problem:
            raise problem
        return list(items)[:1]

    batches = MicroBatcher(fail, max_in_flight=1)
    tasks = [asyncio.create_task(batches.add(number)) for number in range(5)]
    _, waiting = await asyncio.wait(tasks, timeout=DEADLINE)
    assert not waiting
    assert await tasks[0] == 0
    if problem is None:  # an error for each that got no answer
        assert [type(task.exception()) for task in tasks[1:]] == [type(None), *[StoreError] * 3]
    else:
        assert all(task.cancelled() or task.exception() is problem for task in tasks[1:])


def test_two_processes_that_seed_random_alike_make_different_revisions() -> None:
    """By a revision, a writer finds that another one changed the session."""
    state = random.getstate()
    try:
        random.seed(0)
        first = new_revision()
        random.seed(0)
        assert new_revision() != first
        assert random.random() == 0.8444218515250481, "nor is the host's generator used"
    finally:
        random.setstate(state)
