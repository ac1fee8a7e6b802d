"""The ladder: cheapest loss first, no further than the target, and no strategy does harm to what is protected."""

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_core import ClearToolOutputs, ClipToolOutputs, FoldRounds, Goal, Plugins, Strategy, load_config
from amplifier_context_core.compaction.checkpoint import Draft
from amplifier_context_core.compaction.ladder import STRATEGIES, LadderResult, build_ladder, run_ladder
from amplifier_context_core.compaction.protected import (
    Protection,
    clip_protected,
    clip_rendered,
    clip_segment,
    mark_protected,
)
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.conversation_builder import image_block
from tests.core.drafts import LONG, PINNED, draft, segments, talk
from tests.managers import Does, Watch
from tests.messages import SIGNED, Message, block, call, result, says, system, user


def reduced(
    made: Draft,
    ladder: list[Strategy],
    target: int,
    budget: int = 100_000,
    *,
    trigger: int | None = None,
    recent_tokens: int = 0,
    **kept: Any,
) -> LadderResult:
    protection = Protection(**{"pin_tokens": budget // 4, **kept})
    above = budget if trigger is None else trigger
    return run_ladder(made, Goal(target, budget), ladder, protection, trigger=above, recent_tokens=recent_tokens)


def built(ladder: Any = None, plugins: Plugins | None = None, **config: Any) -> list[Strategy]:
    return build_ladder(load_config({"ladder": ladder, **config}), plugins or Plugins())


def test_a_ladder_is_composed_by_names_and_arguments_and_clips_to_the_length_of_the_config() -> None:
    named: list[Any] = ["supersede", {"truncate": {"max_chars": 500}}, "clip", {"clip": {"max_chars": 9}}]
    made = ["SupersedeStaleReads()", "TruncateToolOutputs(max_chars=500)"]
    made += ["ClipToolOutputs(max_chars=77)", "ClipToolOutputs(max_chars=9)"]
    assert [repr(strategy) for strategy in built(named, truncate_chars=77)] == made
    (fit,) = built([{"fit": {"max_tokens": 900}}])
    assert repr(fit).startswith(f"FitContextWindow(max_tokens=900, counter={approx_token_counter!r}, reserve_tokens=0,")
    assert "ClipToolOutputs(max_chars=77)" in [repr(s) for s in built(truncate_chars=77)]


def test_every_strategy_of_core_answers_to_its_name() -> None:
    needed = {"truncate": {"max_chars": 9}, "fit": {"max_tokens": 9}, "trim": {"max_rounds": 9}}
    needed["important"] = {"score": "builtins:len"}
    assert [one.name for one in built([{name: needed.get(name, {})} for name in STRATEGIES])] == list(STRATEGIES)


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        ("nosuch", "'nosuch' is not known; known are .*fold"),
        ({"truncate": {}}, "'truncate': .*; it takes max_chars$"),
        ({"supersede": {"x": 1}}, "'supersede': .*; it takes no arguments"),
        ({"fold": {"line_share": "x"}}, "'fold': .*; it takes line_share=0.25$"),
        ({"fold": {"line_shar": 0.2}}, "'fold': .* argument 'line_shar'; it takes line_share=0.25$"),
        ({"fold": {"name": "x"}}, "'fold': .* unexpected keyword argument 'name'"),
        ({"fold": {"self": 1}}, "'fold': .* multiple values for argument 'self'"),
        ({"truncate": {"max_chars": 0}}, "max_chars must be a whole number of at least 1"),
        ({"important": {"score": "nowhere"}}, "package.module:function"),
        ({"important": {"score": "nowhere_at_all:f"}}, "cannot be loaded"),
        ({}, "a name, or one name with its arguments"),
    ],
    ids=str,
)
def test_a_strategy_that_cannot_be_made_is_an_error_that_names_its_place(strategy: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        built(["supersede", strategy])
    assert caught.value.key == "ladder[1]"


def test_it_stops_as_soon_as_the_target_is_met_and_what_each_strategy_freed_adds_up() -> None:
    made = draft(*talk(10))
    ladder: list[Strategy] = [ClipToolOutputs(300), ClearToolOutputs(), FoldRounds()]
    done = reduced(made, ladder, target=made.tokens * 3 // 4)
    assert done.draft.tokens <= made.tokens * 3 // 4
    assert [name for name, _ in done.freed] == ["clip"]
    done = reduced(made, ladder, target=1)
    assert len(done.freed) >= 2
    assert all(freed > 0 for _, freed in done.freed)
    assert sum(freed for _, freed in done.freed) == made.tokens - done.draft.tokens


def test_recent_rounds_are_spared_while_old_ones_can_give() -> None:
    made = draft(*talk(10))
    recent = sum(segment.tokens for segment in made.segments[-5:])
    done = reduced(made, [ClipToolOutputs(100)], target=made.tokens - 500, recent_tokens=recent)
    assert [p.state for p in done.draft.segments[-5:]] == ["kept"] * 5
    watch = Watch()
    reduced(made, [watch], target=1, budget=made.tokens, trigger=made.tokens, recent_tokens=recent)
    assert {segment.first for segment in made.segments[-5:]} == watch.goals[0].recent
    assert watch.goals[-1].recent == frozenset()
    made = draft(user(LONG), says("x"), says("end"))
    reduced(made, [watch := Watch()], target=1)
    lowest = made.segments[0].tokens + made.segments[2].tokens
    assert watch.goals[0].target == lowest, "a target below what is protected moves up to it"


def test_protected_messages_that_leave_no_room_are_clipped_and_named() -> None:
    made = draft(user(LONG * 10), says("x"), says("end"))
    done = reduced(made, built(), target=500, budget=1_000, trigger=920)
    assert done.clipped_protected == ("m1",)
    assert done.draft.tokens <= 920
    assert done.protected_tokens > 1_000


def test_above_the_budget_the_oldest_that_is_not_protected_goes() -> None:
    made = draft(user("task"), *[says(f"answer {n} " * 30) for n in range(20)])
    done = reduced(made, [], target=1, budget=made.tokens // 2)
    assert done.draft.tokens <= made.tokens // 2
    assert [name for name, _ in done.freed] == ["hard limit"]
    assert done.draft.segments[0].protected_because == "task"
    assert [segment.mark for segment in done.draft.segments[-5:]] == [f"m{n}" for n in range(17, 22)]


def test_of_each_hooks_notices_only_the_newest_is_worth_its_tokens() -> None:
    notices = [
        system(f"todo {n}", metadata={"source": "hook", "hook_name": "todo", "pinned": n == 1}) for n in range(4)
    ]
    made = draft(user("task"), *notices, says("x", metadata={"openai:response_id": "resp_1"}), says("end"))
    done = reduced(made, [], target=1)
    assert [segment.mark for segment in done.draft.segments] == ["m1", "m3", "m5", "m6", "m7"], "m3 is pinned"
    assert [name for name, _ in done.freed] == ["notices"]
    assert "metadata" not in done.draft.segments[3].shown[0].message, "no id of a response to what is covered"


def fail(draft: Draft) -> Draft:
    raise RuntimeError("words of a message, perhaps")


WRONG: dict[str, Callable[[Draft], Any]] = {
    "raising": fail,
    "shortening": lambda draft: draft.with_segments(one.rendered_as((), "clipped", "x") for one in draft.segments),
    "emptying": lambda draft: draft.with_segments(()),
    "swelling": lambda draft: draft.with_segments((*draft.segments, *draft.segments)),
    "turning": lambda draft: draft.with_segments(draft.segments[::-1]),
    "doubling": lambda draft: draft.with_segments((*draft.segments[:2], *draft.segments[1:2], *draft.segments[3:])),
    "forgetful": lambda draft: Draft(draft.segments, draft.fixed - 1),
    "untyped": lambda draft: draft.with_segments(draft.messages),
    "mistaken": lambda draft: draft.messages,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_strategy_that_does_wrong_is_undone_and_the_others_go_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    made = draft(*talk(10), result("a", LONG, metadata=PINNED), says())
    with caplog.at_level(logging.INFO, "amplifier_context_core"):
        done = reduced(made, [Does(WRONG[name], name), ClipToolOutputs(100)], target=made.tokens // 2)
    without = reduced(made, [ClipToolOutputs(100)], target=made.tokens // 2)
    assert done.draft == without.draft
    assert [name for name, _ in done.skipped] == [name]
    assert "words of a message" not in f"{done.skipped}{caplog.text}"


# -- what is protected -------------------------------------------------------------------------------------------------
WORDS = " ".join(f"word{number:04d}" for number in range(2_000))


def why(*messages: Message) -> dict[str, str]:
    marked, _ = mark_protected(segments(*messages), Protection(pin_tokens=10_000))
    return {segment.mark: segment.protected_because for segment in marked if segment.protected_because}


def test_pins_beyond_their_share_are_no_pins_oldest_first_served() -> None:
    messages = [user("task"), *(says(WORDS[:400], metadata=PINNED) for _ in range(3)), says("end")]
    marked, refused = mark_protected(segments(*messages), Protection(pin_tokens=250))
    assert [segment.mark for segment in marked if segment.protected_because == "pinned"] == ["m2", "m3"]
    assert refused == ["m4"]


def test_the_command_whose_text_is_the_newest_human_message_stays_with_it_and_so_do_loaded_tools() -> None:
    command = user("<command-message>review</command-message>\n<command-name>/review</command-name>")
    skill = user("Base directory for this skill: /skills/review\n\nRead the change.")
    before = (user("task"), says("done"), user("next"), says("done"))
    after = (call("a"), result("a"), says("b"))
    both = why(*before, command, skill, *after)
    assert [mark for mark, reason in both.items() if reason == "newest human message"] == ["m5", "m6"]
    state = {"openai:tool_search_items": []}
    assert why(user("task"), call("a", metadata=state), result("a"), says("b"), says("c"))["m2"] == "loaded tools"
    assert "m5" not in why(*before, user("also"), skill, *after)
    long = user(f"<command-args>{WORDS}</command-args>")
    assert "m5" not in why(*before, long, skill, *after)


def test_clipped_members_keep_head_tail_and_mark() -> None:
    marked, _ = mark_protected(segments(user(WORDS), says("x")), Protection(pin_tokens=1 << 40))
    done = clip_protected(Draft(tuple(marked), 0), 500, approx_token_counter)
    assert re.fullmatch("word0000.*m1.*word1999", done.segments[0].shown[0].message["content"], re.DOTALL)
    assert (done.segments[0].state, done.segments[0].rule) == ("clipped", "floor")
    (signed,) = segments(says([SIGNED, block(WORDS)]))
    assert clip_segment(signed, 24, approx_token_counter) is signed, "what is signed is never clipped"


STATED = {"type": "tool_call", "id": "a", "name": "write", "input": {"text": WORDS, "n": [1]}}
LISTED = {"id": "a", "tool": "write", "arguments": {"text": WORDS, "n": [1]}}


@pytest.mark.parametrize(
    "messages",
    [
        (call("a", path=WORDS), result("a", WORDS)),
        (says([block(WORDS), STATED], tool_calls=[LISTED]), result("a", [block(WORDS), block(WORDS)])),
        (user([block(WORDS), image_block(1_000, 1_000), block(WORDS)]),),
        (says([{"type": "thinking", "thinking": "hm"}, block(WORDS)]),),
        (user([block("\n" * 9_000 + "end"), block(WORDS)]),),
    ],
)
@pytest.mark.parametrize("size", [24, 200, 1_000])
def test_a_clipped_round_is_still_valid_and_about_as_small_as_asked(messages: tuple[Message, ...], size: int) -> None:
    made = [{**m, "content": m["content"] or ""} if m.get("tool_calls") else m for m in messages]
    (segment,) = segments(*made)
    done = clip_segment(segment, size, approx_token_counter)
    before = [] if done.shown[0].message["role"] == "user" else [user("x")]
    assert check_request([*before, *(one.message for one in done.shown)]) == []
    for one in (one.message for one in done.shown if one.message.get("tool_calls")):
        inputs = [block["input"] for block in one["content"] if "input" in block] if one["content"] else []
        assert inputs in ([], [call["arguments"] for call in one["tool_calls"] if "arguments" in call]), "both alike"
    assert done.tokens <= max(size, 60 * len(messages)) * 1.5
    assert done.tokens == sum(count_message_tokens(one.message) for one in done.shown)


def test_a_clipped_message_leaves_no_copy_that_its_provider_would_send_unclipped() -> None:
    wire = [{"type": "tool_use", "id": "a", "name": "write", "input": {"path": WORDS}}]
    metadata = {"anthropic": {"wire_content": wire, "stop": "tool_use"}, "mine": 1}
    message = {**call("a", path=WORDS), "metadata": metadata}
    shown = RenderedMessage(message, count_message_tokens(message), 7)
    clipped = clip_rendered(shown, 100, approx_token_counter).message
    assert clipped["metadata"] == {"anthropic": {"stop": "tool_use"}, "mine": 1}
    assert WORDS not in str(clipped)
    assert message["metadata"]["anthropic"]["wire_content"] == wire
