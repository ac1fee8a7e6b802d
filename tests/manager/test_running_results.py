"""A job that runs: its host puts a newer result in the place of the last, again and again, by `set_messages`."""

from __future__ import annotations

import pytest

from amplifier_context_core import ContextManager
from tests.managers import ask, new_manager
from tests.messages import Message, call, result, rounds, says, size, system, text, user, work

BUDGET = 8_000
TIMES = 50


async def put_in(manager: ContextManager, history: list[Message], state: str) -> None:
    at = next(index for index, message in enumerate(history) if message.get("tool_call_id") == "job")
    history[at] = result("job", state)
    await manager.set_messages(history)


@pytest.mark.parametrize(
    ("later", "spoken", "growing"), [(0, [user("How far is it?"), says("I will see.")], True), (10, [], False)]
)
async def test_a_result_put_in_many_times_compacts_at_most_once(
    later: int, spoken: list[Message], growing: bool
) -> None:
    manager = new_manager()
    history = [*work(25, output=1_200), call("job"), result("job", "started"), *spoken]
    history += rounds(later, start=100, output=1_200)
    await manager.set_messages(history)
    await ask(manager, BUDGET)
    before = manager.compactor.compactions
    assert before or later < 10
    for number in range(TIMES):
        await put_in(manager, history, f"{number} parts are done\n" * (number * growing + 1))
        assert f"{number} parts are done" in text(await ask(manager, BUDGET))
    assert manager.compactor.compactions <= before + 1


@pytest.mark.parametrize(("system_tokens", "threshold"), [(0, 0.8), (5_000, 0.4)])
async def test_what_stays_open_leaves_room_beside_the_system_prompt_and_below_the_threshold(
    system_tokens: int, threshold: float
) -> None:
    budget = 10_000
    manager = new_manager(compact_threshold=threshold, target_usage=0.35)
    history = [system("x" * 4 * system_tokens), *work(60, output=1_200), call("job"), result("job", "started")]
    for number in range(60):
        history += rounds(1, start=200 + number, output=1_000)
        if number % 10 == 0:
            await put_in(manager, history, f"{number} parts are done")
        else:
            await manager.set_messages(history)
        view = await ask(manager, budget)
        assert view[-1]["content"] == history[-1]["content"]
        # Rounds may not take the view over its threshold by more than one: it is a share of what the prompt leaves.
        assert size(view) <= system_tokens + threshold * (budget - system_tokens) + 600
