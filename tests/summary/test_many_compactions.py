"""Fifty compactions with a model: the state and the chapters stay bounded, rules and pins stay word for word."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core import approx_token_counter as counter
from amplifier_context_summary.state import tokens_of
from amplifier_context_testing import checked
from amplifier_context_testing.summaries.writers import Writer
from tests.manager.support import rounds, size, text
from tests.summary.support import BUDGET, settle, summary_manager

pytestmark = pytest.mark.kernel
RULES = [
    "Never push to the branch main without asking.",
    "Always run the linter before a commit.",
    "Do not touch the folder vendor.",
]
PINNED = "The port is 49152, remember that exactly."


async def test_after_fifty_compactions_rules_and_pins_are_shown_word_for_word_and_the_state_is_bounded() -> None:
    manager = summary_manager(Writer("good"), max_summary_calls=1_000, summary_tokens=800)
    await manager.add_message({"role": "user", "content": "Do the work."})
    finished: set[str] = set()
    start, sizes = 0, []
    view: list[dict[str, Any]] = []
    pinned = False
    while manager.compactor.compactions < 50:
        if start and start % 60 == 0 and start // 60 <= len(RULES):
            await manager.add_message({"role": "user", "content": RULES[start // 60 - 1]})
        if start == 100:
            await manager.add_message({"role": "user", "content": PINNED})
            await manager.pin(manager.snapshot()[-1].mark)
            pinned = True
        for message in rounds(10, start=start, output=1_500):
            await manager.add_message(message)
            if message["role"] == "tool":
                view = await manager.get_messages_for_request(BUDGET)
                await settle(manager)
        start += 10
        checked(view)
        assert size(view) <= BUDGET
        for record in manager.records.valid(manager.history)[-1:]:
            sizes.append(tokens_of(record.state, counter))
            done = {item.text for item in record.state.of("done")}
            finished |= done
            assert not finished & {item.text for item in record.state.of("open")}
        assert start < 3_000
    shown = text(view)
    for rule in RULES:
        assert rule in shown
    assert pinned
    assert PINNED in shown
    assert "in a model's words" in shown
    assert max(sizes) <= 800 * 1.1
    assert max(sizes[-10:]) <= max(sizes[:40])
