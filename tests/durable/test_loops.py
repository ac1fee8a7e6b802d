"""Event loops that block, stop and end: what others add goes on, and no message is lost, doubled or unreported."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Generator, Sequence

import pytest

from amplifier_context_core import ContextManager, Entry, MemoryStore, SessionLost, StoreError
from tests.authors import make_manager
from tests.durable.sessions import manager_on
from tests.messages import user


@contextlib.contextmanager
def a_loop() -> Generator[asyncio.AbstractEventLoop]:
    """A loop that its owner keeps, and runs now and then."""
    loop = asyncio.new_event_loop()
    with contextlib.closing(loop):
        yield loop


@pytest.mark.parametrize("count", [1, 16])
def test_no_caller_waits_for_a_loop_that_stopped_after_its_messages_were_acknowledged(count: int) -> None:
    manager = manager_on(MemoryStore(), on_conflict="fork")

    async def add() -> None:
        await asyncio.gather(*(manager.add_message(user(f"message {n}")) for n in range(count)))

    with a_loop() as still, a_loop() as other:
        still.run_until_complete(add())
        assert not asyncio.all_tasks(still)
        other.run_until_complete(asyncio.wait_for(manager.add_message(user("from elsewhere")), 10))
        other.run_until_complete(asyncio.wait_for(manager.clear(), 10))


class _Slow(MemoryStore):
    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        await asyncio.sleep(0.1)
        await super().append(session_id, entries)


async def test_closing_commits_appends_without_a_waiting_caller() -> None:
    manager = manager_on(store := _Slow(), on_conflict="fork")
    await manager.ready()
    adding = asyncio.create_task(manager.add_message(user("left")))
    await asyncio.sleep(0.02)
    adding.cancel()
    await manager.close()
    assert [entry.message["content"] for entry in await store.read("s")] == ["left"]


class _Moody(MemoryStore):
    """Takes its time, and loses its session now and then."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._busy: asyncio.AbstractEventLoop | None = None
        self._new: set[str] = set()  # forks that no caller knows of yet

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        await super().fork(session_id, new_id, length)
        self._new.add(new_id)

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        assert self._busy is None or self._busy.is_closed(), "two appends at the same time"
        self._busy = asyncio.get_running_loop()
        try:
            await self._moment(0.5)
            if self._chance.random() < 0.03 and session_id not in self._new:
                raise SessionLost(session_id, "another writer")
            await super().append(session_id, entries)
            self._new.discard(session_id)
            await self._moment(0.3)
        finally:
            self._busy = None

    async def _moment(self, share: float) -> None:
        if self._chance.random() < share:
            await asyncio.sleep(self._chance.random() * 0.002)


class _Thread(threading.Thread):
    """Callers on a loop of their own, which may end at any moment; what was acknowledged to each, in order."""

    def __init__(self, manager: ContextManager, number: int, chance: random.Random, *, ends: bool) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[list[str]] = []
        self._manager, self._number, self._chance, self._ends = manager, number, chance, ends

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        callers = [asyncio.create_task(self._call(number)) for number in range(self._chance.choice((1, 3, 9)))]
        if self._ends:
            await asyncio.sleep(self._chance.random() * 0.01)
        else:
            await asyncio.gather(*callers)

    async def _call(self, number: int) -> None:
        mine: list[str] = []
        self.acknowledged.append(mine)
        for step in range(self._chance.randrange(1, 12)):
            text = f"{self._number}.{number}.{step}"
            adding = asyncio.ensure_future(self._manager.add_message(user(text)))
            if self._chance.random() < 0.1:
                for _ in range(self._chance.randrange(6)):
                    await asyncio.sleep(0)
                adding.cancel()
                await asyncio.wait([adding])
            else:
                try:
                    async with asyncio.timeout(30):
                        await adding
                except StoreError:  # cut off with its loop
                    continue
                mine.append(text)


