"""Laws of measured requests: one that is not sent leaves no trace, whatever happens between its begin and its end."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import PinRefused
from amplifier_context_core.items import ContextItem
from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.sent_view import SentView
from amplifier_context_core.view.session_state import dump
from tests.managers import feed
from tests.messages import call, result, user

from .histories import ANY_STEPS, Message, conversations, flat
from .managers import counting, new_manager, valid

BUDGET = 900  # tokens; small, so that a few steps call for a compaction

Operation = tuple[str, Any]

CHANGES = st.one_of(
    st.tuples(st.just("add"), st.lists(ANY_STEPS, min_size=1, max_size=4)),
    st.tuples(st.just("add"), st.lists(ANY_STEPS, min_size=1, max_size=4)),
    st.tuples(st.just("ask"), st.none()),
    st.tuples(st.just("item"), st.integers(0, 5)),
    st.tuples(st.just("queue"), st.integers(0, 5)),
    st.tuples(st.sampled_from(["forget", "pin", "undo"]), st.integers(0, 30)),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("set"), st.tuples(st.integers(0, 40), st.lists(ANY_STEPS, max_size=2))),
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
        ("item", 0),
        ("add", [[result("a", LONG["content"])], [call("a", "a", "a")], [LONG], [result("b", LONG["content"])]]),
        ("begin", (195, 0)),
        ("add", [[LONG]]),
        ("commit", (0, False)),
        ("set", (12, [])),
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


class Session:
    """A manager under operations.

    Attributes:
        open: transactions that were begun, with the views they were begun for.
        views: what plain requests were sent, as JSON text.
    """

    def __init__(self) -> None:
        self.manager = new_manager(max_tokens=BUDGET)
        self.open: list[Any] = []
        self.views: list[str] = []

    async def state(self) -> bytes:
        manager = self.manager
        counter = await manager.token_counter()
        state = collect_state(manager.history, manager.compactor, counter, {})
        beside = [await manager.get_messages(), manager.session.items.changed_list(BUDGET) is None]
        return dump(state) + json.dumps(beside).encode()

    async def add(self, steps: Any) -> None:
        await feed(self.manager, flat(steps))

    async def item(self, number: int) -> None:
        await self.manager.pool.add(ContextItem(number, f"item {number}", f"i{number % 3}"))

    async def queue(self, number: int) -> None:
        await self.manager.queue.append(ContextItem(f"item {number}"))

    async def forget(self, place: int) -> None:
        await self.manager.forget([f"m{place}"], trace=False)  # its salt is drawn at random

    async def pin(self, place: int) -> None:
        with suppress(PinRefused):
            await self.manager.pin(f"m{place}")

    async def undo(self, place: int) -> None:
        await self.manager.undo(f"m{place}" if place else None)

    async def compact(self, _: None) -> None:
        await self.manager.compact()

    async def set(self, argument: Any) -> None:
        place, steps = argument
        messages = await self.manager.get_messages()
        await self.manager.set_messages([*messages[: place % (len(messages) + 1)], *flat(steps)])

    async def ask(self, _: None) -> None:
        self.views.append(json.dumps(valid(await self.manager.get_messages_for_request())))

    async def begin(self, counts: Any, *, cancelled: bool = False) -> None:
        before = await self.state()
        ratio, failing = counts
        calls = 0

        async def count(view: list[Message]) -> dict[str, Any]:
            nonlocal calls
            calls += 1
            valid(view)
            if cancelled:
                await asyncio.sleep(0)
                raise asyncio.CancelledError
            if calls == failing:
                return {"dispatch": calls, "budget_decision": None}
            return await counting(ratio)(view)

        try:
            result = await self.manager.measured_request_view(count_view=count)
        except asyncio.CancelledError:
            assert cancelled
        else:
            self.open.append(result)
        assert await self.state() == before, "a request that was begun changed the session"

    async def cancel(self, counts: Any) -> None:
        await self.begin(counts, cancelled=True)

    async def rollback(self, number: int) -> None:
        if self.open:
            before = await self.state()
            transaction = self.open[number % len(self.open)]["transaction"]
            transaction.rollback()
            assert await self.state() == before, "a rollback changed the session"

    async def commit(self, argument: Any) -> None:
        if not self.open:
            return
        number, cancelled = argument
        result = self.open[number % len(self.open)]
        before, revision = await self.state(), self.manager.history.revision
        sent = await result["transaction"].commit(is_cancelled=lambda: cancelled)
        if not sent:
            assert await self.state() == before, "a request that was not sent changed the session"
        assert await result["transaction"].commit() is sent, "a second commit says something else"
        after = await self.state()
        result["transaction"].rollback()
        assert await self.state() == after, "a rollback undid a commit"
        assert self.manager.history.revision == revision

    async def run(self, todo: list[Operation]) -> None:
        for name, argument in todo:
            await getattr(self, name)(argument)


@given(first=conversations(max_steps=4).map(flat), todo=st.lists(CHANGES | REQUESTS, max_size=14))
async def test_a_request_that_is_not_sent_leaves_view_state_and_history_as_without_it(
    first: list[Message], todo: list[Operation]
) -> None:
    plain = [operation for operation in todo if operation[0] not in ("begin", "cancel", "rollback")]
    results: list[Any] = []
    for operations in (todo, plain):
        session = Session()
        await session.manager.set_messages(first)
        await session.run([*operations, ("ask", None)])
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
    await session.run([*todo, ("ask", None)])


@given(first=conversations(max_steps=6).map(flat), counts=COUNTS, more=st.lists(ANY_STEPS, max_size=3))
@example(ALMOST_TOO_LARGE, (269, 0), [])
async def test_the_next_request_begins_with_the_one_that_was_committed(
    first: list[Message], counts: Any, more: Any
) -> None:
    session = Session()
    await session.manager.set_messages(first)
    await session.item(1)
    await session.begin(counts)
    result = session.open[0]
    assert await result["transaction"].commit() is True
    assert "[i1] item 1" in result["base_view"][-1]["content"]
    sent = session.manager.compactor.last_sent
    assert sent is not None
    await session.ask(None)
    again = session.manager.compactor.last_sent
    assert again is not None
    # Otherwise it is clipped, as far as each of them calls for.
    if again.view is sent.view and is_whole(sent) and is_whole(again):
        assert json.loads(session.views[-1]) == json.loads(json.dumps(result["base_view"]))
