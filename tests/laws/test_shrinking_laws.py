"""Law: a store that loses entries under an open session takes nothing from what is in memory, and is never silent."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import Extent, MemoryStore, OnRepair, Repair
from amplifier_context_core.transcript.entry import Entry

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
        role = "assistant" if number % 3 else "user"
        await manager.add_message(
            {"role": role, "content": f"message {number} " + "word " * 60, "metadata": {"pinned": number == 7}}
        )
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
        await manager.add_message({"role": "user", "content": "one more"})
        in_memory.add(MESSAGES + 1)
    messages = await manager.get_messages()
    seqs = [entry.seq for entry in manager.history.snapshot()]
    assert in_memory <= set(seqs)
    assert seqs == sorted(set(seqs))
    names = [message["content"].split(" word")[0] for message in messages]
    assert names == [f"message {seq - 1}" if seq <= MESSAGES else "one more" for seq in seqs]
    gone = MESSAGES + goes_on - len(seqs)
    assert bool(gone) <= bool(warnings)
    if gone and not reports:
        assert any(f"{gone} message" in text and "lost" in text for text in warnings)
    if not reports:
        assert bool(warnings) == bool(gone)
    # the session goes on, and what memory holds is what a resumed session finds
    store.losses.clear()
    await manager.set_messages([*messages, {"role": "user", "content": "the host goes on"}])
    await manager.add_message({"role": "assistant", "content": "so do we"})
    history = await manager.get_messages()
    assert [message["content"] for message in history[:-2]] == [message["content"] for message in messages]
    await manager.get_messages_for_request()
    await manager.close()
    again = ContextManager(CONFIG, session_id="s", store=store)
    assert await again.get_messages() == history
