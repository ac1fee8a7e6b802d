"""The ladder: cheapest loss first, no further than the target, and no strategy does harm to what is protected."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_core import (
    ClearToolOutputs,
    ClipToolOutputs,
    ConfigError,
    ContextManager,
    FoldRounds,
    Goal,
    Plugins,
    Strategy,
    TrimRounds,
    TruncateToolOutputs,
    load_config,
)
from amplifier_context_core.compaction.checkpoint import Draft
from amplifier_context_core.compaction.ladder import STRATEGIES, LadderResult, build_ladder, run_ladder
from amplifier_context_core.compaction.protected import (
    Protection,
    clip_protected,
    clip_rendered,
    clip_segment,
    mark_protected,
)
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.conversation_builder import image_block
from tests.core.drafts import draft, segments
from tests.messages import SIGNED, Message, block, call, result, says, system, user

LONG = "\n".join(f"row {number:04d} of the table" for number in range(100))
PINNED = {"pinned": True}
MEASURES = "per_message_overhead=4, tokens_per_media=600"


def talk(rounds: int = 10) -> list[Message]:
    messages = [user("The task: fix src/loader.py.")]
    for number in range(rounds):
        messages += [call(f"c{number}", path=f"src/m{number}.py"), result(f"c{number}", f"{number}\n{LONG}")]
    return [*messages, user("Go on."), says("Done.")]


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
    named: list[Any] = ["supersede", {"truncate": {"max_chars": 500}}, {"fit": {"max_tokens": 900}}, "clip"]
    assert [repr(strategy) for strategy in built([*named, {"clip": {"max_chars": 9}}], truncate_chars=77)] == [
        "SupersedeStaleReads()",
        "TruncateToolOutputs(max_chars=500)",
        f"FitContextWindow(max_tokens=900, counter={approx_token_counter!r}, reserve_tokens=0, {MEASURES})",
        "ClipToolOutputs(max_chars=77)",
        "ClipToolOutputs(max_chars=9)",
    ]
    assert "ClipToolOutputs(max_chars=77)" in [repr(s) for s in built(truncate_chars=77)]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_of_core_answers_to_its_name(name: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "truncate": {"max_chars": 9},
        "fit": {"max_tokens": 9},
        "trim": {"max_rounds": 9},
        "important": {"score": "builtins:len"},
    }
    arguments = needed.get(name, {})
    (made,) = built([{name: arguments}])
    assert made.name == name


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        ("nosuch", "'nosuch' is not known; known are .*fold"),
        ({"truncate": {}}, "'truncate'"),
        ({"fold": {"line_shar": 0.2}}, r"fold' has no argument 'line_shar'; its arguments are line_share"),
        ({"drop": {"all": True}}, r"'drop' has no argument 'all'; it takes no arguments"),
        ({"truncate": {"max_chars": 0}}, "max_chars must be a whole number of at least 1"),
        ({"trim": {"max_rounds": 2.5}}, "max_rounds must be a whole number"),
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


class Recording(Strategy):
    """Notes what it was asked."""

    name = "recording"

    def __init__(self) -> None:
        self.asked: list[tuple[Draft, Goal]] = []

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        self.asked.append((draft, goal))
        return draft


def test_it_stops_as_soon_as_the_target_is_met_and_what_each_strategy_freed_adds_up() -> None:
    made = draft(*talk())
    ladder: list[Strategy] = [ClipToolOutputs(300), ClearToolOutputs(), FoldRounds()]
    done = reduced(made, ladder, target=made.tokens * 3 // 4)
    assert done.draft.tokens <= made.tokens * 3 // 4
    assert [name for name, _ in done.freed] == ["clip"]
    done = reduced(made, ladder, target=1)
    assert len(done.freed) >= 2
    assert all(freed > 0 for _, freed in done.freed)
    assert sum(freed for _, freed in done.freed) == made.tokens - done.draft.tokens


def test_recent_rounds_are_spared_while_old_ones_can_give() -> None:
    made = draft(*talk())
    recent = sum(segment.tokens for segment in made.segments[-5:])
    done = reduced(made, [ClipToolOutputs(100)], target=made.tokens - 500, recent_tokens=recent)
    assert [p.state for p in done.draft.segments[-5:]] == ["kept"] * 5
    asked = Recording()
    reduced(made, [asked], target=1, budget=made.tokens, trigger=made.tokens, recent_tokens=recent)
    assert {segment.first for segment in made.segments[-5:]} == asked.asked[0][1].recent
    assert asked.asked[-1][1].recent == frozenset()
    asked = Recording()
    made = draft(user(LONG), says("x"), says("end"))
    reduced(made, [asked], target=1)
    lowest = made.segments[0].tokens + made.segments[2].tokens
    assert asked.asked[0][1].target == lowest, "a target below what is protected moves up to it"


@pytest.mark.parametrize(("over", "spared"), [(0, 2), (3, 1)])
def test_all_passes_but_the_last_spare_the_two_newest_rounds_that_fit_a_third_of_the_budget(
    over: int, spared: int
) -> None:
    made = draft(*talk())
    asked = Recording()
    budget = 3 * sum(segment.tokens for segment in made.segments[-2:]) - over
    reduced(made, [asked], target=1, budget=budget, trigger=budget, recent_tokens=0)
    newest = frozenset(segment.first for segment in made.segments[-spared:])
    assert [goal.recent for _, goal in asked.asked] == [newest, newest, newest, frozenset()]


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


@pytest.mark.parametrize(("spare", "chapters"), [(2, 1), (-2, 0)])
def test_chapters_are_dropped_above_the_budget_only(spare: int, chapters: int) -> None:
    """Where what is protected leaves no room to grow, rounds go; a chapter is worth more than the room it takes."""
    made = draft(user("task"), *[says(f"answer {n} of part_{n} " * 30) for n in range(8)], user("more"), says("end"))
    folded = (reduced(made, [FoldRounds()], target=1)).draft
    assert sum(segment.chapter is not None for segment in folded.segments) == 1
    protected = sum(segment.tokens for segment in folded.segments if segment.chapter is None)
    done = reduced(folded, [], target=1, budget=folded.tokens + spare, trigger=protected - 1)
    assert sum(segment.chapter is not None for segment in done.draft.segments) == chapters
    assert not done.clipped_protected


def test_of_each_hooks_notices_only_the_newest_is_worth_its_tokens() -> None:
    notices = [
        system(f"todo {n}", metadata={"source": "hook", "hook_name": "todo", "pinned": n == 1}) for n in range(4)
    ]
    made = draft(user("task"), *notices, says("x", metadata={"openai:response_id": "resp_1"}), says("end"))
    done = reduced(made, [], target=1)
    assert [segment.mark for segment in done.draft.segments] == ["m1", "m3", "m5", "m6", "m7"], "m3 is pinned"
    assert [name for name, _ in done.freed] == ["notices"]
    assert "metadata" not in done.draft.segments[3].shown[0].message, "no id of a response to what is covered"


class Wrong(Strategy):
    """Makes something of a draft that no strategy may make."""

    def __init__(self, name: str, made: Callable[[Draft], Any]) -> None:
        self.name, self._made = name, made

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        return self._made(draft)


def fail(draft: Draft) -> Draft:
    raise RuntimeError("words of a message, perhaps")


def doubled(draft: Draft) -> Draft:
    """One round is shown twice in place of another, at no cost."""
    first, second, _, *rest = draft.segments
    return draft.with_segments((first, second, second, *rest))


WRONG = {
    "raising": fail,
    "emptying": lambda draft: draft.with_segments(()),
    "swelling": lambda draft: draft.with_segments((*draft.segments, *draft.segments)),
    "turning": lambda draft: draft.with_segments(draft.segments[::-1]),
    "doubling": doubled,
    "forgetful": lambda draft: Draft(draft.segments, draft.fixed - 1),
    "untyped": lambda draft: draft.with_segments(draft.messages),
    "mistaken": lambda draft: draft.messages,
}


@pytest.mark.parametrize("name", ["shortening", "truncate"])
def test_no_strategy_can_change_what_is_pinned(name: str) -> None:
    def emptied(draft: Draft) -> Draft:
        return draft.with_segments(segment.rendered_as(segment.shown[:0], "clipped", "x") for segment in draft.segments)

    wrong = {"shortening": Wrong("shortening", emptied), "truncate": TruncateToolOutputs(20)}[name]
    made = draft(user("task"), call("a"), result("a", LONG, metadata=PINNED), says("x"), says("end"))
    done = reduced(made, [wrong], target=1)
    assert next(one for one in done.draft.segments if one.mark == "m2").shown == made.segments[1].shown


@pytest.mark.parametrize("name", WRONG)
def test_a_strategy_that_does_wrong_is_undone_and_the_others_go_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    made = draft(*talk())
    with caplog.at_level(logging.INFO, "amplifier_context_core"):
        done = reduced(made, [Wrong(name, WRONG[name]), ClipToolOutputs(100)], target=made.tokens // 2)
    without = reduced(made, [ClipToolOutputs(100)], target=made.tokens // 2)
    assert done.draft == without.draft
    assert [name for name, _ in done.skipped] == [name]
    assert without.skipped == ()
    assert "words of a message" not in f"{done.skipped}{caplog.text}"


async def test_all_that_was_dropped_is_reported_also_what_a_host_inserted() -> None:
    manager = ContextManager(load_config({"token_counter": "heuristic"}), ladder=[TrimRounds(0)], plugins=Plugins())
    for message in (user("task"), *(says(f"answer {n} " * 30) for n in range(4))):
        await manager.add_message(message)
    messages = await manager.get_messages()
    await manager.set_messages([*messages[:3], call("a", path="y" * 900), result("a", LONG), *messages[3:]])
    await manager.get_messages_for_request(token_budget=5_000)
    assert (await manager.compact())["compacted"]
    await manager.get_messages_for_request(token_budget=5_000)
    rows = {row["mark"]: row["state"] for row in (await manager.explain())["rounds"]}
    assert rows.get("m6") == "dropped"


# -- what is protected -------------------------------------------------------------------------------------------------


WORDS = " ".join(f"word{number:04d}" for number in range(2_000))


def why(*messages: Message, pins: Any = (), pin_tokens: int = 10_000, later: int = 0) -> dict[str, str]:
    """Reasons by mark; the last `later` segments are after those that are marked."""
    both = segments(*messages)
    cut = len(both) - later
    marked, _ = mark_protected(both[:cut], Protection(pins, pin_tokens, later=both[cut:]))
    return {segment.mark: segment.protected_because for segment in marked if segment.protected_because}


def shown(message: Message) -> RenderedMessage:
    return RenderedMessage(message, count_message_tokens(message), 7)


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
    made = draft(user("task"), says("a"), user("prompt"), says("b"))
    later = segments(*[says("x")] * 4, user("newest"))[-1:]
    done = reduced(made, [], target=1, later=later).draft
    assert {one.mark for one in done.segments if one.protected_because} == {"m1"}, "open rounds are newer"
    assert "m5" not in why(*before, user("also"), skill, *after)
    long = user(f"<command-args>{WORDS}</command-args>")
    assert "m5" not in why(*before, long, skill, *after)


def protected_draft(*messages: Message, fixed: int = 0) -> Draft:
    marked, _ = mark_protected(segments(*messages), Protection(pin_tokens=1 << 40))
    return Draft(tuple(marked), fixed)


def test_clipped_members_keep_head_tail_and_mark() -> None:
    done = clip_protected(protected_draft(user(WORDS), says("x")), 500, approx_token_counter)
    assert re.fullmatch("word0000.*m1.*word1999", done.segments[0].shown[0].message["content"], re.DOTALL)
    assert (done.segments[0].state, done.segments[0].rule) == ("clipped", "floor")
    (signed,) = segments(says([SIGNED, block(WORDS)]))
    assert clip_segment(signed, 24, approx_token_counter) is signed, "what is signed is never clipped"


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
