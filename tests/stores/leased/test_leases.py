"""Leases of stores on servers are renewed and lost; a seq is used once. Writers die, or fork. Rows are damaged."""

import asyncio
import logging
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
import redis

from amplifier_context_core.errors import SessionInUse, SessionLost, StoreError
from amplifier_context_core.stores import Extent, Repair
from amplifier_context_servers.leased.store import LeasedStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.places import MARKS, PARAMETERS
from tests.refusals import refused
from tests.stores.kills import survive
from tests.stores.servers import REDIS, ask, store_of, with_parameters

Pair = tuple[LeasedStore, LeasedStore]


@pytest.fixture
async def pair(url: str) -> AsyncGenerator[Pair]:
    """A store that does not renew its leases, as if it were stopped, and another, whose leases outlast the test."""
    stopped, other = (store_of(with_parameters(url, lease_ttl=ttl)) for ttl in (0.4, 60))
    stopped._renew = AsyncMock()
    yield stopped, other
    await stopped.close()
    await other.close()


async def test_a_lease_is_renewed_for_as_long_as_its_writer_lives(url: str) -> None:
    ttl = 2.0  # renewed every third of it: on a busy machine that may come late
    first, second = (store_of(with_parameters(url, lease_ttl=ttl)) for _ in range(2))
    await first.append("s", entries(1, 1))
    await first.open("never written to")
    await asyncio.sleep(1.5 * ttl)
    for name in ("s", "never written to"):
        await refused(second.open(name), error=SessionInUse)
    await first.close()
    await second.close()


async def test_an_expired_lease_is_held_until_it_is_taken(pair: Pair) -> None:
    stopped, other = pair
    await stopped.append("s", entries(1, 2))
    await stopped.open("empty")
    await asyncio.sleep(0.5)
    assert [info.holder for info in await other.sessions()] == [""]
    stopped._ttl = 60
    await stopped.append("s", entries(3, 3))
    await stopped.append("empty", entries(1, 1))
    assert all(info.holder for info in await other.sessions())
    await refused(other.open("s"), error=SessionInUse)
    assert_same(await other.read("s"), entries(1, 3))


async def test_a_writer_that_lost_its_lease_writes_nothing_until_it_opens_again(pair: Pair) -> None:
    stopped, other = pair
    for name in ("s", "released", "deleted"):
        await stopped.append(name, entries(1, 3))
    await asyncio.sleep(0.5)
    await other.append("s", entries(4, 4))
    await refused(stopped.append("s", entries(9, 9)), says="taken over by pid", error=SessionLost)
    await other.release("s")
    with pytest.raises(SessionLost):  # free again, but the writer knows only its former state
        await stopped.append("s", entries(9, 9))
    assert await stopped.open("s") == Extent(4, 4)
    await stopped.append("s", entries(5, 5))
    assert_same(await other.read("s"), entries(1, 5))
    await other.delete("deleted")
    for _ in range(2):
        with pytest.raises(SessionLost, match="gone from the store"):  # not created again
            await stopped.append("deleted", entries(4, 4))
    assert await stopped.open("deleted") == Extent()
    await other.open("released")
    await stopped.release("released")  # leaves it alone
    await other.append("released", entries(4, 4))


async def test_every_change_notices_by_itself_that_the_lease_is_lost(pair: Pair) -> None:
    stopped, other = pair
    changes: dict[str, Callable[[str], Awaitable[object]]] = {
        "append": lambda name: stopped.append(name, entries(9, 9)),
        "append many": lambda name: stopped.append(name, entries(9, 19)),
        "replace": lambda name: stopped.replace(name, 1, entries(9, 9)),
        "rewrite": lambda name: stopped.rewrite(name, [entry(1, "changed")]),
        "save_checkpoint": lambda name: stopped.save_checkpoint(name, 1, b"one"),
        "delete": lambda name: stopped.delete(name),
    }
    for name in changes:
        await stopped.append(name, entries(1, 3))
    await asyncio.sleep(0.5)
    for name, change in changes.items():
        await other.open(name)
        before = await whole(other, name)
        await refused(change(name), error=SessionLost)
        assert not (await whole(other, name)).differs(before)
        await other.append(name, entries(4, 4))


async def test_a_seq_in_use_is_refused_and_takes_no_append_along_that_is_sent_with_it(pair: Pair) -> None:
    _, store = pair
    names = [f"s{number}" for number in range(12)]
    for name in names:
        await store.append(name, entries(1, 1))
    made = await asyncio.gather(
        *(store.append(name, entries(1 + (name != "s7"), 2)) for name in names), return_exceptions=True
    )
    assert [name for name, one in zip(names, made, strict=True) if one is not None] == ["s7"]
    for change in (store.append("s7", entries(1, 1)), store.replace("s7", 1, entries(1, 1))):
        with pytest.raises(StoreError, match=r"holds .* seqs? already"):
            await change
    for name in names:
        assert_same(await store.read(name), entries(1, 1 if name == "s7" else 2))


