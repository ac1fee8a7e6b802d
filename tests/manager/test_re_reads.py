"""An agent that reads the same files again and again, because the budget is too small for them, is reported once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core.events import WARNING
from amplifier_context_core.stores import MemoryStore, Store
from amplifier_context_testing import EventRecorder
from tests.authors import make_manager
from tests.managers import feed
from tests.messages import Message, call, result

BUDGET = 8_000
FILE = "".join(f"    value_{number} = table[{number * 7919 % 10_007}]\n" for number in range(120))


def reads(files: Iterable[int], *, tool: str = "Read", start: int = 0) -> Iterator[list[Message]]:
    """A round for each file that is read."""
    for place, file in enumerate(files, start):
        yield [call(f"c{place}", name=tool, path=f"src/part_{file}.py"), result(f"c{place}", FILE)]


def round_and_round(files: int, times: int) -> Iterator[int]:
    return islice(cycle(range(files)), files * times)


class Session:
    """A session, and the warnings of it."""

    def __init__(self, store: Store | None = None) -> None:
        hooks = HookRegistry()
        self._recorder = EventRecorder(hooks, [WARNING])
        self.context = make_manager({"max_tokens": 3 * BUDGET, "token_counter": "heuristic"}, hooks=hooks, store=store)

    async def work(self, rounds: Iterable[list[Message]], budget: int = BUDGET) -> list[dict[str, Any]]:
        """Do these rounds with a request before each; the warnings so far."""
        for one in rounds:
            await self.context.get_messages_for_request(token_budget=budget)
            await feed(self.context, one)
        return [event.data for event in self._recorder.records]


async def test_files_that_are_read_again_and_again_are_reported_once_with_figures() -> None:
    session = Session()
    (warning,) = await session.work(reads(round_and_round(files=10, times=8)))
    assert warning["reason"] == "re-reads"
    assert 3 <= warning["sources"] <= 10
    assert warning["tokens"] == pytest.approx(warning["sources"] * len(FILE) / 4, rel=0.2)
    assert (await session.context.explain())["warnings"] == [warning["message"]]
    assert f"{warning['sources']} sources" in warning["message"]
    assert "part_" not in warning["message"]


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
async def test_only_what_is_read_again_and_again_is_reported(files: Iterable[int], tool: str, reported: int) -> None:
    assert len(await Session().work(reads(files, tool=tool))) == reported


async def test_a_compaction_without_re_reads_arms_the_warning_again_but_not_one_at_a_larger_budget() -> None:
    session = Session()
    again = [*round_and_round(files=10, times=8)]
    assert len(await session.work(reads(again))) == 1
    await session.work(reads(range(100, 140), start=100), budget=3 * BUDGET)
    assert len(await session.work(reads(again, start=200))) == 1
    assert len(await session.work(reads(range(140, 180), start=300))) == 1
    assert len(await session.work(reads(again, start=400))) == 2


async def test_a_resumed_session_does_not_report_its_re_reads_again() -> None:
    store = MemoryStore()
    before, after = (Session(store) for _ in range(2))
    assert len(await before.work(reads(round_and_round(files=10, times=8)))) == 1
    await before.context.close()
    assert await after.work(reads(round_and_round(files=10, times=8), start=200)) == []