def hold(seed: int) -> None:
    chance = random.Random(seed)
    store = _Moody(chance)
    manager = manager_on(store, on_conflict="fork")
    callers = [
        _Thread(manager, number, random.Random(seed * 100 + number), ends=number > 0 and chance.random() < 0.5)
        for number in range(chance.choice((1, 2, 4)))
    ]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
    assert not any(thread.is_alive() for thread in callers), "a thread waits for ever"
    asyncio.run(asyncio.wait_for(manager.add_message(user("last")), 30))
    read = [message["content"] for message in asyncio.run(manager.get_messages())]
    held = [entry.message["content"] for entry in asyncio.run(store.read(manager.history.session_id))]
    assert read == held
    assert len(set(read)) == len(read)
    places = {text: place for place, text in enumerate(read)}
    for caller in callers:
        for mine in caller.acknowledged:
            assert [places[text] for text in mine] == sorted(places[text] for text in mine)


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(1_000, 9_000), marks=pytest.mark.soak)])
def test_loops_that_end_at_any_moment_lose_double_and_disorder_nothing(seeds: range) -> None:
    for seed in seeds:
        hold(seed)


class _CutOff(MemoryStore):
    """Its first append waits for others to begin, its second one never comes back to the loop that asked for it."""

    def __init__(self, *, stored: bool) -> None:
        super().__init__()
        self.appends = 0
        self.begun, self.joined, self.stuck = threading.Event(), threading.Event(), threading.Event()
        self._stored = stored

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        self.appends += 1
        if self.appends == 1:
            self.begun.set()
            await asyncio.to_thread(self.joined.wait, 20)
        second = self.appends == 2
        if self._stored or not second:
            await super().append(session_id, entries)
        if second:
            self.stuck.set()
            await asyncio.sleep(60)


@pytest.mark.parametrize("stored", [False, True], ids=["before it is stored", "after"])
def test_a_loop_that_ends_while_it_writes_takes_no_message_of_another_loop_with_it(stored: bool) -> None:
    store = _CutOff(stored=stored)
    manager = make_manager(store=store)

    async def end() -> None:
        first = asyncio.create_task(manager.add_message(user("One.")))
        await asyncio.to_thread(store.begun.wait, 20)
        store.joined.set()
        await first
        interrupted = asyncio.create_task(manager.add_message(user("Cut off.")))
        await asyncio.to_thread(store.stuck.wait, 20)
        await asyncio.sleep(0.05)  # the other loop waits by now
        assert not interrupted.done()

    async def go_on() -> None:
        await asyncio.to_thread(store.stuck.wait, 20)
        async with asyncio.timeout(20):
            await manager.add_message({"role": "assistant", "content": "Two."})
        await manager.add_message(user("Three."))

    ending = threading.Thread(target=asyncio.run, args=(end(),))
    ending.start()
    asyncio.run(go_on())
    ending.join(20)
    read = [message["content"] for message in asyncio.run(manager.get_messages())]
    assert read == ["One.", *(["Cut off."] if stored else []), "Two.", "Three."]
    assert [entry.message["content"] for entry in asyncio.run(store.read(manager.session_id))] == read


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "stops for a while"])
def test_a_message_whose_loop_ends_before_its_turn_is_not_added(ends: bool) -> None:
    store = _CutOff(stored=True)
    manager = manager_on(store, on_conflict="fork")

    async def begin() -> asyncio.Task[None]:
        adding = asyncio.create_task(manager.add_message(user("Later.")))
        await asyncio.sleep(0.05)
        assert not adding.done()
        return adding

    async def add() -> asyncio.Task[None]:
        first = asyncio.create_task(manager.add_message(user("One.")))
        await asyncio.to_thread(store.begun.wait, 20)
        later = await asyncio.to_thread(asyncio.run if ends else other.run_until_complete, begin())
        store.joined.set()
        await asyncio.wait_for(first, 20)
        store.appends = 2
        await asyncio.wait_for(manager.add_message(user("Two.")), 10)
        return later

    with a_loop() as other:
        later = asyncio.run(add())
        if not ends:
            other.run_until_complete(later)
    read = [message["content"] for message in asyncio.run(manager.get_messages())]
    assert read == ["One.", "Two.", *([] if ends else ["Later."])]
