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
)
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


def test_pins_beyond_their_share_are_no_pins_oldest_first_served() -> None:
    messages = [user("task"), *(says(WORDS[:400], metadata=PINNED) for _ in range(3)), says("end")]
    marked, refused = mark_protected(segments(*messages), Protection(pin_tokens=250))
    assert [segment.mark for segment in marked if segment.protected_because == "pinned"] == ["m2", "m3"]
    assert refused == ["m4"]


def test_the_command_whose_text_is_the_newest_human_message_stays_with_it() -> None:
    command = user("<command-message>review</command-message>\n<command-name>/review</command-name>")
    skill = user("Base directory for this skill: /skills/review\n\nRead the change.")
    before = (user("task"), says("done"), user("next"), says("done"))
    after = (call("a"), result("a"), says("b"))
    both = why(*before, command, skill, *after)
    assert [mark for mark, reason in both.items() if reason == "newest human message"] == ["m5", "m6"]
    assert "m5" not in why(*before, user("also"), skill, *after)
    long = user(f"<command-args>{WORDS}</command-args>")
    assert "m5" not in why(*before, long, skill, *after)


def test_rounds_with_loaded_tools_stay() -> None:
    state = {"openai:tool_search_items": []}
    assert why(user("task"), call("a", metadata=state), result("a"), says("b"), says("c"))["m2"] == "loaded tools"


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (system("x", metadata={"hook_name": "todo"}), "hook todo"),
        (user("x", metadata={"hook_name": "todo", "source": "hook"}), "hook todo"),
        (system("x", metadata={"hook_name": "unknown"}), None),
        (system("x", metadata={"hook_name": 5}), None),
        (user("x", metadata={"hook_name": "todo"}), None),
    ],
    ids=str,
)
def test_the_hook_of_a_notice_is_known(message: Message, name: str | None) -> None:
    assert notice_of(segments(message)[0]) == ({name} if name else set())


# -- clipping it ------------------------------------------------------------------------------------------------------


def protected_draft(*messages: Message, fixed: int = 0) -> Draft:
    marked, _ = mark_protected(segments(*messages), Protection(pin_tokens=1 << 40))
    return Draft(tuple(marked), fixed)


def valid(segment: Segment) -> None:
    before = [] if segment.shown[0].message["role"] == "user" else [user("x")]
    assert check_request([*before, *(one.message for one in segment.shown)]) == []


def test_clipped_members_keep_head_tail_and_mark() -> None:
    done = clip_protected(protected_draft(user(WORDS), says("x")), 500, approx_token_counter)
    text = done.segments[0].shown[0].message["content"]
    assert text.startswith("word0000")
    assert text.endswith("word1999")
    assert "m1" in text
    assert (done.segments[0].state, done.segments[0].rule) == ("clipped", "floor")


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
