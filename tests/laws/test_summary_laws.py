"""Laws of measured requests where a model writes chapters, at whatever moment its answers come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import Plugins
from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.session_state import dump
from amplifier_context_summary.config import load_summary_config
from amplifier_context_summary.manager import SummaryManager
from tests.messages import work
from tests.writers import Writer

from .test_measured_laws import CHANGES, COMMITS, REQUESTS, Operation, Session

pytestmark = pytest.mark.kernel

MOMENTS = st.one_of(
    st.tuples(st.just("answer"), st.none()),
    st.tuples(st.just("pause"), st.none()),
    st.tuples(st.just("undo"), st.none()),
)
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
        super().__init__()
        self.writer = Writer("slow")
        config = load_summary_config(CONFIG)
        providers = {"writer": self.writer}
        self.manager = SummaryManager(config, providers=lambda: providers, plugins=Plugins())
        self.pauses = 0

    async def state(self) -> bytes:
        manager: Any = self.manager
        while manager.writer.is_running and not self.writer.pending:  # until a model is asked, or is not
            await asyncio.sleep(0)
        parts = (manager.history, manager.compactor, await manager.token_counter())
        return dump(collect_state(*parts, manager.state(0)))

    async def answer(self, _: None) -> None:
        self.writer.release.set()
        await self.manager.writer.wait(30)
        self.writer.release.clear()

    async def pause(self, _: None) -> None:
        self.pauses += 1
        time = f"2099-01-{self.pauses:02d}T00:00:00.000+00:00"
        await self.manager.add_message({"role": "user", "content": "Go on.", "metadata": {"timestamp": time}})

    async def undo(self, _: None) -> None:
        await self.manager.undo()

    async def run(self, todo: list[Operation]) -> None:
        try:
            await super().run(todo)
        finally:
            await self.manager.close()


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
    await session.run([*todo, *again, ("ask", None)])
