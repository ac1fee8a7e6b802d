"""Law of hosts: whatever one does and whenever it stops, each request is valid, nothing is doubled, nothing hangs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.laws.hostile_host import on_a_loop_per_call, on_a_loop_per_thread, on_one_loop

pytestmark = [
    pytest.mark.kernel,
    # The kernel's `emit` goes on to its next handler in a thread of its own after the loop of its caller was closed.
    pytest.mark.filterwarnings("ignore:coroutine '(_OwnedHookTask.run|HostileHost._handle)' was never awaited"),
]

SESSIONS = 500  # of each host in a soak

Host = Callable[[int], None]


hosts = pytest.mark.parametrize("host", [on_one_loop, on_a_loop_per_call, on_a_loop_per_thread])


@hosts
@pytest.mark.parametrize("seed", range(6))
def test_a_host_that_cancels_reenters_and_changes_everything_breaks_no_request(host: Host, seed: int) -> None:
    host(seed)


@pytest.mark.soak
@hosts
@pytest.mark.parametrize("first", range(6, SESSIONS + 6, 50))
def test_nor_do_hundreds_of_them(host: Host, first: int) -> None:
    for seed in range(first, first + 50):
        try:
            host(seed)
        except AssertionError as problem:
            raise AssertionError(f"session {seed}: {problem}") from problem
