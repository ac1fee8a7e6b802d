"""A store that waits, fails or loses its claim when a test says so. What it keeps is kept as in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from amplifier_context_core.errors import SessionInUse, SessionLost, StoreError
from amplifier_context_core.stores import Extent, MemoryStore, OnRepair
from amplifier_context_core.transcript.entry import Entry


class FaultyStore(MemoryStore):
    """Attributes decide what happens next.

    Attributes:
        open_gate: changes wait until it is set.
        failing: changes fail while this is true.
        lost_to: changes of these sessions fail, because another writer has them; empty if they are gone.
        in_use: these sessions cannot be opened.
        batches: sizes of the appends that came through.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.failing = False
        self.failing_checkpoints = False
        self.lost_to: dict[str, str] = {}
        self.in_use: dict[str, str] = {}
        self.batches: list[int] = []
        self.entered = 0

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        if session_id in self.in_use:
            raise SessionInUse(session_id, self.in_use[session_id])
        return await super().open(session_id, on_repair)

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        await self._hindered(session_id)
        await super().append(session_id, entries)
        self.batches.append(len(entries))

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        await self._hindered(session_id)
        await super().replace(session_id, keep, entries)

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        await self._hindered(session_id)
        await super().rewrite(session_id, entries)

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        if self.failing_checkpoints:
            raise StoreError("the disk is full; make room")
        await super().save_checkpoint(session_id, covered, data)

    async def _hindered(self, session_id: str) -> None:
        self.entered += 1
        await self.open_gate.wait()
        if self.failing:
            raise StoreError("the disk is full; make room")
        if session_id in self.lost_to:
            raise SessionLost(session_id, self.lost_to[session_id])
