"""Laws of measured requests: one that is not sent leaves no trace, whatever happens between its begin and its end."""

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, Plugins
from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.view import shared_cache
from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.sent_view import SentView
from amplifier_context_core.view.session_state import dump
from amplifier_context_summary.config import load_summary_config
from amplifier_context_summary.manager import SummaryManager
from tests.manager.measured import state_of
from tests.managers import valid
from tests.messages import call, result, user, work
from tests.writers import Writer

from .histories import ANY_STEPS, Message, conversations, flat
from .managers import counting
from .operations import Driver, Operation

BUDGET = 900  # tokens; small, so that a few steps call for a compaction

CHANGES = st.one_of(
    st.tuples(st.just("add"), st.lists(ANY_STEPS, min_size=1, max_size=4)),
    st.tuples(st.just("add"), st.lists(ANY_STEPS, min_size=1, max_size=4)),
    st.tuples(st.just("ask"), st.just(0)),
    st.tuples(st.just("item"), st.tuples(st.integers(0, 9), st.just("of a list"))),
    st.tuples(st.sampled_from(["forget", "pin"]), st.integers(0, 30)),
    st.tuples(st.just("undo"), st.none() | st.integers(0, 30)),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("edit"), st.tuples(st.integers(0, 40), st.lists(ANY_STEPS, max_size=2))),
)
# The provider's ratio in percent of our own count, and whether it fails at the nth count; 0 for never.
COUNTS = st.tuples(st.integers(40, 300), st.sampled_from([0, 0, 1, 2]))
REQUESTS = st.one_of(
    st.tuples(st.just("begin"), COUNTS),
    st.tuples(st.just("begin"), COUNTS),
    st.tuples(st.just("cancel"), COUNTS),
    st.tuples(st.just("rollback"), st.integers(0, 3)),
)
COMMITS = st.tuples(st.just("commit"), st.tuples(st.integers(0, 3), st.booleans()))


LONG = user("Please fix src/loader/cache_core.py:41 and run tests/unit/test_loader.py.")
# The checkpoint that is committed covers a human message that is the newest one after the edit, and does not show it.
CUT_AFTER_A_COMMIT: tuple[list[Message], list[Operation]] = (
    [call("a", "a"), result("a", LONG["content"]), result("a", ""), *[LONG] * 6],
    [
        ("add", [[LONG | {"role": "system"}]]),
        ("item", (0, "of a list")),
        ("add", [[result("a", LONG["content"])], [call("a", "a", "a")], [LONG], [result("b", LONG["content"])]]),
        ("begin", (195, 0)),
        ("add", [[LONG]]),
        ("commit", (0, False)),
        ("edit", (12, [])),
        ("begin", (40, 0)),
    ],
)
# With the system prompt it fits into the second request only.
ALMOST_TOO_LARGE: list[Message] = [
    LONG | {"role": "system"},
    result("a", LONG["content"]),
    user("Please fix src/loader/cache_core.py."),
    call("a"),
    result("a", LONG["content"]),
    call("a"),
    user(" " * 400 + "end"),
    LONG | {"role": "function"},
]


def is_whole(sent: SentView) -> bool:
    """True if the view, as it is now, fits into the request without being clipped."""
    return sum(shown.tokens for shown in sent.system) + sent.view.tokens <= sent.limits.capacity


