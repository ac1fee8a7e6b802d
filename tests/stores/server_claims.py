"""What stores on a server must do when connections break, servers go and come, and writers die: tests to inherit."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

import pytest

from amplifier_context_core.errors import SessionInUse, SessionLost, StoreError
from amplifier_context_core.stores import Extent, Store, open_store
from amplifier_context_core.stores.servers.leased_store import LeasedStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry

from .proxy import LATE, Moment, Proxy, proxied
from .servers import PrivateServer, with_parameters

MOMENTS: list[Moment] = ["before", "after", "middle", "late"]
MakeAt = Callable[[int], LeasedStore]  # a store at a server's port


async def settled(work: Awaitable[object]) -> bool:
    """Was it acknowledged?"""
    try:
        await work
    except StoreError:
        return False
    return True


class Cuts:
    """Connections that break at chosen moments: nothing acknowledged is missing, nothing comes twice."""

    @pytest.fixture
    def port(self) -> int:
        """Where the server listens."""
        raise NotImplementedError

    @pytest.fixture
    def at(self) -> MakeAt:
        """Makes stores of this test's own at a port: the server's, or the proxy's."""
        raise NotImplementedError

    @pytest.fixture
    def proxy(self, port: int) -> Generator[Proxy]:
        with proxied(port) as proxy:
            yield proxy

    @pytest.fixture
    async def store(self, at: MakeAt, proxy: Proxy) -> AsyncGenerator[LeasedStore]:
        """The store under test, behind the proxy."""
        store = at(proxy.port)
        yield store
        proxy.accept()
        await store.close()

    @pytest.fixture
    async def other(self, at: MakeAt, port: int) -> AsyncGenerator[LeasedStore]:
        """One that reads what is there, past the proxy."""
        store = at(port)
        yield store
        await store.close()

    @pytest.mark.parametrize("moment", MOMENTS)
    @pytest.mark.parametrize("count", [1, 7, 900])
    async def test_an_append_that_is_cut_off_is_made_once(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment, count: int
    ) -> None:
        await store.append("s", entries(1, 3))
        batch = [entry(4, "cut here"), *entries(5, 3 + count)]
        proxy.cut(b"cut here", moment)
        await store.append("s", batch)
        assert proxy.made == 1
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        assert_same(await other.read("s"), [*entries(1, 3), *batch])
        await store.append("s", entries(2_000, 2_001))
        assert_same(await other.read("s"), [*entries(1, 3), *batch, *entries(2_000, 2_001)])
        assert await other.extent("s") == Extent(5 + count, 2_001)
        assert await other.verify("s") == []  # type: ignore[attr-defined]

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_first_append_that_is_cut_off_is_made_once(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment
    ) -> None:
        proxy.cut(b"cut here", moment)
        await store.append("s", [entry(1, "cut here"), entry(2)])
        assert proxy.made == 1
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        assert_same(await other.read("s"), [entry(1, "cut here"), entry(2)])
        assert [info.session_id for info in await other.sessions()] == ["s"]

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_replacement_that_is_cut_off_is_made_once(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment
    ) -> None:
        await store.append("s", entries(1, 6))
        proxy.cut(b"cut here", moment)
        await store.replace("s", 2, [entry(7, "cut here"), *entries(4, 4)])
        assert proxy.made == 1
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        expected = [*entries(1, 2), entry(7, "cut here"), *entries(4, 4)]
        assert_same(await other.read("s"), expected)
        assert_same(await other.archived("s"), [*entries(3, 3), *entries(5, 6)])
        await store.append("s", entries(8, 8))
        assert_same(await other.read("s"), [*expected, *entries(8, 8)])

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_rewrite_and_a_checkpoint_that_are_cut_off_are_made(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment
    ) -> None:
        await store.append("s", entries(1, 6))
        proxy.cut(b"rewritten", moment)
        await store.rewrite("s", [entry(2, "rewritten")])
        proxy.cut(b"kept for later", moment)
        await store.save_checkpoint("s", 4, b"kept for later")
        assert proxy.made == 2
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        await store.append("s", entries(7, 7))
        assert_same(await other.read("s"), [*entries(1, 1), entry(2, "rewritten"), *entries(3, 7)])
        assert await other.load_checkpoint("s") == b"kept for later"

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_forking_and_deleting_go_through_cuts(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment
    ) -> None:
        await store.append("s", entries(1, 6))
        for number in range(3):
            proxy.cut(b"child", moment)
            await store.fork("s", f"child {number}")
            assert_same(await other.read(f"child {number}"), entries(1, 6))
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        await store.delete("child 1")
        assert sorted(info.session_id for info in await other.sessions()) == ["child 0", "child 2", "s"]
        for number in (0, 2):
            assert_same(await other.read(f"child {number}"), entries(1, 6))
            await store.append(f"child {number}", entries(7, 7))

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_an_append_whose_outcome_nobody_could_tell_is_not_there_afterwards(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment
    ) -> None:
        """The caller was told that it failed; when the server is back, it has not been made, whatever had happened."""
        await store.append("s", entries(1, 3))
        proxy.cut(b"cut here", moment, then_refuse=True)
        with pytest.raises(StoreError, match=str(proxy.port)):
            await store.append("s", [entry(4, "cut here"), entry(5)])
        with pytest.raises(StoreError):
            await store.read("s")
        proxy.accept()
        assert_same(await store.read("s"), entries(1, 3))
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        assert_same(await other.read("s"), entries(1, 3))
        assert await other.extent("s") == Extent(3, 3)
        await store.append("s", entries(4, 6))
        assert_same(await other.read("s"), entries(1, 6))
        assert await other.verify("s") == []  # type: ignore[attr-defined]

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_failed_first_append_leaves_no_session(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment
    ) -> None:
        await store.open("s")
        proxy.cut(b"cut here", moment, then_refuse=True)
        with pytest.raises(StoreError):
            await store.append("s", [entry(1, "cut here")])
        proxy.accept()
        assert await store.extent("s") == Extent()
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        assert await other.sessions() == []
        await store.append("s", entries(1, 1))
        assert_same(await other.read("s"), entries(1, 1))

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_replacement_whose_outcome_nobody_could_tell_can_be_made_again(
        self, store: Store, other: Store, proxy: Proxy, moment: Moment
    ) -> None:
        await store.append("s", entries(1, 6))
        new = [entry(7, "cut here"), *entries(4, 4)]
        proxy.cut(b"cut here", moment, then_refuse=True)
        with pytest.raises(StoreError):
            await store.replace("s", 2, new)
        proxy.accept()
        await store.replace("s", 2, new)
        await asyncio.sleep(LATE * 2 if moment == "late" else 0)
        assert_same(await other.read("s"), [*entries(1, 2), *new])
        assert_same(await other.archived("s"), [*entries(3, 3), *entries(5, 6)])

    async def test_a_store_works_again_when_connections_are_taken_again(
        self, store: Store, other: Store, proxy: Proxy
    ) -> None:
        await store.append("s", entries(1, 2))
        for number in range(3):
            proxy.refuse()
            began = time.monotonic()
            for _ in range(2):
                with pytest.raises(StoreError, match="again"):
                    await store.append("s", [entry(100 + number)])
            assert time.monotonic() - began < 60  # told, not hung
            proxy.accept()
            await store.append("s", [entry(3 + number)])
        assert_same(await other.read("s"), [*entries(1, 2), *(entry(3 + number) for number in range(3))])

    @pytest.mark.parametrize("seed", range(3))
    async def test_whatever_is_cut_what_was_acknowledged_is_there_once(
        self, store: Store, other: Store, proxy: Proxy, seed: int
    ) -> None:
        """Sixteen sessions, and cuts of every kind at any time; whoever was told of a failure tries the next one."""
        chance = random.Random(seed)
        for _ in range(40):
            mark = f"number {chance.randrange(1, 25)} of {chance.randrange(16)} ".encode()
            proxy.cut(mark, chance.choice(MOMENTS), then_refuse=chance.random() < 0.2)

        async def talk(number: int) -> list[int]:
            made: list[int] = []
            for seq in range(1, 25):
                if await settled(store.append(f"s{number}", [entry(seq, f"number {seq} of {number} ")])):
                    made.append(seq)
                else:
                    await asyncio.sleep(0.02)
                    proxy.accept()
            return made

        acknowledged = await asyncio.gather(*(talk(number) for number in range(16)))
        proxy.accept()
        await asyncio.sleep(LATE * 2)
        for number, made in enumerate(acknowledged):
            await store.read(f"s{number}")  # settles what is in doubt
            assert [one.seq for one in await other.read(f"s{number}")] == made
            assert await other.verify(f"s{number}") == []  # type: ignore[attr-defined]
        assert proxy.made > 20


