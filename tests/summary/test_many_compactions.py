"""Fifty compactions with a model: the state and the views stay bounded, rules and pins stay word for word."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter as counter
from amplifier_context_testing import checked
from amplifier_context_testing.summaries.writers import INJECTED_RULE, INVENTED_QUOTE, KINDS, Writer
from tests.messages import rounds, size, text
from tests.summary.scripted import BUDGET, summary_manager, tokens_of, wait_for_summaries

pytestmark = pytest.mark.kernel
SOAKING = settings().max_examples > 1_000  # see conftest.py
COMPACTIONS = 50
STATE = 300  # tokens: less than what one oversized answer would take
LONGEST_BACK_OFF = 3_601.0  # seconds: the clock of the tests goes on by so much with each request
RULES = [
    "Never push to the branch main without asking.",
    "Always run the linter before a commit.",
    "Do not touch the folder vendor.",
]
PART = 12  # rounds after which the agent ends a part of the work and a person asks for the next one
PINNED = "The port is 49152, remember that exactly."
GOOD = ("good", "sections", "oversized", "inventing", "claiming", "forging")
BAD = (*(kind for kind in KINDS if kind not in (*GOOD, "never", "slow")), "error:RateLimitError", "error:StreamError")


class Changing(Writer):
    """Answers each request in the next one of several ways."""

    def __init__(self, kinds: list[str]) -> None:
        super().__init__()
        self._kinds = kinds

    async def complete(self, request: Any, **options: Any) -> Any:
        self.kind = self._kinds[len(self.asked) % len(self._kinds)]
        return await super().complete(request, **options)


@dataclass
class Seen:
    """What the views and the states of a session held, looked at after each request.

    Attributes:
        required: rules and pinned messages so far; each must be in every view.
        finished: texts of all tasks that were done at any time.
        sizes: of the state, in tokens.
    """

    required: list[str] = field(default_factory=list[str])
    finished: set[str] = field(default_factory=set[str])
    sizes: list[int] = field(default_factory=list[int])

    def look(self, manager: Any, view: list[dict[str, Any]]) -> None:
        checked(view)
        assert size(view) <= BUDGET
        shown = text(view)
        assert [one for one in self.required if one not in shown] == []
        assert INVENTED_QUOTE not in shown
        assert INJECTED_RULE not in shown
        for record in manager.records.valid(manager.history)[-1:]:
            self.sizes.append(tokens_of(record.state, counter))
            self.finished |= {item.text for item in record.state.of("done")}
            assert not self.finished & {item.text for item in record.state.of("open")}


async def course(kinds: list[str], at: list[int], pinned: int) -> tuple[Any, Seen]:
    """Run a session of fifty compactions.

    Args:
        kinds: how a model answers, one after the other.
        at: rounds of tool calls before each of the rules is stated.
        pinned: rounds before a message is added and pinned.
    """
    manager = summary_manager(Changing(kinds), max_summary_calls=1_000, summary_tokens=STATE)
    now = count(step=LONGEST_BACK_OFF)
    manager.writer.clock = lambda: next(now)
    await manager.add_message({"role": "user", "content": "Do the work."})
    seen = Seen()
    for number in count():
        for rule in (rule for rule, place in zip(RULES, at, strict=True) if place == number):
            await manager.add_message({"role": "user", "content": rule})
            seen.required.append(rule)
        if number % PART == PART - 1:
            await manager.add_message(
                {"role": "assistant", "content": f"Part {number // PART} is in src/file_{number}.py."}
            )
            await manager.add_message({"role": "user", "content": f"Now do part {number // PART + 1} of the work."})
        if number == pinned:
            await manager.add_message({"role": "user", "content": PINNED})
            await manager.pin(manager.snapshot()[-1].mark)
            seen.required.append(PINNED)
        for message in rounds(1, start=number, output=1_500):
            await manager.add_message(message)
        seen.look(manager, await manager.get_messages_for_request(BUDGET))
        await wait_for_summaries(manager)
        if manager.compactor.compactions >= COMPACTIONS:
            break
        assert number < 3_000
    await manager.close()
    return manager, seen


places = st.lists(st.integers(0, 200), min_size=len(RULES), max_size=len(RULES))


@given(st.lists(st.sampled_from([*GOOD, *BAD]), min_size=1, max_size=12), places, st.integers(0, 200))
@example(["good"], [60, 120, 180], 100)
@example(["oversized", "good", "error:RateLimitError", "wrong"], [0, 0, 200], 0)
@settings(max_examples=50 if SOAKING else 1)
async def test_in_fifty_compactions_rules_and_pins_stay_word_for_word_and_the_state_is_bounded(
    kinds: list[str], at: list[int], pinned: int
) -> None:
    manager, seen = await course(kinds, at, pinned)
    assert len(seen.required) == len(RULES) + 1
    assert max(seen.sizes, default=0) <= 1.1 * STATE
    if kinds == ["good"]:
        assert len(manager.writer.providers()["scripted"].asked) >= COMPACTIONS / 2
        assert len(seen.finished) >= 5
