"""Protected messages: what must stay is found before anything goes, and clipped only where it leaves no room at all."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.compaction.checkpoint import Draft, Segment
from amplifier_context_core.compaction.protected import (
    Protection,
    clip_protected,
    clip_rendered,
    clip_segment,
    mark_protected,
    notice_of,
    protected_tokens,
)
from amplifier_context_core.compaction.strategies import FoldRounds, Goal
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.conversation_builder import image_block
from tests.core.drafts import segments
from tests.messages import SIGNED, Message, block, call, result, says, system, user

PINNED = {"pinned": True}
WORDS = " ".join(f"word{number:04d}" for number in range(2_000))


def why(*messages: Message, pins: Any = (), pin_tokens: int = 10_000, later: int = 0) -> dict[str, str]:
    """Reasons by mark; the last `later` segments are after those that are marked."""
    both = segments(*messages)
    cut = len(both) - later
    marked, _ = mark_protected(both[:cut], Protection(pins, pin_tokens, later=both[cut:]))
    return {segment.mark: segment.protected_because for segment in marked if segment.protected_because}


def shown(message: Message) -> RenderedMessage:
    return RenderedMessage(message, count_message_tokens(message), 7)


# -- what belongs to it -----------------------------------------------------------------------------------------------


def test_the_task_the_newest_prompt_and_the_newest_round_stay() -> None:
    assert why(says("hi"), user("task"), says(), user("more"), says(), user("newest"), call("a"), result("a")) == {
        "m2": "task",
        "m6": "newest human message",
        "m7": "newest round",
    }


def test_a_single_prompt_is_the_task() -> None:
    assert why(user("task"), says("a"), says("b")) == {"m1": "task", "m3": "newest round"}


INTERRUPTED = "[Request interrupted by user]"


@pytest.mark.parametrize(
    ("between", "tasks"),
    [
        ((), {"m1", "m2"}),
        ((user(INTERRUPTED),), {"m1", "m3"}),
        ((says("Done."),), {"m1"}),
        ((call("a"), result("a")), {"m1"}),
        ((call("a"),), {"m1"}),
        ((says("I begin"), user(INTERRUPTED)), {"m1"}),
    ],
)
def test_a_second_message_before_the_agent_did_anything_is_the_task_too(
    between: tuple[Message, ...], tasks: set[str]
) -> None:
    found = why(user("task"), *between, user("no: this task"), user("a third"), says(), user("newest"), says())
    assert {mark for mark, reason in found.items() if reason == "task"} == tasks


async def test_a_second_task_is_one_at_every_compaction() -> None:
    messages = (
        user("task"),
        user(INTERRUPTED),
        user("no: this task"),
        *(says(WORDS[:900]) for _ in range(4)),
        user("go"),
    )
    marked, _ = mark_protected(segments(*messages), Protection())
    folded = await FoldRounds().apply(Draft(tuple(marked)), Goal(0, 0))
    assert len(folded.segments) < len(marked)
    again, _ = mark_protected(folded.segments, Protection())
    assert [segment.mark for segment in again if segment.protected_because == "task"] == ["m1", "m3"]


def test_injected_messages_are_neither_task_nor_newest_prompt() -> None:
    hook = {"source": "hook"}
    assert why(user("x", metadata=hook), user("task"), says(), user("y", metadata=hook), says()) == {
        "m2": "task",
        "m5": "newest round",
    }


def test_what_is_newer_than_the_draft_takes_the_place_of_its_newest() -> None:
    messages = (user("task"), says(), user("newest here"), says(), says())
    assert why(*messages, later=1) == {"m1": "task", "m3": "newest human message"}
    assert why(*messages, user("newer"), later=1) == {"m1": "task"}


def test_words_beside_a_late_result_are_the_newest_human_message() -> None:
    late = [
        {"type": "tool_result", "tool_use_id": "a", "content": "late"},
        {"type": "text", "text": "the newest words"},
    ]
    messages = (user("task"), call("a"), user("older words"), says(), {"role": "user", "content": late}, says())
    assert why(*messages) == {"m1": "task", "m5": "newest human message", "m6": "newest round"}
    assert why(*messages[:3], messages[4], messages[3], later=1)["m4"] == "newest human message"


def test_pins_stay_by_metadata_and_by_command_with_their_whole_round() -> None:
    messages = (user("task"), says("a"), says("b", metadata=PINNED), call("x"), result("x"), says("c"), says("d"))
    assert why(*messages, pins={5}) == {"m1": "task", "m3": "pinned", "m4": "pinned", "m7": "newest round"}


def test_pins_beyond_their_share_are_no_pins_oldest_first_served() -> None:
    messages = [user("task"), *(says(WORDS[:400], metadata=PINNED) for _ in range(3)), says("end")]
    marked, refused = mark_protected(segments(*messages), Protection(pin_tokens=250))
    assert [segment.mark for segment in marked if segment.protected_because == "pinned"] == ["m2", "m3"]
    assert refused == ["m4"]


def test_a_task_stays_though_its_pin_was_refused() -> None:
    assert why(user(WORDS, metadata=PINNED), says("end"), pin_tokens=10)["m1"] == "task"


def test_rounds_with_loaded_tools_stay() -> None:
    state = {"openai:tool_search_items": []}
    assert why(user("task"), call("a", metadata=state), result("a"), says("b"), says("c"))["m2"] == "loaded tools"


def test_of_each_hook_the_newest_notice_stays() -> None:
    def notice(name: str) -> Message:
        return system("x", metadata={"source": "hook", "hook_name": name})

    found = why(user("task"), notice("todo"), notice("lint"), notice("todo"), says("b"), says("c"))
    assert found == {
        "m1": "task",
        "m3": "newest notice of its hook",
        "m4": "newest notice of its hook",
        "m6": "newest round",
    }


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (system("x", metadata={"hook_name": "todo"}), "hook todo"),
        ({"role": "developer", "content": "x", "metadata": {"hook_name": "lint"}}, "hook lint"),
        (user("x", metadata={"hook_name": "todo", "source": "hook"}), "hook todo"),
        (system("x", metadata={"hook_name": "unknown"}), None),
        (system("x"), None),
        (system("x", metadata={"hook_name": ""}), None),
        (system("x", metadata={"hook_name": 5}), None),
        (user("x", metadata={"hook_name": "todo"}), None),
    ],
    ids=str,
)
def test_the_hook_of_a_notice_is_known(message: Message, name: str | None) -> None:
    assert notice_of(segments(message)[0]) == ({name} if name else set())


def test_protected_tokens_include_what_is_outside_the_segments() -> None:
    marked, _ = mark_protected(segments(user("task"), says("x"), says("y")), Protection())
    draft = Draft(tuple(marked), fixed=100)
    assert protected_tokens(draft) == 100 + marked[0].tokens + marked[2].tokens


# -- clipping it ------------------------------------------------------------------------------------------------------


def protected_draft(*messages: Message, fixed: int = 0) -> Draft:
    marked, _ = mark_protected(segments(*messages), Protection(pin_tokens=1 << 40))
    return Draft(tuple(marked), fixed)


def valid(segment: Segment) -> None:
    before = [] if segment.shown[0].message["role"] == "user" else [user("x")]
    assert check_request([*before, *(one.message for one in segment.shown)]) == []


@pytest.mark.parametrize("limit", [3_000, 1_000, 300])
def test_the_largest_members_are_clipped_until_all_that_is_protected_fits(limit: int) -> None:
    draft = protected_draft(user(WORDS), says("between"), user(WORDS[:6_000]), says(WORDS[:9_000]))
    done = clip_protected(draft, limit, approx_token_counter)
    assert protected_tokens(done) <= limit
    assert done.segments[1] is draft.segments[1]
    for segment in done.segments:
        assert segment.tokens == sum(count_message_tokens(one.message) for one in segment.shown)


def test_clipped_members_keep_head_tail_and_mark() -> None:
    done = clip_protected(protected_draft(user(WORDS), says("x")), 500, approx_token_counter)
    text = done.segments[0].shown[0].message["content"]
    assert text.startswith("word0000")
    assert text.endswith("word1999")
    assert "m1" in text
    assert (done.segments[0].state, done.segments[0].rule) == ("clipped", "floor")


def test_small_members_stay_whole_while_large_ones_can_give() -> None:
    draft = protected_draft(user("small task"), says("x"), user("small prompt"), says(WORDS))
    done = clip_protected(draft, 600, approx_token_counter)
    assert done.segments[:3] == draft.segments[:3]
    assert done.segments[3].tokens < 600


def test_pins_are_clipped_last() -> None:
    draft = protected_draft(user(WORDS), says(WORDS[:2_000], metadata=PINNED), says(WORDS))
    spared = clip_protected(draft, 1_500, approx_token_counter)
    assert spared.segments[1] is draft.segments[1]
    assert protected_tokens(spared) <= 1_500
    everything = clip_protected(draft, 300, approx_token_counter)
    assert everything.segments[1].tokens < draft.segments[1].tokens
    assert protected_tokens(everything) <= 300


def test_what_is_protected_and_fits_is_the_same_draft() -> None:
    draft = protected_draft(user("x"), says("y"))
    assert clip_protected(draft, 10_000, approx_token_counter) is draft


def test_clipping_twice_to_the_same_size_is_clipping_once() -> None:
    once = clip_protected(protected_draft(user(WORDS), says(WORDS)), 500, approx_token_counter)
    assert clip_protected(once, 500, approx_token_counter) is once


@pytest.mark.parametrize(
    "messages",
    [
        (call("a"), result("a", WORDS)),
        (call("a", path=WORDS), result("a", "x")),
        (
            says(
                [block(WORDS), {"type": "tool_call", "id": "a", "name": "write", "input": {"text": WORDS, "n": [1]}}],
                tool_calls=[{"id": "a", "tool": "write", "arguments": {"text": WORDS, "n": [1]}}],
            ),
            result("a", [block(WORDS), block(WORDS)]),
        ),
        (user([block(WORDS), image_block(1_000, 1_000), block(WORDS)]),),
        (says([{"type": "thinking", "thinking": "hm"}, block(WORDS)]),),
        (user(" " * 9_000 + "end"),),
        (user([block("\n" * 9_000 + "end"), block(WORDS)]),),
    ],
    ids=lambda messages: f"{messages[0]['role']}:{type(messages[0]['content']).__name__}:{len(messages)}",
)
@pytest.mark.parametrize("size", [24, 60, 200, 1_000])
def test_a_clipped_round_is_still_valid_and_about_as_small_as_asked(messages: tuple[Message, ...], size: int) -> None:
    made = [{**m, "content": m["content"] or ""} if m.get("tool_calls") else m for m in messages]
    (segment,) = segments(*made)
    done = clip_segment(segment, size, approx_token_counter)
    valid(done)
    assert done.tokens <= max(size, 60 * len(messages)) * 1.5
    assert done.tokens == sum(count_message_tokens(one.message) for one in done.shown)


def test_a_signed_message_is_never_clipped() -> None:
    (segment,) = segments(says([SIGNED, block(WORDS)]))
    assert clip_segment(segment, 24, approx_token_counter) is segment


def test_the_arguments_in_blocks_and_in_the_list_stay_the_same() -> None:
    arguments = {"text": WORDS, "deep": [{"more": WORDS}], "n": 5}
    message = says(
        [{"type": "tool_call", "id": "a", "name": "write", "input": arguments}],
        tool_calls=[{"id": "a", "tool": "write", "arguments": arguments}],
    )
    clipped = clip_rendered(shown(message), 100, approx_token_counter).message
    assert clipped["content"][0]["input"] == clipped["tool_calls"][0]["arguments"]
    assert clipped["tool_calls"][0]["arguments"]["n"] == 5


def test_signed_thinking_is_never_clipped() -> None:
    thinking = {"type": "thinking", "thinking": WORDS, "signature": "c2ln"}
    clipped = clip_rendered(shown(says([thinking, block(WORDS)])), 100, approx_token_counter).message
    assert clipped["content"][0] == thinking


def test_what_cannot_be_clipped_is_the_same_object() -> None:
    small = shown(user("x"))
    assert clip_rendered(small, 100, approx_token_counter) is small
    sealed = shown(says([{"type": "redacted_thinking", "data": "A" * 9_000}]))
    assert clip_rendered(sealed, 100, approx_token_counter) is sealed


def test_clipping_changes_neither_the_original_nor_its_provider() -> None:
    original = RenderedMessage(user([block(WORDS)], metadata={"cache": 1}), 5_000, 3, "anthropic")
    clipped = clip_rendered(original, 100, approx_token_counter)
    assert original.message == user([block(WORDS)], metadata={"cache": 1})
    assert clipped.message["metadata"] == {"cache": 1}
    assert (clipped.seq, clipped.provider) == (3, "anthropic")
    assert parse_message(clipped.message)[1].human


def test_what_the_caller_asks_for_stays_beside_pins_whatever_it_costs() -> None:
    given = segments(user("task"), user("word " * 500), says("x"), says("y"), says("newest"))
    wanted = Protection([given[3].first], given[3].tokens, required=[given[1].first])
    marked, refused = mark_protected(given, wanted)
    assert [segment.protected_because for segment in marked][1:4] == ["asked for", "", "pinned"]
    assert refused == []


def test_a_clipped_message_leaves_no_copy_that_its_provider_would_send_unclipped() -> None:
    arguments = {"path": WORDS}
    wire = [{"type": "tool_use", "id": "a", "name": "write", "input": arguments}]
    message = says(
        "",
        tool_calls=[{"id": "a", "tool": "write", "arguments": arguments}],
        metadata={"anthropic": {"wire_content": wire, "stop": "tool_use"}, "mine": 1},
    )
    clipped = clip_rendered(shown(message), 100, approx_token_counter).message
    assert clipped["metadata"] == {"anthropic": {"stop": "tool_use"}, "mine": 1}
    assert WORDS not in str(clipped)
    only_wire = {**message, "metadata": {"anthropic": {"wire_content": wire}}}
    assert "metadata" not in clip_rendered(shown(only_wire), 100, approx_token_counter).message
    assert message["metadata"]["anthropic"]["wire_content"] == wire
