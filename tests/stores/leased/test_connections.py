"""Connections to servers break at chosen moments, and servers stop: nothing acknowledged is missing, nothing is applied
twice.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from amplifier_context_core.errors import OutcomeUnknown, StoreError
from amplifier_context_core.stores import Extent, MemoryStore, Store
from amplifier_context_servers.leased.store import LeasedStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.places import PARAMETERS
from tests.refusals import refused
from tests.stores.proxy import LATE, Moment, Proxy, proxied
from tests.stores.servers import PRIVATE, PrivateServer, own_name, store_of, with_parameters

MOMENTS: list[Moment] = ["before", "after", "middle", "late"]
SILENCE = {"postgresql": "statement_timeout", "redis": "socket_timeout"}  # after which the client gives up
TIMEOUTS = {
    "postgresql": "statement_timeout=3&connect_timeout=2",
    "redis": "socket_timeout=3&socket_connect_timeout=2",
}
Change = Callable[[Store], Awaitable[object]]
MARK = "cut here"  # the request that has it is cut off
SESSIONS = ("s", "new", MARK)
CHANGES: dict[str, Change] = {
    "append": lambda store: store.append("s", [entry(7, MARK)]),
    "append many": lambda store: store.append("s", [entry(7, MARK), *entries(8, 907)]),
    "first append": lambda store: store.append("new", [entry(1, MARK), entry(2)]),
    "replace": lambda store: store.replace("s", 2, [entry(7, MARK), *entries(4, 4)]),
    "rewrite": lambda store: store.rewrite("s", [entry(2, MARK)]),
    "checkpoint": lambda store: store.save_checkpoint("s", 4, MARK.encode()),
    "fork": lambda store: store.fork("s", MARK),
}


@pytest.fixture
async def proxy(url: str) -> AsyncGenerator[Proxy]:
    async with proxied(urlsplit(url).port or 0) as proxy:
        yield proxy


@pytest.fixture
async def store(url: str, proxy: Proxy) -> AsyncGenerator[LeasedStore]:
    """The store under test, behind the proxy."""
    store = store_of(url.replace(f":{urlsplit(url).port}", f":{proxy.port}", 1))
    yield store
    proxy.accept()
    await store.close()


@pytest.fixture
async def other(url: str) -> AsyncGenerator[LeasedStore]:
    """A store that reads past the proxy."""
    store = store_of(url)
    yield store
    await store.close()


async def until_late(moment: Moment = "late") -> None:
    """Wait until the server has got what comes late."""
    await asyncio.sleep(LATE * 2 if moment == "late" else 0)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_that_is_cut_off_is_applied_once(
    store: Store, other: LeasedStore, proxy: Proxy, change: Change, moment: Moment
) -> None:
    model = MemoryStore()
    for one in (store, model):
        await one.append("s", entries(1, 6))
    proxy.cut(MARK.encode(), moment)
    await change(store)
    assert proxy.made == 1
    await until_late(moment)
    await change(model)
    for seq in (2_000, 2_001):
        for name in SESSIONS:
            problem = (await whole(other, name)).differs(await whole(model, name))
            assert not problem, f"{name}: {problem}"
            assert await other.verify(name) == []
            for one in (store, model):
                await one.append(name, entries(seq, seq))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("begun", [0, 3])
async def test_an_append_whose_outcome_is_unknown_was_made_or_is_refused_from_the_next_call_on(
    store: Store, other: LeasedStore, proxy: Proxy, begun: int, moment: Moment
) -> None:
    await store.open("s")
    await store.append("s", entries(1, begun))
    new = [entry(begun + 1, MARK), entry(begun + 2)]
    proxy.cut(MARK.encode(), moment, then_refuse=True)
    await refused(store.append("s", new), says=str(proxy.port), error=OutcomeUnknown)
    await refused(store.read("s"))
    proxy.accept()
    found = await store.read("s")
    assert_same(found, [*entries(1, begun), *(new if moment == "after" else found[begun:])])
    await until_late(moment)
    assert_same(await other.read("s"), found)
    assert [info.length for info in await other.sessions()] == [len(found)] * bool(found)
    assert await store.extent("s") == await other.extent("s") == Extent(len(found), len(found))
    await store.append("s", entries(len(found) + 1, 9))
    assert_same(await other.read("s"), [*found, *entries(len(found) + 1, 9)])


@pytest.mark.parametrize("moment", MOMENTS[:2])
async def test_a_replacement_or_a_deletion_whose_outcome_was_unknown_can_be_repeated(
    store: Store, other: Store, proxy: Proxy, moment: Moment
) -> None:
    await store.append("s", entries(1, 6))
    new = [entry(7, MARK), *entries(4, 4)]
    proxy.cut(MARK.encode(), moment, then_refuse=True)
    await refused(store.replace("s", 2, new), error=OutcomeUnknown)
    proxy.accept()
    await store.replace("s", 2, new)
    assert_same(await other.read("s"), [*entries(1, 2), *new])
    assert_same(await other.archived("s"), [*entries(3, 3), *entries(5, 6)])
    for mark in (b"DELETE FROM", b"EVAL"):  # of PostgreSQL, and of Redis
        proxy.cut(mark, moment, then_refuse=True)
    await refused(store.delete("s"), says="delete it again", error=OutcomeUnknown)
    proxy.accept()
    await store.delete("s")
    assert await other.sessions() == []
    await store.append("s", entries(1, 1))
    assert_same(await other.read("s"), entries(1, 1))


@pytest.fixture(scope="module")
def server(backend: str) -> Generator[PrivateServer]:
    with closing(PRIVATE[backend]()) as started:
        yield started


@pytest.fixture
async def there(backend: str, server: PrivateServer) -> AsyncGenerator[LeasedStore]:
    store = store_of(f"{server.url}?{PARAMETERS[backend]}={own_name()}&{TIMEOUTS[backend]}")
    yield store
    await store.close()


async def test_acknowledged_messages_outlive_the_server_and_the_store_goes_on(
    there: LeasedStore, server: PrivateServer
) -> None:
    await there.append("s", entries(1, 5))
    await there.save_checkpoint("s", 2, b"two")
    before = await whole(there)
    server.stop()
    server.start()
    await there.append("t", entries(1, 2))  # a restart between two calls is not noticed
    server.stop()
    for ask in (there.append("s", entries(6, 6)), there.read("s"), there.sessions(), there.open("t")):
        with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}.*again"):
            await ask
    server.start()
    assert not (await whole(there)).differs(before)
    await there.append("s", entries(6, 7))
    server.stop()
    await there.close()  # it ends
    server.start()
    assert_same(await there.read("s"), entries(1, 7))


async def test_a_silent_server_is_disconnected(backend: str, url: str, proxy: Proxy) -> None:
    at = url.replace(f":{urlsplit(url).port}", f":{proxy.port}", 1)
    store = store_of(with_parameters(at, **{SILENCE[backend]: 1}))
    await store.append("s", entries(1, 2))
    for _ in range(3):
        proxy.cut(MARK.encode(), "silence")
    await refused(asyncio.wait_for(store.append("s", [entry(3, MARK)]), 60))
    assert_same(await store.read("s"), entries(1, 2))
    await store.append("s", entries(4, 4))
    await store.close()