class Outages:
    """Servers that stop, start again, or say nothing; on a server of the test's own."""

    @pytest.fixture
    def at(self) -> MakeAt:
        """Makes stores of this test's own at a port of `server`, a fixture of its module."""
        raise NotImplementedError

    @pytest.fixture
    def impatient(self) -> MakeAt:
        """The same, and each gives a silent server up after a second, and what it grants on top."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self, at: MakeAt, server: PrivateServer) -> AsyncGenerator[LeasedStore]:
        store = at(server.port)
        yield store
        await store.close()

    async def test_what_was_acknowledged_outlives_the_server_and_the_store_goes_on(
        self, store: Store, server: PrivateServer
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 2, b"two")
        before = await whole(store)
        server.stop()
        for ask in (store.append("s", entries(6, 6)), store.read("s"), store.sessions(), store.open("t")):
            with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}.*again"):
                await ask
        server.start()
        assert not (await whole(store)).differs(before)
        await store.append("s", entries(6, 7))
        assert_same(await store.read("s"), entries(1, 7))

    async def test_a_server_that_was_restarted_between_two_calls_is_not_noticed(
        self, store: Store, server: PrivateServer
    ) -> None:
        async def talk(number: int, first: int) -> None:
            for seq in range(first, first + 3):
                await store.append(f"s{number}", entries(seq, seq))

        for first in (1, 4):
            await asyncio.gather(*(talk(number, first) for number in range(16)))
            server.stop()
            server.start()
        for number in range(16):
            assert_same(await store.read(f"s{number}"), entries(1, 6))

    async def test_sixteen_writers_lose_nothing_when_the_server_is_stopped_among_them(
        self, store: Store, server: PrivateServer
    ) -> None:
        async def talk(number: int) -> list[int]:
            made: list[int] = []
            seq = 0
            while seq < 60 or not made:  # on a busy machine the server may take seconds to be back
                seq += 1
                if await settled(store.append(f"s{number}", entries(seq, seq))):
                    made.append(seq)
                else:
                    await asyncio.sleep(0.05)
            return made

        async def disturb() -> None:
            for _ in range(2):
                await asyncio.sleep(0.15)
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)

        *acknowledged, _ = await asyncio.gather(*(talk(number) for number in range(16)), disturb())
        for number, made in enumerate(acknowledged):
            assert [one.seq for one in await store.read(f"s{number}")] == made

    async def test_a_server_that_says_nothing_is_given_up(self, impatient: MakeAt, server: PrivateServer) -> None:
        store = impatient(server.port)
        try:
            await store.append("s", entries(1, 2))
            server.freeze()
            with pytest.raises(StoreError):
                await asyncio.wait_for(store.append("s", [entry(3, "never acknowledged")]), 60)
            server.thaw()
            assert_same(await store.read("s"), entries(1, 2))
            await store.append("s", entries(3, 3))
            assert_same(await store.read("s"), entries(1, 3))
        finally:
            server.thaw()
            await store.close()

    async def test_closing_a_store_whose_server_is_gone_ends(self, at: MakeAt, server: PrivateServer) -> None:
        store = at(server.port)
        await store.append("a", entries(1, 2))
        await store.append("b", entries(1, 2))
        server.stop()
        await store.close()
        server.start()
        assert_same(await store.read("a"), entries(1, 2))
        await store.close()


class Leases:
    """Claims that expire, are renewed, and are lost."""

    @pytest.fixture
    def make(self) -> Callable[[float], LeasedStore]:
        """Makes stores whose claims last so many seconds."""
        raise NotImplementedError

    @pytest.fixture
    async def pair(self, make: Callable[[float], LeasedStore]) -> AsyncGenerator[tuple[LeasedStore, LeasedStore]]:
        """One that does not renew its claims, as if it were stopped, and another, whose claims outlast the test."""
        stopped, other = make(0.4), make(60)

        async def never() -> None:
            return None

        stopped._renew = lambda line: never()
        yield stopped, other
        await stopped.close()
        await other.close()

    async def test_a_claim_is_renewed_for_as_long_as_its_writer_lives(
        self, make: Callable[[float], LeasedStore]
    ) -> None:
        ttl = 2.0  # renewed every third of it: on a busy machine that may come late
        first, second = make(ttl), make(ttl)
        await first.append("s", entries(1, 1))
        await first.open("never written to")
        for _ in range(6):
            await asyncio.sleep(ttl / 4)
            for name in ("s", "never written to"):
                with pytest.raises(SessionInUse):
                    await second.open(name)
        await first.close()
        await second.close()

    async def test_an_expired_claim_that_nobody_took_is_still_ours(self, pair: tuple[LeasedStore, LeasedStore]) -> None:
        stopped, other = pair
        await stopped.append("s", entries(1, 2))
        await stopped.open("empty")
        await asyncio.sleep(0.5)
        stopped._ttl = 60
        await stopped.append("s", entries(3, 3))
        await stopped.append("empty", entries(1, 1))
        with pytest.raises(SessionInUse):
            await other.open("s")
        assert_same(await other.read("s"), entries(1, 3))

    async def test_whoever_lost_a_claim_writes_nothing_until_it_is_opened_again(
        self, pair: tuple[LeasedStore, LeasedStore]
    ) -> None:
        stopped, other = pair
        await stopped.append("s", entries(1, 3))
        await asyncio.sleep(0.5)
        await other.append("s", entries(4, 4))
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: stopped.append("s", entries(9, 9)),
            lambda: stopped.replace("s", 1, entries(9, 9)),
            lambda: stopped.rewrite("s", [entry(1, "anew")]),
            lambda: stopped.save_checkpoint("s", 1, b"one"),
            lambda: stopped.delete("s"),
        ]
        for change in changes:
            with pytest.raises(SessionLost, match="taken over by pid"):
                await change()
        await other.release("s")
        for change in changes:  # free again, but what its writer knew of it is past
            with pytest.raises(SessionLost):
                await change()
        assert_same(await stopped.read("s"), entries(1, 4))
        assert await stopped.open("s") == Extent(4, 4)
        await stopped.append("s", entries(5, 5))
        assert_same(await other.read("s"), entries(1, 5))

    async def test_every_change_notices_by_itself_that_the_claim_is_lost(
        self, pair: tuple[LeasedStore, LeasedStore]
    ) -> None:
        stopped, other = pair
        changes: dict[str, Callable[[str], Awaitable[object]]] = {
            "append": lambda name: stopped.append(name, entries(9, 9)),
            "append many": lambda name: stopped.append(name, entries(9, 19)),
            "replace": lambda name: stopped.replace(name, 1, entries(9, 9)),
            "rewrite": lambda name: stopped.rewrite(name, [entry(1, "anew")]),
            "save_checkpoint": lambda name: stopped.save_checkpoint(name, 1, b"one"),
            "delete": lambda name: stopped.delete(name),
        }
        for name in changes:
            await stopped.append(name, entries(1, 3))
        await asyncio.sleep(0.5)
        for name, change in changes.items():
            await other.open(name)
            before = await whole(other, name)
            with pytest.raises(SessionLost):
                await change(name)
            assert not (await whole(other, name)).differs(before)
            await other.append(name, entries(4, 4))

    async def test_a_session_deleted_by_another_is_lost_not_begun_anew(
        self, pair: tuple[LeasedStore, LeasedStore]
    ) -> None:
        stopped, other = pair
        await stopped.append("s", entries(1, 3))
        await asyncio.sleep(0.5)
        await other.delete("s")
        with pytest.raises(SessionLost, match="gone from the server"):
            await stopped.append("s", entries(4, 4))
        assert await other.sessions() == []
        assert await stopped.open("s") == Extent()

    async def test_releasing_what_was_lost_leaves_it_to_who_has_it(self, pair: tuple[LeasedStore, LeasedStore]) -> None:
        stopped, other = pair
        await stopped.append("s", entries(1, 3))
        await asyncio.sleep(0.5)
        await other.open("s")
        await stopped.release("s")
        await stopped.close()
        await other.append("s", entries(4, 4))
        with pytest.raises(SessionInUse):
            await stopped.open("s")

    async def test_an_expired_claim_is_shown_as_nobodys(self, pair: tuple[LeasedStore, LeasedStore]) -> None:
        stopped, other = pair
        stopped._ttl = 60
        await stopped.append("s", entries(1, 3))
        assert [bool(info.holder) for info in await other.sessions()] == [True]
        stopped._ttl = 0.4
        await stopped.append("s", entries(4, 4))
        await asyncio.sleep(0.5)
        assert [bool(info.holder) for info in await other.sessions()] == [False]


class Writer:
    """A `writer_process`, and how it is talked to."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "writer_process.py"), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.pid = self._process.pid
        assert self.hear() == "ready"

    def hear(self) -> str:
        """The next line it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def say(self, line: str) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")

    def ask(self, line: str) -> str:
        """Tell it, and hear the answer."""
        self.say(line)
        return self.hear()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Processes:
    """Writers in processes of their own, which die at any moment, or stop and go on."""

    @pytest.fixture
    def address(self) -> str:
        """A store's address, without `lease_ttl`."""
        raise NotImplementedError

    @pytest.fixture
    def ttl(self) -> float:
        """Seconds a claim lasts."""
        return 0.5

    @pytest.fixture
    def writer(self, address: str, ttl: float) -> Generator[Writer]:
        writer = Writer(with_parameters(address, lease_ttl=ttl))
        yield writer
        writer.end()

    @pytest.fixture
    async def store(self, address: str, ttl: float) -> AsyncGenerator[LeasedStore]:
        store = open_store(with_parameters(address, lease_ttl=ttl))
        assert isinstance(store, LeasedStore)
        yield store
        await store.close()

    @pytest.mark.parametrize("ttl", [2.0])  # long enough that a busy machine renews in time
    async def test_a_session_has_one_writer_and_the_next_when_that_one_was_killed(
        self, store: LeasedStore, writer: Writer, ttl: float
    ) -> None:
        assert writer.ask("append s 1") == "done"
        with pytest.raises(SessionInUse, match=f"pid {writer.pid} on"):
            await store.append("s", entries(2, 2))
        await asyncio.sleep(ttl * 1.2)  # it renews its claim
        with pytest.raises(SessionInUse):
            await store.append("s", entries(2, 2))
        writer.signal(signal.SIGKILL)
        with pytest.raises(SessionInUse):
            await store.append("s", entries(2, 2))
        await asyncio.sleep(ttl * 1.2)
        await store.append("s", entries(2, 2))
        assert [one.seq for one in await store.read("s")] == [1, 2]

    async def test_a_writer_that_was_stopped_and_goes_on_has_lost_what_another_took(
        self, store: LeasedStore, writer: Writer
    ) -> None:
        assert writer.ask("append s 1") == "done"
        assert writer.ask("append kept 1") == "done"
        writer.signal(signal.SIGSTOP)
        await asyncio.sleep(0.6)
        await store.append("s", entries(2, 3))
        writer.say("append s 9")
        writer.signal(signal.SIGCONT)
        assert writer.hear() == "SessionLost"
        await store.append("s", entries(4, 4))
        assert writer.ask("append s 9") == "SessionLost"
        assert writer.ask("append kept 2") == "done"
        assert [one.seq for one in await store.read("s")] == [1, 2, 3, 4]

    async def test_a_writer_that_ends_well_leaves_its_sessions_free(self, store: LeasedStore, writer: Writer) -> None:
        assert writer.ask("append s 1") == "done"
        assert writer.ask("close") == "done"
        await store.append("s", entries(2, 2))
        assert [one.seq for one in await store.read("s")] == [1, 2]

    async def test_what_was_acknowledged_survives_kill_9(self, store: LeasedStore, writer: Writer) -> None:
        await self.killed(store, writer, 30)

    @pytest.mark.soak
    async def test_what_was_acknowledged_survives_very_many_kills(self, store: LeasedStore, writer: Writer) -> None:
        await self.killed(store, writer, 300)

    async def killed(self, store: LeasedStore, writer: Writer, kills: int) -> None:
        """A writer is killed at random moments; two sessions in turn, so that claims expire meanwhile."""
        chance = random.Random(kills)
        acknowledged = dict.fromkeys(("a", "b", "c", "d", "e"), 0)
        for number in range(kills):
            name = "abcde"[number % 5]
            pid = int(writer.ask(f"fork {name}").removeprefix("child "))
            # On a busy machine it may take long to come to write: more time for a session nobody wrote to yet.
            longest = 0.12 if acknowledged[name] else min(0.12 * 2 ** (number // 5), 10)
            killer = threading.Timer(chance.random() * longest, os.kill, (pid, signal.SIGKILL))
            killer.start()
            while (heard := writer.hear()) != "gone":
                acknowledged[name] = int(heard.removeprefix("ack "))
            killer.join()
            there = [one.seq for one in await store.read(name)]
            assert there == list(range(1, len(there) + 1))
            assert len(there) >= acknowledged[name]
        await asyncio.sleep(0.6)
        for name, last in acknowledged.items():
            assert last > 0, "it never came to write anything"
            length = (await store.open(name)).length
            assert length >= last
            await store.append(name, [entry(length + 1)])
            assert await store.verify(name) == []