class Session(Driver):
    """A session under operations, with requests that its provider counts.

    Attributes:
        open: requests that were begun.
        views: what plain requests were sent.
    """

    def __init__(self) -> None:
        store = MemoryStore()
        shared_cache.clear()
        super().__init__(lambda: store, "s", (None, None), {"max_tokens": BUDGET}, traces=False)
        self.open: list[Any] = []
        self.views: list[list[Message]] = []

    async def state(self) -> bytes:
        beside = [await self.manager.get_messages(), self.manager.session.items.changed_list(BUDGET) is None]
        return await state_of(self.manager) + json.dumps(beside).encode()

    async def _ask(self, which: int) -> bool:
        await super()._ask(which)
        self.views.append(self.last[which])
        return False

    async def _begin(self, counts: Any, *, cancelled: bool = False) -> bool:
        before = await self.state()
        ratio, failing = counts
        calls = itertools.count(1)

        async def count(view: list[Message]) -> dict[str, Any]:
            valid(view)
            if cancelled:
                await asyncio.sleep(0)
                raise asyncio.CancelledError
            return {"dispatch": 1, "budget_decision": None} if next(calls) == failing else await counting(ratio)(view)

        try:
            self.open.append(await self.manager.measured_request_view(count_view=count))
        except asyncio.CancelledError:
            assert cancelled
        assert await self.state() == before, "a request that was begun changed the session"
        return False

    async def _cancel(self, counts: Any) -> bool:
        return await self._begin(counts, cancelled=True)

    async def _rollback(self, number: int) -> bool:
        before = await self.state()
        for opened in self.open[number % len(self.open) :][:1] if self.open else ():
            opened["transaction"].rollback()
        assert await self.state() == before, "a rollback changed the session"
        return False

    async def _commit(self, argument: Any) -> None:
        if not self.open:
            return
        number, cancelled = argument
        transaction = self.open[number % len(self.open)]["transaction"]
        before, revision = await self.state(), self.manager.history.revision
        sent = await transaction.commit(is_cancelled=lambda: cancelled)
        assert sent or await self.state() == before, "a request that was not sent changed the session"
        assert await transaction.commit() is sent, "a second commit says something else"
        after = await self.state()
        transaction.rollback()
        assert await self.state() == after, "a rollback undid a commit"
        assert self.manager.history.revision == revision
        self.handed_out = None


@given(first=conversations(max_steps=4).map(flat), todo=st.lists(CHANGES | REQUESTS, max_size=14))
async def test_a_request_that_is_not_sent_leaves_view_state_and_history_as_without_it(
    first: list[Message], todo: list[Operation]
) -> None:
    plain = [operation for operation in todo if operation[0] not in ("begin", "cancel", "rollback")]
    results: list[Any] = []
    for operations in (todo, plain):
        session = Session()
        await session.manager.set_messages(first)
        await session.carry_out([*operations, ("ask", 0)])
        for opened in session.open:
            opened["transaction"].rollback()
        results.append((session.views, await session.state(), await session.manager.get_messages()))
    assert results[0] == results[1]


@given(first=conversations(max_steps=4).map(flat), todo=st.lists(CHANGES | REQUESTS | COMMITS, max_size=14))
@example(*CUT_AFTER_A_COMMIT)
async def test_whatever_is_committed_every_view_is_valid_and_each_end_is_final(
    first: list[Message], todo: list[Operation]
) -> None:
    session = Session()
    await session.manager.set_messages(first)
    await session.carry_out([*todo, ("ask", 0)])


@given(first=conversations(max_steps=6).map(flat), counts=COUNTS, more=st.lists(ANY_STEPS, max_size=3))
@example(ALMOST_TOO_LARGE, (269, 0), [])
async def test_the_next_request_begins_with_the_one_that_was_committed(
    first: list[Message], counts: Any, more: Any
) -> None:
    session = Session()
    await session.manager.set_messages(first)
    await session.carry_out([("item", (1, "of a list")), ("begin", counts)])
    result = session.open[0]
    assert await result["transaction"].commit() is True
    assert "[i1] item 1" in result["base_view"][-1]["content"]
    sent = session.manager.compactor.last_sent
    await session.carry_out([("ask", 0)])
    again = session.manager.compactor.last_sent
    # Otherwise it is clipped, as far as each of them calls for.
    if again.view is sent.view and is_whole(sent) and is_whole(again):
        assert session.views[-1] == result["base_view"]


MOMENTS = st.tuples(st.sampled_from(["answer", "pause", "undo"]), st.none())
TALK = work(60, output=900)[:41]
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


@pytest.mark.kernel
@given(todo=st.lists(CHANGES | REQUESTS | COMMITS | MOMENTS, max_size=12))
async def test_a_request_that_is_not_sent_changes_nothing_whenever_a_model_answers(todo: list[Operation]) -> None:
    """From a session that was compacted while its model had not answered yet."""
    session = Written()
    manager = session.manager
    for message in TALK:
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
