"""Whatever a caller does to what it handed in or got back, what is stored stays as it was."""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, new_manager
from tests.messages import Message, digest, text, work

BUDGET = 4_000


def vandalise(value: Any) -> None:
    """Change every dict and every list in there, however deep."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        vandalise(item)
    if isinstance(value, dict):
        value.update(dict.fromkeys([*value, "VANDALISED"], "VANDALISED"))
    elif isinstance(value, list):
        value.append("VANDALISED")


def every_shape() -> list[Message]:
    """Blocks, calls of two spellings, nested results and metadata."""
    talk = ConversationBuilder("kernel").system("Prompt.", metadata={"source": "hook", "tags": ["a", {"b": ["c"]}]})
    talk.user([{"type": "text", "text": "Read.", "extra": {"deep": [1, [2]]}}])
    (made,) = talk.call(("read", {"paths": ["a", {"b": ["c"]}]}), text="Reading.", metadata={"items": [{"x": [1]}]})
    talk.result(made, [{"type": "text", "text": "out", "annotations": [{"k": ["v"]}]}])
    return [*talk.messages, *work(2)[1:]]


@pytest.mark.parametrize("put", ["added", "set", "given back"])
async def test_messages_that_went_in_stay_as_they_are_and_may_be_changed(put: str) -> None:
    manager = new_manager()
    messages = every_shape()
    before = deepcopy(messages)
    await (feed(manager, messages) if put == "added" else manager.set_messages(messages))
    assert messages == before
    if put == "given back":
        messages = await manager.get_messages()
        await manager.set_messages(messages)
    history = digest(await manager.get_messages())
    vandalise(messages)
    assert digest(await manager.get_messages()) == history


async def snapshot(manager: ContextManager) -> list[Message]:
    """Messages of a snapshot, by each way to reach them."""
    one = manager.snapshot()
    found = one.find(2)
    assert found is not None
    return [*(entry.message for entry in one), one[0].message, one[-1].message, one[1:3][0].message, found.message]


async def report(manager: ContextManager) -> dict[str, Any]:
    found = await manager.explain()
    found.pop("summary", None)  # what each request adds to the money of summaries
    return found


Get = Callable[[ContextManager], Awaitable[Any]]


@pytest.mark.parametrize(
    ("rounds", "get"),
    [  # of views and the history it is a law
        (60, lambda manager: manager.request_retention(retain_contents=["Do the work."], token_budget=BUDGET)),
        (2, snapshot),
        (2, lambda manager: manager.recall("m3")),
        (60, report),
    ],
)
async def test_what_came_out_may_be_changed(rounds: int, get: Get) -> None:
    manager = await feed(new_manager(merge_consecutive=True), [*every_shape(), *work(rounds)])
    history, shown = digest(await manager.get_messages()), digest(await ask(manager, BUDGET))
    got = await get(manager)
    before = deepcopy(got)
    vandalise(got)
    assert await get(manager) == before
    assert digest(await manager.get_messages()) == history
    assert digest(await ask(manager, BUDGET)) == shown


async def test_the_payload_of_an_event_and_what_compact_reports_may_be_changed() -> None:
    class Vandal:
        async def emit(self, event: str, data: dict[str, Any]) -> None:
            vandalise(data)

    manager = await feed(new_manager(hooks=Vandal()), [*every_shape(), *work(60)])
    view = await ask(manager, BUDGET)
    assert "VANDALISED" not in text(view)
    vandalise(await manager.compact())
    assert "VANDALISED" not in text(await ask(manager, BUDGET))
    assert "VANDALISED" not in text([await manager.explain()])


async def test_a_child_starts_from_its_parents_checkpoint_if_its_history_begins_as_the_parents() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    before = await ask(parent, BUDGET)
    assert int((await parent.explain())["view"]["checkpoint"][1:]) > 100
    messages = await parent.get_messages()
    for first, compactions in ((messages[0]["content"], 0), ("Do something else.", 1)):
        messages[0]["content"] = first
        child = new_manager(session_id=f"child-{compactions}")
        await child.set_messages(messages)
        view = await ask(child, BUDGET)
        assert (text(view) == text(before), view[0]["content"]) == (not compactions, first)
        assert (await child.explain())["compactions"] == compactions


@pytest.mark.parametrize(
    "register",
    [
        lambda manager: manager.compact_summary("call_3", "PRIVATE"),
        lambda manager: manager.pin("m5"),
        lambda manager: manager.compact("PRIVATE"),
    ],
    ids=["short form", "pin", "focus"],
)
async def test_what_one_session_registered_shows_in_no_other_with_the_same_messages(register: Get) -> None:
    stamp = {"timestamp": "2026-01-01T00:00:00.000+00:00"}
    messages = [{**message, "metadata": stamp} for message in work(40, output=1_000)]
    first, second = new_manager(session_id="a"), new_manager(session_id="b")
    await first.set_messages(messages)
    await register(first)
    await ask(first, BUDGET)
    assert first.compactor.compactions
    await second.set_messages(messages)
    assert "PRIVATE" not in text(await ask(second, BUDGET))
    assert second.compactor.compactions  # nothing was taken over
