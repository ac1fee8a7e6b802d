"""How a history is written: in batches, unbroken by cancellation, and never apart from what the store holds.

The store waits, fails or loses its claim when a test says so. What it keeps is kept as in memory.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Entry, InvalidMessage, SessionInUse, SessionLost, StoreError
from amplifier_context_core.errors import OutcomeUnknown
from amplifier_context_core.items import ContextItem
from amplifier_context_core.stores import Extent, MemoryStore, OnRepair, Store
from amplifier_context_persistent import PersistentConfig
from tests.authors import make_manager
from tests.durable.sessions import manager_on
from tests.managers import ask, feed
from tests.messages import rounds, says, user
from tests.refusals import refused


class FaultyStore(MemoryStore):
    """Attributes decide what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.open_gate = asyncio.Event()  # changes wait until it is set
        self.open_gate.set()
        self.failing = False  # changes
        self.failing_checkpoints = False
        self.lost_to: dict[str, str] = {}  # changes of these sessions fail: another writer has them
        self.in_use: dict[str, str] = {}  # sessions that cannot be opened
        self.made: bool | None = None  # whether changes are made whose caller gets no answer; None for answers
        self.batches: list[int] = []  # sizes of the appends that came through
        self.starts: list[int] = []  # indices from which on it was read
        self.entered = 0  # changes

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        if session_id in self.in_use:
            raise SessionInUse(session_id, self.in_use[session_id])
        return await super().open(session_id, on_repair)

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        async with self._change(session_id):
            await super().append(session_id, entries)
            self.batches.append(len(entries))

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        async with self._change(session_id):
            await super().replace(session_id, keep, entries)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        self.starts.append(start)
        return await super().read(session_id, start, stop)

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        if self.failing_checkpoints:
            raise StoreError("the disk is full; make room")
        await super().save_checkpoint(session_id, covered, data)

    @contextlib.asynccontextmanager
    async def _change(self, session_id: str) -> AsyncGenerator[None]:
        self.entered += 1
        await self.open_gate.wait()
        if self.failing:
            raise StoreError("the disk is full; make room")
        if session_id in self.lost_to:
            raise SessionLost(session_id, self.lost_to[session_id])
        if self.made is False:
            raise OutcomeUnknown("no answer came")
        yield
        if self.made:
            raise OutcomeUnknown("no answer came")


async def contents(manager: ContextManager) -> list[Any]:
    return [message["content"] for message in await manager.get_messages()]


async def stored(store: Store, session_id: str = "s") -> list[Any]:
    return [entry.message["content"] for entry in await store.read(session_id)]


async def until(store: FaultyStore, entered: int) -> None:
    """Wait until so many changes have reached the store."""
    while store.entered < entered:
        await asyncio.sleep(0)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


async def test_what_comes_in_while_the_store_is_busy_is_written_together_and_in_order(store: FaultyStore) -> None:
    manager = manager_on(store)
    await manager.ready()
    store.open_gate.clear()
    adding = [asyncio.create_task(manager.add_message(user("message 0")))]
    await until(store, 1)
    adding += [asyncio.create_task(manager.add_message(user(f"message {n}"))) for n in range(1, 17)]
    for _ in range(50):
        await asyncio.sleep(0)
    store.open_gate.set()
    await asyncio.gather(*adding)
    assert store.batches == [1, 16]
    assert await contents(manager) == await stored(store) == [f"message {n}" for n in range(17)]


async def test_a_list_of_items_that_the_store_refused_comes_with_the_answer_that_is_added_again(
    store: FaultyStore,
) -> None:
    manager = await feed(manager_on(store), [user("go")])
    await manager.pool.add(ContextItem("a report", "the report", "r1"))
    await ask(manager)
    store.failing = True
    await refused(manager.add_message(says("I read it.")))
    store.failing = False
    await manager.add_message(says("I read it."))
    assert [message["role"] for message in await manager.get_messages()] == ["user", "system", "assistant"]


async def test_of_a_batch_only_what_cannot_be_read_is_refused(store: FaultyStore) -> None:
    manager = manager_on(store)
    await manager.ready()
    store.open_gate.clear()
    answer = {"role": "assistant", "content": "b"}
    adding = [asyncio.create_task(manager.add_message(m)) for m in (user("a"), answer, {"role": "x"}, user("c"))]
    await until(store, 1)
    store.open_gate.set()
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), type(None), InvalidMessage, type(None)]
    assert await contents(manager) == await stored(store) == ["a", "b", "c"]
    assert [entry.turn_id for entry in manager.snapshot()] == ["u1", "a1", "u2"]


async def test_what_the_store_refused_is_not_part_of_the_history_and_later_messages_are(store: FaultyStore) -> None:
    manager = manager_on(store)
    await manager.add_message(user("before"))
    store.failing = True
    for change in (manager.add_message(user("refused")), manager.set_messages([user("other")]), manager.clear()):
        with pytest.raises(StoreError, match="make room"):
            await change
    await refused(manager.interrupt())
    store.failing = False
    await manager.add_message(user("after"))
    assert await contents(manager) == await stored(store) == ["before", "after"]
    assert len({entry.mark for entry in manager.snapshot()}) == 2


