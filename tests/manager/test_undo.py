"""Taking the newest compaction back: all of its chapters, and no other one."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager
from amplifier_context_core.compaction.strategies import ClipToolOutputs
from amplifier_context_testing import EventRecorder
from tests.managers import Counter, ask, feed, new_manager
from tests.messages import rounds, says, text, user, work

BUDGET = 10_000


def spans(manager: Any) -> list[tuple[int, int]]:
    checkpoint = manager.compactor.last_sent.view.checkpoint
    return [(one.first, one.last) for one in checkpoint.segments if one.chapter]


async def two_compactions() -> ContextManager:
    """A session that was compacted twice; a pin parts what the second compaction folds into two chapters."""
    manager = new_manager()
    await feed(manager, work(16, output=1800))
    await ask(manager, BUDGET)
    assert (await manager.compact())["compacted"]
    await ask(manager, BUDGET)
    first = spans(manager)
    await feed(manager, rounds(12, start=40, output=1800))
    pinned = manager.snapshot()[-34].mark
    await ask(manager, BUDGET)
    await manager.pin(pinned)
    assert (await manager.compact())["compacted"]
    await ask(manager, BUDGET)
    spans_after = spans(manager)
    assert len(first) == 1
    assert spans_after[0] == first[0]
    assert len(spans_after) == 3
    return manager


@pytest.mark.digest
async def test_undo_takes_back_all_chapters_of_the_newest_compaction_and_no_other() -> None:
    manager = await two_compactions()
    before = spans(manager)
    report = await manager.undo()
    assert (report["undone"], report["shows"]) == (True, "originals")
    assert (report["first"], report["last"]) == (f"m{before[1][0]}", f"m{before[2][1]}")
    assert [(one["first"], one["last"]) for one in report["chapters"]] == [(f"m{a}", f"m{b}") for a, b in before[1:]]
    view = await ask(manager, BUDGET)
    assert spans(manager) == before[:1]
    results = [entry for entry in manager.snapshot() if entry.role == "tool" and entry.seq > before[0][1]]
    assert all(entry.message["content"] in text(view) for entry in results)
    again = await manager.undo()
    assert again["first"] == f"m{before[0][0]}", "the compaction before is the newest one now"
    assert (again["undone"], again["shows"]) == (False, "chapter"), "there is no room for its originals"


async def test_undo_of_a_mark_takes_back_the_chapter_that_holds_it_alone() -> None:
    manager = await two_compactions()
    before = spans(manager)
    report = await manager.undo(f"m{before[1][0]}")
    assert [(one["first"], one["last"]) for one in report["chapters"]] == [(f"m{before[1][0]}", f"m{before[1][1]}")]
    await ask(manager, BUDGET)
    assert spans(manager) == [before[0], before[2]]


async def test_a_resumed_session_takes_back_the_newest_compaction_too() -> None:
    manager = await two_compactions()
    before = spans(manager)
    await manager.close()
    await manager.undo()
    await ask(manager, BUDGET)
    assert spans(manager) == before[:1]


async def test_undo_of_a_compaction_that_only_clipped_says_what_stays() -> None:
    manager = new_manager(strategies=[ClipToolOutputs()])
    await feed(manager, work(16, output=1800))
    await ask(manager, BUDGET)
    assert (await manager.compact())["compacted"]
    before = await ask(manager, BUDGET)
    report = await manager.undo()
    assert report == {"undone": False, "reason": "nothing is folded; what compactions clipped or replaced stays so"}
    assert await ask(manager, BUDGET) == before


async def test_the_figures_of_a_compaction_are_those_after_its_handler_took_one_back() -> None:
    hooks = HookRegistry()
    manager = new_manager(hooks=hooks)
    await feed(manager, work(16, output=1800))
    await ask(manager, BUDGET)
    assert (await manager.compact())["compacted"]
    await ask(manager, BUDGET)
    sizes: list[int] = []

    async def undo(event: str, data: dict[str, Any]) -> HookResult:
        assert (await manager.undo())["undone"]
        view = manager.compactor.last_sent.view  # pyright: ignore[reportOptionalMemberAccess]
        sizes.extend((data["token_count"], view.tokens))
        return HookResult()

    hooks.register("context:pre_compact", undo, 0, name="undo")
    recorder = EventRecorder(hooks, ["context:post_compact"])
    await manager.compact()
    (report,) = recorder.named("context:post_compact")
    announced, present = sizes
    assert report["before_tokens"] == present > announced


@pytest.mark.digest
async def test_undo_of_many_rounds_counts_a_round_a_few_times() -> None:
    counter = Counter()
    manager = new_manager(counter=counter, max_tokens=15_000, target_usage=0.3)
    for number in range(200):
        await feed(
            manager, [user(f"Look at file_{number}.py."), says(f"It holds item {number}. " + "So it goes. " * 9)]
        )
    await ask(manager)
    assert (await manager.compact())["compacted"]
    await ask(manager)
    before = counter.characters
    report = await manager.undo()
    assert report["shows"] == "originals"
    size = sum(len(entry.message["content"]) for entry in manager.snapshot())
    assert counter.characters - before < 3 * size
    assert "It holds item 7. " in text(await ask(manager))
