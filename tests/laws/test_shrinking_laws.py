"""Laws of memory: a view that a host hands back is the history; a store that loses entries takes nothing from it."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_core.stores import Extent, MemoryStore, OnRepair, Repair
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import coding_session
from tests.managers import feed
from tests.messages import result, says, user

from .histories import Message, Step, conversations
from .managers import new_manager

MESSAGES = 30
CONFIG = load_config({"token_counter": "heuristic", "max_tokens": 900})


class ShrinkingStore(MemoryStore):
    """Loses entries when a number of calls that read were made.

    Attributes:
        losses: seqs to lose, each set with the number of the call that loses it.
        reports: true if a repair reports the loss, as a store does that found damage.
        calls: made so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[tuple[int, frozenset[int]]] = []
        self.reports = False
        self.calls = 0
        self._listener: OnRepair | None = None

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        self._listener = on_repair
        return await super().open(session_id, on_repair)

    async def extent(self, session_id: str) -> Extent:
        self._lose(session_id)
        return await super().extent(session_id)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        self._lose(session_id)
        return await super().read(session_id, start, stop)

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        self._lose(session_id)
        return await super().find(session_id, seqs)

    def _lose(self, session_id: str) -> None:
        self.calls += 1
        for number, seqs in list(self.losses):
            if number <= self.calls:
                self.losses.remove((number, seqs))
                entries = self._sessions[session_id].entries
                left = [entry for entry in entries if entry.seq not in seqs]
                lost = len(entries) - len(left)
                entries[:] = left
                if lost and self.reports and self._listener:
                    self._listener(Repair(session_id, "what could not be read was taken out", lost))


SEQS = st.integers(1, MESSAGES)
SPANS = st.tuples(SEQS, SEQS).map(lambda ends: frozenset(range(min(ends), max(ends) + 1)))
LOST = st.one_of(SPANS, st.frozensets(SEQS, max_size=6), st.just(frozenset(range(1, MESSAGES + 1))))
WHEN = st.lists(st.tuples(st.integers(0, 4), LOST), min_size=1, max_size=2)


async def resumed(store: MemoryStore) -> ContextManager:
    """A session of which the middle is not in memory."""
    manager = ContextManager(CONFIG, session_id="s", store=store)
    for number in range(MESSAGES):
        say = says if number % 3 else user
        await manager.add_message(say(f"message {number} " + "word " * 60, metadata={"pinned": number == 7}))
        await manager.get_messages_for_request()
    await manager.close()
    manager = ContextManager(CONFIG, session_id="s", store=store)
    await manager.get_messages_for_request()
    assert len(manager.history.snapshot().gap) > MESSAGES // 2
    return manager


@given(WHEN, st.booleans(), st.booleans())
async def test_what_memory_held_is_kept_nothing_comes_twice_and_what_is_gone_is_reported(
    losses: list[tuple[int, frozenset[int]]], reports: bool, goes_on: bool
) -> None:
    store = ShrinkingStore()
    manager = await resumed(store)
    warnings = manager.warnings.texts
    warnings.clear()
    held = manager.history.snapshot()
    in_memory = {entry.seq for entry in [*held[: held.gap.start], *held[held.gap.stop :]]}
    for line in manager.compactor.cache.views:
        for segment in line.checkpoint.segments if line.checkpoint else ():
            in_memory |= {entry.seq for entry in segment.round.entries} if segment.round else set()
    store.reports = reports
    store.losses = [(store.calls + number, seqs) for number, seqs in losses]
    if goes_on:
        await manager.add_message(user("one more"))
        in_memory.add(MESSAGES + 1)
    messages = await manager.get_messages()
    seqs = [entry.seq for entry in manager.history.snapshot()]
    assert in_memory <= set(seqs)
    assert seqs == sorted(set(seqs))
    names = [message["content"].split(" word")[0] for message in messages]
    assert names == [f"message {seq - 1}" if seq <= MESSAGES else "one more" for seq in seqs]
    gone = MESSAGES + goes_on - len(seqs)
    assert warnings or not gone
    if not reports:
        assert bool(warnings) == bool(gone)
        assert not gone or any(f"{gone} message" in text and "lost" in text for text in warnings)
    # the session goes on, and what memory holds is what a resumed session finds
    store.losses.clear()
    await manager.set_messages([*messages, user("the host goes on")])
    await manager.add_message(says("so do we"))
    history = await manager.get_messages()
    assert [message["content"] for message in history[:-2]] == [message["content"] for message in messages]
    await manager.get_messages_for_request()
    await manager.close()
    again = ContextManager(CONFIG, session_id="s", store=store)
    assert await again.get_messages() == history


