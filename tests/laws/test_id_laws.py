"""Laws of ids and names: whatever a history calls its calls, a view has ids that are valid, unique and consistent."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager
from amplifier_context_core.rendering.provider_limits import safe_call_id
from amplifier_context_testing import check_request
from tests.managers import feed
from tests.messages import result, user

from .histories import UNSAFE_IDS, Message, callings, results, thoughtless
from .managers import new_manager

ANY_IDS = st.one_of(st.text(min_size=1, max_size=60), st.sampled_from([*UNSAFE_IDS, "call_1", "x" * 41])).filter(
    lambda text: text.strip() != ""
)


@st.composite
def called(draw: st.DrawFn) -> list[Message]:
    """A human's message, then calls under any ids, some of them again, each answered at once."""
    ids = st.sampled_from(draw(st.lists(ANY_IDS, min_size=1, max_size=6)))
    messages = [user("Go.")]
    for _ in range(draw(st.integers(1, 4))):
        message = draw(callings(ids=ids))
        messages.append(message)
        stated = message.get("tool_calls") or [b for b in message["content"] if b["type"].startswith("tool_")]
        messages.extend(draw(results(item["id"])) for item in stated)
    return [{key: value for key, value in message.items() if key != "metadata"} for message in messages]


def ids_of(messages: list[Message]) -> set[str]:
    return {item["id"] for message in messages for item in message.get("tool_calls") or ()}


async def added(context: ContextManager, messages: list[Message]) -> list[Message]:
    await feed(context, messages)
    return await context.get_messages_for_request(token_budget=1_000_000)


@given(called())
@example(
    [
        user("Go.", name="Dr. No"),
        {"role": "assistant", "tool_calls": [{"id": safe_call_id("a.b"), "tool": "f", "arguments": {}}]},
        result(safe_call_id("a.b"), "1"),
        {"role": "assistant", "tool_calls": [{"id": "a.b", "tool": "web.search", "arguments": {}}]},
        result("a.b", "2", name="web.search"),
    ]
)
async def test_ids_and_names_of_a_view_are_valid_unique_and_consistent(messages: list[Message]) -> None:
    context = new_manager()
    view = await added(context, messages)
    assert check_request(view) == []  # ids are unique, each result answers a call, characters and lengths
    for message in view:
        listed = [item["id"] for item in message.get("tool_calls") or ()]
        content = message["content"] if isinstance(message["content"], list) else []
        assert [b["id"] for b in content if b["type"] == "tool_call"] in ([], listed)
    stored = await context.get_messages()
    assert [m.get("tool_calls") for m in stored] == [m.get("tool_calls") for m in messages]
    report = await context.explain()
    assert report["warnings"] == []
    rule = "an id or a name that a provider refuses is sent in another form"
    assert any(rule in row["rule"] for row in report["rounds"]) or not {*UNSAFE_IDS} & ids_of(messages)


@given(called(), st.integers(1, 10))
async def test_ids_do_not_change_as_the_history_grows(messages: list[Message], cut: int) -> None:
    context = new_manager()
    before: list[Message] = []
    for message in messages:
        await context.add_message(message)
        view = await context.get_messages_for_request(token_budget=1_000_000)
        open_call = any("[no result" in str(shown["content"]) for shown in before)
        assert open_call or view[: len(before)] == before
        before = view
    other = new_manager(session_id="another", kindred=True)
    await other.set_messages(messages[:cut])
    assert thoughtless(await added(other, messages[cut:])) == thoughtless(before)