@pytest.mark.parametrize("edits", [False, True], ids=["an add", "an edit"])
async def test_a_change_that_is_cancelled_while_it_is_written_is_made_all_the_same(
    store: FaultyStore, edits: bool
) -> None:
    manager = await feed(manager_on(store), [user("a"), user("b")])
    store.open_gate.clear()
    change = manager.set_messages([user("a"), user("other")]) if edits else manager.add_message(user("c"))
    changing = asyncio.create_task(change)
    await until(store, 3)
    changing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await changing
    store.open_gate.set()
    await manager.add_message(user("next"))
    assert await contents(manager) == await stored(store) == ["a", *(["other"] if edits else ["b", "c"]), "next"]


async def test_a_checkpoint_that_cannot_be_saved_costs_only_speed(store: FaultyStore) -> None:
    store.failing_checkpoints = True
    manager = manager_on(store, max_tokens=4_000)
    await feed(manager, [user("go"), *rounds(60)])
    await ask(manager)
    assert manager.compactor.compactions
    store.failing_checkpoints = False
    resumed = manager_on(store, max_tokens=4_000)
    await ask(resumed)
    assert await resumed.get_messages() == await manager.get_messages()


@pytest.mark.parametrize("name", ["s", "会" * 66], ids=["short", "of the greatest length"])
async def test_a_session_in_use_is_gone_on_with_in_a_fork_when_config_says_so(store: FaultyStore, name: str) -> None:
    await (await feed(manager_on(store, name), [user("a"), user("b")])).pin("m1")
    original = await store.load_checkpoint(name)
    store.in_use[name] = "pid 7 on elsewhere"
    manager = manager_on(store, name, on_conflict="fork")
    await manager.add_message(user("c"))
    assert await contents(manager) == ["a", "b", "c"]
    assert await stored(store, name) == ["a", "b"]
    assert await stored(store, manager.history.session_id) == ["a", "b", "c"]
    assert any("goes on as" in text and "pid 7" in text for text in manager.warnings.texts)
    await manager.pin("m3")
    assert await store.load_checkpoint(name) == original
    assert await store.load_checkpoint(manager.history.session_id) not in (None, original)


@pytest.mark.parametrize(
    ("conflict", "theirs"), [("error", ["a", "b"]), ("fork", ["a", "edited", "c"]), ("fork", ["a", "b", "theirs"])]
)
async def test_a_lost_session_is_an_error_or_continues_in_a_fork_if_it_still_begins_with_what_memory_held(
    store: FaultyStore, conflict: str, theirs: list[str]
) -> None:
    manager = await feed(manager_on(store, on_conflict=conflict), [user("a"), user("b")])
    await manager_on(store).set_messages([*map(user, theirs)])
    store.lost_to["s"] = "pid 8 on elsewhere"
    forks = "theirs" in theirs
    with contextlib.nullcontext() if forks else pytest.raises(SessionLost, match="pid 8 on elsewhere"):
        await manager.add_message(user("c"))
    assert await contents(manager) == ["a", "b", *(["c"] if forks else [])]
    assert await stored(store) == theirs
    assert len(await store.sessions()) == (2 if forks else 1)
    if forks:
        assert await stored(store, manager.history.session_id) == ["a", "b", "c"]


async def test_no_setting_of_a_store_is_written_into_a_checkpoint(store: FaultyStore) -> None:
    config = {"token_counter": "heuristic", "max_tokens": 4_000, "store": "postgresql://app:S3kr3tPW@db/agents"}
    manager = make_manager(PersistentConfig.model_validate(config), session_id="s", store=store)
    await ask(await feed(manager, [user("go"), *rounds(60)]))
    assert b"S3kr3t" not in (await store.load_checkpoint("s") or b"S3kr3t")


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("edits", [True, False], ids=["an edit", "a message"])
async def test_a_change_whose_outcome_is_unknown_is_part_of_the_history_if_the_store_has_it(
    store: FaultyStore, edits: bool, made: bool
) -> None:
    manager = await feed(manager_on(store), [user("a"), user("b")])
    store.made = made
    with pytest.raises(OutcomeUnknown):
        await (manager.set_messages([user("a"), user("edited")]) if edits else manager.add_message(user("c")))
    store.made, store.starts = None, []
    await manager.add_message(user("d"))
    assert edits or store.starts == [2] * made, "a long history is not read for it"
    held = {(True, True): ["a", "edited"], (False, True): ["a", "b", "c"]}.get((edits, made), ["a", "b"])
    assert await contents(manager) == await stored(store) == [*held, "d"]
    seqs = [entry.seq for entry in await store.read("s")]
    assert seqs == sorted(set(seqs))
