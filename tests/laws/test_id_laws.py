"""Laws of what a message says: rounds and their rendering, ids, names, and arguments of calls, in any shape."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.messages.parsing import arguments_of, calls_of, parse_message
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.provider_limits import safe_call_id
from amplifier_context_core.rendering.renderer import NOTE_METADATA, Renderer
from amplifier_context_core.rendering.rounds import RoundList, rounds_of
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing import check_request
from tests.core.drafts import rounds, transcript
from tests.managers import feed
from tests.messages import block, call, nested, result, says, user

from .histories import UNSAFE_IDS, Message, callings, conversations, flat, json_of, results, thoughtless
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


def entries_of(messages: list[Message]) -> list[Entry]:
    return list(transcript(messages).snapshot())


def shown(messages: list[Message]) -> list[Message]:
    renderer = Renderer(approx_token_counter, 1 << 40)
    entries = entries_of(messages)
    for entry in entries:
        renderer.register_calls(entry)
    view: list[Message] = []
    for round_ in rounds_of(entries):
        for one in renderer.render(round_).messages:
            assert one.tokens == count_message_tokens(one.message)
            view.append(one.message)
    return view


OUTPUT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
RETIRED_CALL_ANSWERED_TWICE: list[list[Message]] = [
    [user("task")],
    [call("a", metadata={"amplifier:instruction": {"disposition": "retired"}}), user([OUTPUT] * 2)],
]


@given(conversations())
@example(RETIRED_CALL_ANSWERED_TWICE)
def test_every_entry_is_in_one_round_and_every_call_answered_in_its_own(steps: list[Any]) -> None:
    """Rounds that grow entry by entry are the rounds of the whole."""
    entries, grown = entries_of(flat(steps)), RoundList()
    for place, entry in enumerate(entries, 1):
        before = list(grown.rounds)
        changed = grown.add(entry)
        assert before[:changed] == grown.rounds[:changed]
        assert 0 <= grown.closed <= len(grown)
        if place % 5 == 0 or place == len(entries):
            assert grown.rounds == rounds_of(entries[:place])
    assert sorted(entry.seq for round_ in grown.rounds for entry in round_.entries) == [one.seq for one in entries]
    for round_ in grown.rounds:
        made = [one for entry in round_.entries if entry.role == "assistant" for one in entry.call_ids]
        answered = [one for entry in round_.entries for one in entry.answered_ids]
        for one in {*made, *round_.unanswered}:
            assert round_.unanswered.count(one) <= made.count(one) <= answered.count(one) + round_.unanswered.count(one)


@given(conversations())
def test_rendering_is_idempotent_and_shows_what_a_human_wrote_word_for_word(steps: list[Any]) -> None:
    messages = flat(steps)
    view = shown(messages)
    spoken = {str(message["content"]) for message in view if message["role"] == "user"}
    for message in messages:
        text = message.get("content")
        plain = isinstance(text, str) and text.strip() and text.isprintable() and not message.get("tool_calls")
        if plain and message["role"] == "user" and not message.get("metadata"):
            assert text in spoken
    assert shown(view) == view


LATE_WORDS: list[list[Message]] = [[call("a")], [user("task"), says("Yes.")], [user([OUTPUT, block("newest")])]]


@given(conversations())
@example(LATE_WORDS)
def test_words_of_a_person_come_after_all_older_messages_of_people_and_agents(turns: list[list[Message]]) -> None:
    entries = {entry.seq: entry for entry in entries_of(flat(turns))}
    seqs: list[int] = []
    for round_ in rounds_of(entries.values()):
        for one in Renderer(approx_token_counter, 1 << 40).render(round_).messages:
            role, is_note = one.message["role"], one.message.get("metadata") == NOTE_METADATA
            if role == "assistant" or (role == "user" and entries[one.seq].human and not is_note):
                seqs.append(one.seq)
    for place, seq in enumerate(seqs):
        if entries[seq].human:
            assert not [later for later in seqs[place + 1 :] if later < seq]


VALUES = json_of(st.text(max_size=8))
TEXTS = VALUES.map(json.dumps) | st.sampled_from(["", " ", "{", '{"a": ', "[1]", "null", "NaN", '"\\ud83d"', "1e999"])
GIVEN = st.one_of(VALUES, TEXTS)
HUGE = [{"row": number, "text": "x" * 400} for number in range(500)]
NESTED = nested(60, [])

BLOCK_SHAPES = ("tool_use", "tool_call")
LIST_SHAPES = ("function", "arguments", "input", "named")
SHAPES = (*BLOCK_SHAPES, *LIST_SHAPES, *(f"{one}+{other}" for one in BLOCK_SHAPES for other in LIST_SHAPES))


def calling(shape: str, value: Any) -> Message:
    """An assistant's message that gives these arguments in a shape; in a joined one both state the same call."""
    stated: dict[str, Message] = {
        "function": {"type": "function", "function": {"name": "look", "arguments": value}},
        "named": {"name": "look", "arguments": value},
        "arguments": {"tool": "look", "arguments": value},
        "input": {"tool": "look", "input": value},
    }
    message: Message = {"role": "assistant", "content": ""}
    for part in shape.split("+"):
        if part in BLOCK_SHAPES:
            message["content"] = [{"type": part, "id": "c1", "name": "look", "input": value}]
        else:
            message["tool_calls"] = [{"id": "c1", **stated[part]}]
    return message