EXAMPLES = settings().max_examples  # see tests/conftest.py
CALL: Message = {"role": "assistant", "content": None, "tool_calls": [{"id": "fresh_1", "tool": "t", "arguments": {}}]}
NEW = st.sampled_from([[], [user("and now?")], [says(), user("ok")], [CALL, result("fresh_1")]])


def bare(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != "metadata" and value is not None}


def stamped(message: Message) -> Message:
    """As a host returns it that puts a time of its own on each message."""
    return {**message, "metadata": {**message.get("metadata", {}), "timestamp": "2033-01-01T00:00:00.000+00:00"}}


FORMS = st.sampled_from([dict, bare, stamped])


class Twin:
    """A session whose host adds its messages, and has been given a view."""

    def __init__(self, budget: int, **config: Any) -> None:
        self._store, self._budget, self._config = MemoryStore(), budget, config
        self.manager = self._opened()

    def _opened(self) -> ContextManager:
        return new_manager(self._store, max_tokens=self._budget, **self._config)

    async def grown(self, steps: list[Step]) -> list[Message]:
        """Its view, after a request for each step."""
        shared_cache.clear()  # or it would begin with a checkpoint of its twin
        for step in steps:
            await feed(self.manager, step)
            await self.manager.get_messages_for_request()
        return await self.manager.get_messages_for_request()

    async def resume(self) -> None:
        await self.manager.close()
        self.manager = self._opened()

    async def shown(self) -> tuple[list[tuple[int, Message]], int, list[Message]]:
        """Its entries that a model may see, its compactions, and then the view of the next request."""
        await self.manager.load()
        entries = [(one.seq, one.message) for one in self.manager.snapshot() if not is_left_out(one.message)]
        return entries, self.manager.compactor.compactions, await self.manager.get_messages_for_request()


async def law(
    steps: list[Step],
    budget: int,
    new: list[Message],
    form: Callable[[Message], Message],
    *,
    resumes: bool,
    **config: Any,
) -> None:
    ours, other = Twin(budget, **config), Twin(budget, **config)
    view = await ours.grown(steps)
    assert await other.grown(steps) == view
    if resumes:
        await ours.resume()
        await other.resume()
    await ours.manager.set_messages(copy.deepcopy([*map(form, view), *new]))
    await feed(other.manager, new)
    entries, compactions, after = await ours.shown()
    wanted = await other.shown()
    assert entries == wanted[0]
    assert (compactions, after) == wanted[1:]


@given(conversations(), st.integers(60, 4_000), NEW, FORMS, st.booleans(), st.booleans())
def test_a_returned_view_is_the_history_whatever_the_conversation(
    steps: list[Step], budget: int, new: list[Message], form: Callable[[Message], Message], resumes: bool, merges: bool
) -> None:
    asyncio.run(law(steps, budget, new, form, resumes=resumes, merge_consecutive=merges))


@settings(max_examples=max(1, EXAMPLES // 3))
@given(st.integers(0, 50), st.integers(20, 90), st.integers(2_000, 9_000), NEW, FORMS, st.booleans())
def test_a_returned_view_of_a_long_session_is_the_history(
    seed: int, length: int, budget: int, new: list[Message], form: Callable[[Message], Message], resumes: bool
) -> None:
    asyncio.run(law([[one] for one in coding_session(length, seed)], budget, new, form, resumes=resumes))
