"""What summaries cost in a recorded session by default: at most 0.12 of its input, and 0.03 at a fifth of the price."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_summary.config import load_summary_config
from amplifier_context_summary.manager import SummaryManager
from amplifier_context_testing.replay.transcripts import requests_of
from lab.sessions import read_sessions
from tests.timers import timers_of
from tests.writers import Writer

pytestmark = pytest.mark.kernel
SESSION = "entire-4c-ff5845d5a2-0"  # 144,000 tokens
BUDGET = 9_000


@pytest.mark.parametrize(("price", "share"), [(1.0, 0.12), (0.2, 0.03)])
async def test_summaries_cost_no_more_than_their_share_and_no_request_waits(
    price: float, share: float, recorded: Path
) -> None:
    (session,) = (one for one in read_sessions([recorded / "claude_code_entire.jsonl.gz"]) if one.id == SESSION)
    own, writer = Writer(name="own", pricing=(1.0, 5.0)), Writer(pricing=(price, 5 * price))
    config = load_summary_config({"max_tokens": BUDGET, "summary_provider": "writer"})
    manager: Any = SummaryManager(config, providers=lambda: {"own": own, "writer": writer})
    now = [1.8e9]
    manager.writer.asking.clock = lambda: now[0]
    requests = frozenset(requests_of(session.messages))
    for index, message in enumerate(session.messages):
        if index in requests:
            with timers_of(asyncio.current_task()) as timers:
                await manager.get_messages_for_request(BUDGET, own)
            assert timers == []
            await manager.writer.wait(30)
            now[0] += 40
        await manager.add_message(message)
    limits = manager.limits
    assert 1 <= limits.calls <= 1.2 * manager.compactor.compactions
    assert limits.summary_cost <= share * limits.session_cost
    await manager.close()