def test_a_store_is_used_on_one_side_of_a_fork(url: str) -> None:
    store, closed = store_of(url), store_of(url)
    asyncio.run(store.append("s", entries(1, 1)))
    asyncio.run(closed.sessions())
    asyncio.run(closed.close())
    pid = os.fork()
    if pid == 0:  # the child ends here, whatever happens
        try:
            asyncio.run(asyncio.wait_for(store.sessions(), 10))
        except StoreError as problem:
            asyncio.run(store.close())  # of what is its parent's, a child closes nothing
            there = asyncio.run(asyncio.wait_for(closed.sessions(), 10))
            os._exit(not ("forked" in str(problem) and [one.session_id for one in there] == ["s"]))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    asyncio.run(store.append("s", entries(2, 2)))
    asyncio.run(store.close())


@pytest.mark.parametrize("kills", [12, pytest.param(1_000, marks=pytest.mark.soak)])
async def test_acknowledged_messages_survive_kill_9(url: str, kills: int) -> None:
    """The next writer waits until the lease of the one that was killed has expired."""
    seed = 1 if kills == 12 else random.randrange(2**32)
    url = with_parameters(url, lease_ttl=0.3)
    assert await survive(url, kills, seed=seed, longest=0.1) > kills


LEFT = [*entries(1, 1), *entries(3, 6)]
SECOND: dict[str, list[Any]] = {  # the second message of session `s`
    "postgresql": ['UPDATE entries SET message = \'{"role": "us\' WHERE seq = 2'],
    "redis": [
        ("e:1", garbage) for garbage in ('2 1 7 \n{"role": "us', "2 1 x \n{}", '2 1 7 {"a\n{"role": "user"}', None)
    ],
}
FOUND: dict[str, list[Any]] = {  # with what is found of it
    "postgresql": [
        ("DELETE FROM entries WHERE seq = 2", "5 of them are there"),
        ("UPDATE archive SET message = 'no JSON'", "m7 of the archive is damaged"),
    ],
    "redis": [
        (("length", 8), "the message at index 6 is gone"),
        (("a:0", "garbage"), "of the archive is damaged"),
    ],
}


def harm(damage: Any, request: pytest.FixtureRequest, backend: str) -> None:
    """Damage a row: by a statement, or by a field of the session's key, which None removes."""
    name = request.getfixturevalue(PARAMETERS[backend])
    if isinstance(damage, str):
        ask(damage, name)
        return
    key, (field, value) = f"{{{name}:s}}:session", damage
    with redis.Redis.from_url(REDIS) as client:
        assert client.hdel(key, field) if value is None else not client.hset(key, field, value)


def each(damages: dict[str, list[Any]]) -> pytest.MarkDecorator:
    cases = [pytest.param(name, one, marks=MARKS[name]) for name, listed in damages.items() for one in listed]
    return pytest.mark.parametrize(("backend", "damage"), cases, indirect=["backend"])


@each(SECOND)
async def test_a_damaged_message_is_left_out_and_reported_once_and_its_session_is_not_changed(
    store: LeasedStore, backend: str, damage: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    repairs: list[Repair] = []
    await store.append("s", entries(1, 6))
    await store.open("s", repairs.append)
    harm(damage, request, backend)
    assert await store.verify("s") != []
    for _ in range(2):
        assert_same(await store.read("s"), LEFT)
    assert [(repair.session_id, repair.lost) for repair in repairs] == [("s", 1)]
    for change in (store.append("s", entries(7, 8)), store.replace("s", 2, []), store.rewrite("s", entries(1, 1))):
        with pytest.raises(StoreError, match="damaged messages, so nothing was written"):
            await change
    await store.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert_same(await store.read("s"), LEFT)  # a reader leaves it where it is
    assert "1 damaged" in caplog.text
    assert "content" not in caplog.text
    assert await store.extent("s") == Extent(6, 6)
    await store.delete("s")
    assert await store.sessions() == []


@each(FOUND)
async def test_what_does_not_fit_together_is_found(
    store: LeasedStore, backend: str, damage: tuple[Any, str], request: pytest.FixtureRequest
) -> None:
    await store.append("s", entries(1, 7))
    await store.replace("s", 6, [])
    harm(damage[0], request, backend)
    assert damage[1] in (await store.verify("s"))[0]
