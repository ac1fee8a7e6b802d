"""Laws of measured requests where a model writes chapters, at whatever moment its answers come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, Plugins
from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.session_state import dump
from amplifier_context_summary.config import load_summary_config
from amplifier_context_summary.manager import SummaryManager
from tests.messages import user, work
from tests.writers import Writer

from .histories import Message
from .managers import valid
from .operations import Operation
from .test_measured_laws import CHANGES, COMMITS, REQUESTS, Session

pytestmark = pytest.mark.kernel

MOMENTS = st.tuples(st.sampled_from(["answer", "pause", "undo"]), st.none())
LONG = work(60, output=900)[:41]
CONFIG = {
    "token_counter": "heuristic",
    "max_tokens": 4_000,
    "cache_ttl": 60,
    "summary_spend": 1_000.0,
    "max_summary_calls": 1_000,
    "compact_wait": 0.01,  # the model answers when an operation says so, not while a command waits
}


class Written(Session):
    """A session whose writer answers when an operation says so; a pause is longer than a provider keeps its cache."""

    def __init__(self) -> None:
        self.writer = Writer("slow")
        self.pauses = 0
        super().__init__()

    def _new_manager(self) -> ContextManager:
        providers = {"writer": self.writer}
        return SummaryManager(load_summary_config(CONFIG), providers=lambda: providers, plugins=Plugins())

    async def state(self) -> bytes:
        manager: Any = self.manager
        while manager.writer.is_running and not self.writer.pending:  # until a model is asked, or is not
            await asyncio.sleep(0)
        parts = (manager.history, manager.compactor, await manager.token_counter())
        return dump(collect_state(*parts, manager.state(0)))

    async def _view(self, which: int) -> list[Message]:
        return valid(await self.manager.get_messages_for_request())

    async def _answer(self, _: None) -> None:
        manager: Any = self.manager
        self.writer.release.set()
        await manager.writer.wait(30)
        self.writer.release.clear()

    async def _pause(self, _: None) -> None:
        self.pauses += 1
        time = f"2099-01-{self.pauses:02d}T00:00:00.000+00:00"
        await self.manager.add_message(user(metadata={"timestamp": time}))


@given(todo=st.lists(CHANGES | REQUESTS | COMMITS | MOMENTS, max_size=12))
async def test_a_request_that_is_not_sent_changes_nothing_whenever_a_model_answers(todo: list[Operation]) -> None:
    """From a session that was compacted while its model had not answered yet."""
    session = Written()
    manager = session.manager
    for message in LONG:
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request()
            await session.state()
    assert manager.compactor.compactions
    assert session.writer.pending
    again: list[Operation] = [("answer", None), ("pause", None), ("begin", (100, 0)), ("commit", (-1, False))]
    try:
        await session.carry_out([*todo, *again, ("ask", 0)])
    finally:
        await manager.close()
