"""Alignment: an echo is distinguished from an edit, and every message keeps its identity through both."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.timestamps import timestamp_of
from amplifier_context_core.transcript.alignment import Alignment, align, same_message
from amplifier_context_core.transcript.entry import Entry
from tests.core.drafts import transcript
from tests.messages import Message, block, call, result, says, system, user

HISTORY = (
    system("You are careful."),
    user("Fix the loader."),
    says([{"type": "thinking", "thinking": "hm", "signature": "s"}, block("Reading.")], tool_calls=None),
    call("a"),
    result("a", "out"),
    system("todo: 1", metadata={"source": "hook", "hook_name": "todo"}),
    says("Done."),
    user("Thanks."),
)


def aligned(stored: tuple[Message, ...] | list[Message], incoming: list[Message]) -> Alignment:
    return align(list(transcript(stored).snapshot()), [parse_message(message) for message in incoming])


def resulting_order(found: Alignment) -> list[int | str]:
    """Seqs of what stays, texts of what is new."""
    return [item.seq if isinstance(item, Entry) else str(item[0].get("content")) for item in found.order]


def filtered(messages: Any) -> list[Message]:
    """As hosts save a transcript: no system messages, no null keys, no thinking."""
    kept: list[Message] = []
    for message in copy.deepcopy(list(messages)):
        if message["role"] in ("system", "developer"):
            continue
        if isinstance(message["content"], list):
            message["content"] = [one for one in message["content"] if one.get("type") != "thinking"]
        kept.append({key: value for key, value in message.items() if value is not None})
    return kept


ALL = list(range(1, 9))


# -- echoes -----------------------------------------------------------------------------------------------------------


def test_the_same_list_is_an_echo() -> None:
    found = aligned(HISTORY, list(HISTORY))
    assert resulting_order(found) == ALL
    assert not found.changed


def test_a_filtered_list_is_an_echo_and_what_was_filtered_stays_in_its_place() -> None:
    found = aligned(HISTORY, filtered(HISTORY))
    assert resulting_order(found) == ALL
    assert not found.changed


def test_the_second_time_with_its_system_prompt_it_is_an_echo_too() -> None:
    assert not aligned(HISTORY, [HISTORY[0], *filtered(HISTORY)]).changed


@pytest.mark.parametrize(
    "change",
    [
        lambda m: {**m, "metadata": {**m.get("metadata", {}), "timestamp": "2026"}},
        lambda m: {**m, "timestamp": "2026"},
        lambda m: {**m, "name": None},
        lambda m: {**m, "content": f" {m['content']}\n"} if isinstance(m["content"], str) else m,
        lambda m: {**m, "content": [block(m["content"])]} if isinstance(m["content"], str) else m,
        lambda m: {**m, "content": m["content"] or ""},
    ],
    ids=["timestamp", "top timestamp", "null name", "white space", "one text block", "null content"],
)
def test_what_filters_leave_of_a_message_is_the_same_message(change: Any) -> None:
    found = aligned(HISTORY, [change(message) for message in HISTORY])
    assert resulting_order(found) == ALL
    assert not found.changed


def test_a_call_in_another_spelling_with_the_same_id_is_the_same_call() -> None:
    arguments = {"path": "src/a.py"}
    blocks = says([{"type": "tool_call", "id": "a", "name": "read", "input": arguments}])
    listed = says(None, tool_calls=[{"id": "a", "tool": "read", "arguments": arguments}])
    assert not aligned([blocks], [listed]).changed


# -- edits ------------------------------------------------------------------------------------------------------------


def test_what_comes_after_all_that_is_stored_is_new() -> None:
    found = aligned(HISTORY, [*filtered(HISTORY), user("And now?")])
    assert resulting_order(found) == [*ALL, "And now?"]
    assert found.changed


def test_a_result_put_in_the_middle_moves_nothing_else() -> None:
    broken = (user("Go."), call("a", "b"), result("a", "one"), says("Done."))
    repaired = [*broken[:3], result("b", "repaired"), broken[3]]
    assert resulting_order(aligned(broken, repaired)) == [1, 2, 3, "repaired", 4]


def test_a_shortened_list_is_an_edit_that_keeps_what_is_left() -> None:
    assert resulting_order(aligned(HISTORY, filtered(HISTORY)[:3])) == [1, 2, 3, 4, 6]
    assert resulting_order(aligned(HISTORY, list(HISTORY[:2]))) == [1, 2, 6]


def test_a_changed_text_is_an_edit() -> None:
    incoming = list(copy.deepcopy(HISTORY))
    incoming[6]["content"] = "Done otherwise."
    assert resulting_order(aligned(HISTORY, incoming)) == [1, 2, 3, 4, 5, 6, "Done otherwise.", 8]


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"pinned": True}},
        {"metadata": {"ephemeral": True}},
        {"role": "user"},
        {"content": "done."},
        {"content": [block("Done."), {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}}]},
    ],
    ids=str,
)
def test_a_change_that_decides_how_a_message_is_shown_is_an_edit(change: dict[str, Any]) -> None:
    assert aligned([says("Done.")], [{**says("Done."), **change}]).changed


def test_another_image_is_another_message() -> None:
    one, other = ({"type": "image", "source": {"type": "url", "url": f"https://example.com/{n}"}} for n in "ab")
    assert aligned([user([block("x"), one])], [user([block("x"), other])]).changed


def test_other_arguments_are_another_call() -> None:
    assert aligned([call("a", path="x")], [call("a", path="y")]).changed


def test_another_tool_is_another_call() -> None:
    """With the same arguments too: sessions reuse ids, so both may be stored."""
    assert aligned([call("a", name="read")], [call("a", name="bash")]).changed


def test_another_history_leaves_nothing_of_the_old_one() -> None:
    assert resulting_order(aligned(HISTORY, [user("Something else."), says("Yes.")])) == ["Something else.", "Yes."]


def test_a_system_prompt_of_its_own_takes_the_place_of_ours() -> None:
    found = aligned(HISTORY, [system("You are bold."), *filtered(HISTORY)])
    assert resulting_order(found) == ["You are bold.", *ALL[1:]]


def test_an_empty_list_empties_the_history() -> None:
    found = aligned(HISTORY, [])
    assert resulting_order(found) == []
    assert found.changed
    assert not aligned([], []).changed


def test_a_list_into_an_empty_history_is_new_as_a_whole() -> None:
    found = aligned([], list(HISTORY))
    assert found.changed
    assert len(found.order) == 8


def test_repeated_messages_are_paired_one_by_one() -> None:
    again = (user("continue"), says("ok"), user("continue"), says("ok"), user("continue"))
    assert not aligned(again, list(again)).changed
    assert resulting_order(aligned(again, [*again, says("ok")])) == [1, 2, 3, 4, 5, "ok"]
    assert len(aligned(again, list(again[:3])).order) == 3


def test_of_repeated_messages_the_timestamp_identifies_the_one_that_stayed() -> None:
    def at(message: Message, second: int) -> Message:
        return {**message, "metadata": {"timestamp": f"2026-01-01T00:00:0{second}.000+00:00"}}

    again = (at(user("continue"), 1), at(says("ok"), 2), at(user("continue"), 3), at(says("ok"), 4))
    assert resulting_order(aligned(again, list(again[2:]))) == [3, 4]
    assert resulting_order(aligned(again, list(again[:2]))) == [1, 2]
    assert resulting_order(aligned(again, [again[0], again[3]])) == [1, 4]


def test_the_same_text_at_another_time_is_an_echo_where_nothing_matches_better() -> None:
    stamped = user("x", metadata={"timestamp": "2026-01-01T00:00:01.000+00:00"})
    assert not aligned([stamped], [user("x", metadata={"timestamp": "2027-01-01T00:00:01.000+00:00"})]).changed


def test_large_lists_are_aligned_too() -> None:
    many = [user(f"message {number % 700}") for number in range(3_000)]
    found = aligned(many, [*many[1_000:2_000], *many[2_500:], user("new")])
    kept = [item.seq for item in found.order if isinstance(item, Entry)]
    assert len(found.order) == 1_501
    assert len(kept) == 1_500
    assert kept == sorted(kept)


def test_the_new_history_is_always_what_came_in_but_for_filtered_instructions() -> None:
    for incoming in ([HISTORY[1], HISTORY[6]], [*HISTORY[4:], *HISTORY[:3]], [user("x"), *HISTORY[3:5], user("y")]):
        found = aligned(HISTORY, list(incoming))
        texts = [
            item.message if isinstance(item, Entry) else item[0]
            for item in found.order
            if (item.role if isinstance(item, Entry) else item[1].role) != "system"
        ]
        assert [t.get("content") for t in texts] == [m.get("content") for m in incoming if m["role"] != "system"]


# -- one message ------------------------------------------------------------------------------------------------------


def test_one_message_is_compared_like_a_list() -> None:
    entry = transcript([says("Done.")]).snapshot()[0]
    assert same_message(entry, *parse_message(says([block("Done. ")])))
    assert not same_message(entry, *parse_message(says("Done?")))
    assert not same_message(entry, *parse_message(user("Done.")))


@pytest.mark.parametrize(
    ("message", "stamp"),
    [
        (user("x", metadata={"timestamp": "2026"}), "2026"),
        (user("x", timestamp="2026"), "2026"),
        (user("x", timestamp="2025", metadata={"timestamp": "2026"}), "2026"),
        (user("x", timestamp="2025", metadata={"timestamp": ""}), "2025"),
        (user("x", timestamp=5), None),
        (user("x"), None),
    ],
)
def test_the_time_of_a_message_is_read_in_both_places(message: Message, stamp: str | None) -> None:
    assert timestamp_of(message) == stamp


@pytest.mark.parametrize("stamp", [1732132.5, 1732132, {"at": "2026"}, True])
async def test_a_time_that_is_no_text_is_stored_as_it_came(stamp: Any) -> None:
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=Plugins())
    await manager.add_message(user("x", metadata={"timestamp": stamp}))
    assert await manager.get_messages() == [user("x", metadata={"timestamp": stamp})]


@pytest.mark.parametrize("empty", [None, ""])
async def test_a_message_without_a_time_gets_one(empty: Any) -> None:
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=Plugins(), clock=lambda: "now")
    await manager.add_message(user("x", metadata={"timestamp": empty}))
    await manager.add_message(user("y"))
    assert [message["metadata"] for message in await manager.get_messages()] == [{"timestamp": "now"}] * 2
