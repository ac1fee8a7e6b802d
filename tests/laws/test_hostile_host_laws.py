"""Law of hosts: whatever one does and whenever it stops, each request is valid, nothing is doubled, nothing hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from tests.laws.hostile_host import HostileHost

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of warnings of full budgets are of no interest here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(6))
def test_a_host_that_cancels_reenters_and_changes_everything_breaks_no_request(seed: int) -> None:
    asyncio.run(HostileHost(seed).run())


@pytest.mark.soak
@pytest.mark.parametrize("first", range(6, 506, 50))
def test_nor_do_hundreds_of_them(first: int) -> None:
    for seed in range(first, first + 50):
        try:
            asyncio.run(HostileHost(seed).run())
        except AssertionError as problem:
            raise AssertionError(f"session {seed}: {problem}") from problem
