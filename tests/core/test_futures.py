"""A future is resolved whatever exception the work ended with."""

from __future__ import annotations

import asyncio
import builtins

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.futures import in_thread, resolve


class Sub(StopIteration):
    """A subclass, which a future accepts and returns as a result."""


class Broken(Exception):
    """An exception with an odd constructor."""

    def __init__(self, one: int, *, two: int) -> None:
        super().__init__(one, two)


def _made(kind: type[BaseException]) -> BaseException | None:
    try:
        return kind()
    except TypeError:  # those of Unicode and of groups want arguments
        return None


BUILTIN = [value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, BaseException)]
PROBLEMS = [made for kind in BUILTIN if (made := _made(kind)) is not None]
PROBLEMS += [Sub("value"), Broken(1, two=2), asyncio.InvalidStateError(), ExceptionGroup("both", [StopIteration()])]


async def test_a_future_takes_any_exception() -> None:
    for problem in PROBLEMS:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        resolve(future, problem=problem)
        raised = future.exception()
        if isinstance(problem, StopIteration):
            assert isinstance(raised, StoreError)
            assert raised.__cause__ is problem
        else:
            assert raised is problem


async def test_a_future_that_is_done_or_cancelled_is_left_as_it_is() -> None:
    loop = asyncio.get_running_loop()
    done, cancelled = loop.create_future(), loop.create_future()
    resolve(done, "first")
    cancelled.cancel()
    for future in (done, cancelled):
        resolve(future, "second")
        resolve(future, problem=ValueError())
    assert done.result() == "first"
    assert cancelled.cancelled()


@pytest.mark.parametrize("kind", [StopIteration, Sub])
async def test_work_in_a_thread_that_ends_with_stop_iteration_ends_for_its_caller(kind: type[StopIteration]) -> None:
    def work(value: int, *, more: int) -> int:
        if value:
            raise kind(value)
        return more

    assert await in_thread(work, 0, more=3) == 3
    with pytest.raises(StoreError, match=kind.__name__):
        await asyncio.wait_for(in_thread(work, 1, more=0), 5)