def meant(value: Any) -> dict[str, Any]:
    """What arguments mean, by the words of the documentation."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
            json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
        except ValueError:
            return {"unparsed_arguments": value}
        value = parsed
    return value if isinstance(value, dict) else {"value": value}


def canonical(value: Any) -> str:
    """JSON text: Python takes 1, 1.0 and true for equal."""
    return json.dumps(value, sort_keys=True)


def shown_arguments(message: Message) -> set[str]:
    """The arguments of the one call a message of a view makes, as each place of it has them."""
    found: list[Any] = []
    for item in message["tool_calls"]:
        function = item.get("function")
        found.append(json.loads(function["arguments"]) if function else item["arguments"])
    content = message["content"]
    found.extend(b["input"] for b in content if b["type"] == "tool_call") if isinstance(content, list) else None
    return {canonical(arguments) for arguments in found}


@given(GIVEN, st.sampled_from(SHAPES))
@example([1], "tool_use")
@example([], "tool_use")
@example(True, "tool_call+function")
@example(HUGE, "tool_use")
@example(NESTED, "tool_call")
@example(10**30, "function")
@example(str(10**30), "tool_use+function")
@example(json.dumps({"id": 10**30}), "tool_call+function")
@example("1e999", "tool_use+function")
@example('"\\ud83d"', "tool_use+function")
async def test_arguments_mean_the_same_in_the_block_the_list_and_the_digest(value: Any, shape: str) -> None:
    stored = calling(shape, value)
    (call,) = calls_of(parse_message(stored)[0])
    expected = canonical(meant(value))
    assert canonical(arguments_of(call)) == expected
    context = await feed(new_manager(), (user("Go."), stored, result("c1")))
    view = await context.get_messages_for_request()
    assert check_request(view) == []
    assert shown_arguments(view[1]) == {expected}
    assert (await context.get_messages())[1]["content"] == stored["content"]
    await context.compact()
    assert check_request(await context.get_messages_for_request()) == []
    assert digest_round(rounds(stored, result("c1"))[0], set(), approx_token_counter, share=1.0).facts


@given(VALUES, VALUES, st.sampled_from(BLOCK_SHAPES), st.sampled_from(LIST_SHAPES))
@example(1, True, "tool_use", "arguments")
async def test_a_call_stated_with_two_values_is_shown_with_that_of_the_list(
    one: Any, other: Any, block: str, listed: str
) -> None:
    stored = {**calling(block, one), "tool_calls": calling(listed, other)["tool_calls"]}
    context = await feed(new_manager(), (user("Go."), stored, result("c1")))
    view = await context.get_messages_for_request()
    assert check_request(view) == []
    assert shown_arguments(view[1]) == {canonical(meant(other))}
