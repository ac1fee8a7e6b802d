"""No storms of compactions or warnings: beside giants, with running jobs, re-reads, and budgets that change."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextOverflow
from amplifier_context_core.events import PRE_COMPACT, WARNING
from amplifier_context_testing import check_request
from tests.authors import make_manager
from tests.manager.measured import state_of
from tests.managers import ask, feed, new_manager, watched
from tests.messages import Message, call, result, rounds, says, shared_prefix, size, system, text, user, words, work

BUDGET = 8_000
HANDFUL = 10


LOADED = {"openai:tool_search_items": [{"type": "tool_search_output"}]}
GIANT = "word12345 " * (BUDGET * 38 // 100)


@pytest.mark.parametrize(
    ("giant", "once"),
    [
        ([system(GIANT), user("Do it.")], 1),
        ([user("Do it."), call("c", content=GIANT, metadata=LOADED), result("c")], 1),
        ([user("Do it."), *rounds(3, start=90_000), user(words("word", int(BUDGET * 0.8)))], 0),  # below the trigger
    ],
    ids=["system prompt", "loaded tools", "newest human message"],
)
async def test_five_hundred_requests_beside_a_giant_cause_a_handful_of_compactions_and_one_warning(
    giant: list[Message], once: int, caplog: pytest.LogCaptureFixture
) -> None:
    manager, recorder = watched()
    await feed(manager, giant)
    with caplog.at_level(logging.WARNING):
        for number in range(500):
            await feed(manager, rounds(1, start=number, output=120) if number % 10 == 0 else [])
            view = await manager.get_messages_for_request(BUDGET)
            assert check_request(view) == []
            assert size(view) <= BUDGET
    assert (await manager.explain())["compactions"] == recorder.count("context:compaction") <= HANDFUL
    texts = [event["message"] for event in recorder.named(WARNING)]
    assert len([message for message in texts if "must be kept" in message]) == once
    assert len(texts) == len(set(texts)) <= 1
    records = [r for r in caplog.records if r.levelno >= logging.WARNING and "must be kept" in r.getMessage()]
    assert len(records) == once


async def test_under_strict_what_does_not_fit_is_an_error_that_names_it_and_loses_nothing() -> None:
    manager = await feed(new_manager(strict=True), [system(words("word", 2_000)), user("Do it.")])
    for _ in range(3):
        with pytest.raises(ContextOverflow, match=r"system prompt [12],\d\d\d"):
            await manager.get_messages_for_request(1_000)
    assert len(await manager.get_messages()) == 2
    assert check_request(await manager.get_messages_for_request(10_000)) == []


@pytest.mark.parametrize(
    ("later", "spoken", "growing"), [(0, [user("How far is it?"), says("I will see.")], True), (10, [], False)]
)
async def test_a_result_put_in_many_times_compacts_at_most_once(
    later: int, spoken: list[Message], growing: bool
) -> None:
    manager = new_manager()
    history = [*work(25, output=1_200), call("job"), result("job", "started"), *spoken]
    place = history.index(result("job", "started"))
    history += rounds(later, start=100, output=1_200)
    await manager.set_messages(history)
    await ask(manager, BUDGET)
    before = manager.compactor.compactions
    assert before or later < 10
    for number in range(50):
        history[place] = result("job", f"{number} parts are done\n" * (number * growing + 1))
        await manager.set_messages(history)
        assert f"{number} parts are done" in text(await ask(manager, BUDGET))
    assert manager.compactor.compactions <= before + 1


FILE = "".join(f"    value_{number} = table[{number * 7919 % 10_007}]\n" for number in range(120))


def reads(files: Iterable[int], *, tool: str = "Read", start: int = 0) -> Iterator[list[Message]]:
    """A round for each file that is read."""
    for place, file in enumerate(files, start):
        yield [call(f"c{place}", name=tool, path=f"src/part_{file}.py"), result(f"c{place}", FILE)]


def round_and_round(files: int, times: int) -> list[int]:
    return [*range(files)] * times


class Session:
    def __init__(self) -> None:
        self.hooks = HookRegistry()
        self.context, self.recorder = watched(self.hooks, max_tokens=3 * BUDGET)

    async def work(self, rounds: Iterable[list[Message]], budget: int = BUDGET) -> list[dict[str, Any]]:
        """Do these rounds with a request before each; the warnings so far."""
        for one in rounds:
            await self.context.get_messages_for_request(token_budget=budget)
            await feed(self.context, one)
        return self.recorder.named(WARNING)


@pytest.mark.parametrize(
    ("files", "tool", "reported"),
    [
        pytest.param(round_and_round(files=10, times=8), "ViewFile", 1, id="a tool whose name says that it reads"),
        pytest.param(round_and_round(files=10, times=8), "web.fetch", 1, id="or fetches"),
        pytest.param(round_and_round(files=10, times=8), "run_tests", 0, id="a tool that does not read"),
        pytest.param(range(80), "Read", 0, id="each once"),
        pytest.param(round_and_round(files=2, times=40), "Read", 0, id="few that the view holds"),
        pytest.param(round_and_round(files=40, times=2), "Read", 0, id="each twice"),
    ],
)
async def test_only_what_is_read_again_and_again_is_reported_once_with_figures(
    files: Iterable[int], tool: str, reported: int
) -> None:
    session = Session()
    warnings = await session.work(reads(files, tool=tool))
    assert len(warnings) == reported
    for warning in warnings:
        assert warning["reason"] == "re-reads"
        assert 3 <= warning["sources"] <= 10
        assert warning["tokens"] == pytest.approx(warning["sources"] * len(FILE) / 4, rel=0.2)
        assert (await session.context.explain())["warnings"] == [warning["message"]]
        assert f"{warning['sources']} sources" in warning["message"]
        assert "part_" not in warning["message"]


async def test_a_compaction_without_re_reads_arms_the_warning_again_but_not_one_at_a_larger_budget() -> None:
    session = Session()
    again = round_and_round(files=10, times=5)
    assert len(await session.work(reads(again))) == 1
    await session.work(reads(range(100, 140), start=100), budget=3 * BUDGET)
    assert len(await session.work(reads(again, start=200))) == 1
    assert len(await session.work(reads(range(140, 180), start=300))) == 1
    assert len(await session.work(reads(again, start=400))) == 2


async def test_a_resumed_session_does_not_report_its_re_reads_again() -> None:
    before, again = Session(), reads(round_and_round(files=10, times=8))
    assert len(await before.work(again)) == 1
    await before.context.close()
    after = Session()
    after.context = make_manager(
        before.context.config, session_id=before.context.session_id, store=before.context.store, hooks=after.hooks
    )
    assert await after.work(reads(round_and_round(files=10, times=8), start=200)) == []


LARGE, SMALL = 8_000, 2_000


async def test_a_request_after_each_of_many_tiny_messages_compacts_now_and_then() -> None:
    """Messages so short that a chapter would cost more than they do."""
    manager = new_manager()
    for number in range(160):
        await feed(manager, [(says if number % 2 else user)(f"message {number}")])
        assert size(await ask(manager, 1_000)) <= 1_000
    assert (await manager.explain())["compactions"] <= 3


async def test_what_a_compaction_took_out_does_not_come_back_with_an_older_view_of_a_larger_budget() -> None:
    manager = await feed(new_manager(target_usage=0.05), work(30))
    await ask(manager, 10 * LARGE)
    await ask(manager, LARGE)
    assert (await manager.compact())["compacted"]
    before, compactions = await ask(manager, LARGE), 1
    for number in range(100):
        view = await ask(await feed(manager, rounds(1, start=500 + number)), LARGE)
        is_compacted = compactions != (compactions := manager.compactor.compactions)
        assert is_compacted or shared_prefix(before, view) == len(before)
        before = view
    assert compactions > 1


async def test_a_session_on_two_budgets_compacts_for_each_only_when_it_is_full_and_finds_the_old_prefix_again() -> None:
    manager = await feed(new_manager(), [user("Work.")])
    for number in range(120):
        await feed(manager, rounds(1, start=number))
        before = await ask(manager, LARGE)
        await ask(manager, SMALL)
    for number in range(5):
        await feed(manager, rounds(1, start=500 + number))
        await ask(manager, SMALL)
    after = await ask(manager, LARGE)
    assert shared_prefix(before, after) == len(before)
    assert len(after) == len(before) + 10
    total = size(await manager.get_messages())
    # Half a budget is free after a compaction; twice as many as that takes is already generous.
    assert (await manager.explain())["compactions"] <= 2 * (total / (LARGE / 2) + total / (SMALL / 2))


async def test_a_host_that_asks_for_another_budget_each_time_does_not_fill_the_saved_state() -> None:
    manager = await feed(new_manager(), work(4))
    saved: list[int] = []
    for process in range(4):
        for number in range(40):
            await manager.get_messages_for_request(20_000 + 40 * process + number)
        saved.append(len(await state_of(manager)))
        await manager.close()
        manager = make_manager(manager.config, session_id=manager.session_id, store=manager.store)
    assert saved[3] <= saved[1] + 100


async def test_tasks_that_ask_while_handlers_run_get_one_compaction_and_the_same_view_though_one_is_cancelled() -> None:
    hooks, entered, leave, asked = HookRegistry(), asyncio.Event(), asyncio.Event(), list[str]()

    async def held(event: str, data: dict[str, Any]) -> None:
        asked.append(event)
        entered.set()
        await leave.wait()

    hooks.register(PRE_COMPACT, held, 0, name="held")
    manager = await feed(new_manager(hooks=hooks), work(80))
    asking = [asyncio.create_task(ask(manager, LARGE)) for _ in range(6)]
    await entered.wait()
    await asyncio.sleep(0.05)
    asking[3].cancel()
    leave.set()
    async with asyncio.timeout(60):
        views = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(views.pop(3), asyncio.CancelledError)
    assert len({text(view) for view in views}) == 1
    assert len(asked) == (await manager.explain())["compactions"] == 1
