"""A list of another framework's objects, fitted to a budget."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, MemoryStore, count_tokens, load_config
from amplifier_context_core.compat import fitted
from amplifier_context_testing import checked
from tests.messages import SIGNED, call, result, user

BUDGET = 1_000  # tokens


def context(**arguments: Any) -> ContextManager:
    return ContextManager(load_config({"max_tokens": BUDGET}), **arguments)


def turns(sizes: list[int]) -> list[tuple[object, dict[str, Any]]]:
    """A task, and rounds with outputs of so many lines; each message with an object of its own."""
    messages = [user("Look at all.")]
    for number, lines in enumerate(sizes):
        messages += [{**call(f"c{number}"), "content": [SIGNED]}, result(f"c{number}", "nothing here\n" * lines)]
    return [(object(), message) for message in messages]


@given(st.lists(st.integers(0, 600), max_size=12))
@settings(max_examples=15)
async def test_a_request_is_valid_and_what_is_whole_says_what_its_source_says(sizes: list[int]) -> None:
    history = turns(sizes)
    own = context()
    for end in range(1, len(history) + 1, 2):
        shown = await fitted(own, history[:end])
        assert count_tokens(checked([one.message for one in shown])) <= BUDGET
        given = {id(source): message for source, message in history}
        for one in shown:
            message = given[id(one.source)] if one.source is not None else {}
            assert one.is_whole == (one.message["content"] == message.get("content"))
            assert one.source is None or one.message["role"] == message["role"]
    assert len(await own.get_messages()) == len(history)


async def test_the_next_process_knows_the_sources_and_sends_the_same() -> None:
    store = MemoryStore()
    history = turns([40] * 12)
    before = await fitted(context(store=store), history)
    after = await fitted(context(store=store), history)
    assert before == after
    assert any(one.is_whole for one in after)
    equal = [(name, user("yes")) for name in ("first", "second", "third")]
    assert [one.source for one in await fitted(context(), equal)] == ["first", "second", "third"]


async def test_a_message_whose_content_was_erased_is_not_sent_as_its_source() -> None:
    own = context()
    history = [("key", user("My key is sk-1234.")), ("next", user("Go on."))]
    await fitted(own, history)
    await own.forget(["m1"])
    shown = await fitted(own, history)
    assert [(one.source, one.is_whole) for one in shown] == [(None, False), ("next", True)]
    assert "sk-1234" not in str(shown)
