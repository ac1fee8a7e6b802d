"""Three strategies: one replaces messages, one folds rounds into chapters, one is made of a built-in strategy.

    python examples/strategies/strategies.py

docs/extending.md says what a strategy sees, and what its contract demands.
"""

from __future__ import annotations

import asyncio
import dataclasses

from amplifier_context_core import (
    ContextManager,
    DigestEntry,
    Draft,
    Fact,
    FoldRounds,
    Goal,
    RenderedMessage,
    Segment,
    Strategy,
    fold,
    load_config,
)
from amplifier_context_core.messages import calls_of


class HideListings(Strategy):
    """Replaces old outputs of one tool by a line that says where they are."""

    name = "hide-listings"

    def __init__(self, tool: str = "list_folder") -> None:
        self.tool = tool

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        segments = list(draft.segments)
        tokens = draft.tokens
        for place, segment in enumerate(segments):
            if tokens <= goal.target:
                break
            if segment.round is not None and goal.may_touch(segment):
                segments[place] = self.hidden(segment, goal)
                tokens += segments[place].tokens - segment.tokens
        return draft.with_segments(segments)

    def hidden(self, segment: Segment, goal: Goal) -> Segment:
        calls = {call.id for one in segment.shown for call in calls_of(one.message) if call.name == self.tool}
        shown = [self.shorter(one, goal) if one.message.get("tool_call_id") in calls else one for one in segment.shown]
        same = all(new is old for new, old in zip(shown, segment.shown, strict=True))
        return segment if same else segment.rendered_as(shown, "cleared", self.name)

    def shorter(self, one: RenderedMessage, goal: Goal) -> RenderedMessage:
        other = one.with_message({**one.message, "content": f"[listing left out: m{one.seq}]"}, goal.counter)
        return other if other.tokens < one.tokens else one


class FoldTools(Strategy):
    """Folds neighbouring tool rounds into a chapter that names the tools and nothing else."""

    name = "fold-tools"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        done, run, tokens = [], [], draft.tokens
        for segment in (*draft.segments, None):
            is_foldable = segment and segment.round and segment.round.is_tool_round and goal.may_touch(segment)
            if segment and is_foldable and tokens > goal.target:
                run.append(segment)
                tokens -= segment.tokens
                continue
            if run:
                chapter = fold(run, [self.entry(one, goal) for one in run], goal, self.name)
                cheaper = chapter.tokens < sum(one.tokens for one in run)
                done += [chapter] if cheaper else run
                run = []
            if segment:
                done.append(segment)
        return draft.with_segments(done)

    def entry(self, segment, goal):
        names = [call.name for call in calls_of(segment.round.head.message)]
        return DigestEntry.of(segment.round, [Fact(f"{segment.mark} called {', '.join(names)}")], goal.counter)


class FoldTestsLast(Strategy):
    """Folds old rounds; those that ran tests only where the others were not enough."""

    name = "fold-tests-last"

    def __init__(self, tool: str = "run_tests") -> None:
        self.tool = tool

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        tests = {segment.first for segment in draft.segments if self.ran_tests(segment)}
        draft = FoldRounds().apply(draft, dataclasses.replace(goal, recent=goal.recent | tests))
        return draft if goal.met_by(draft) else FoldRounds().apply(draft, goal)

    def ran_tests(self, segment: Segment) -> bool:
        return any(call.name == self.tool for one in segment.shown for call in calls_of(one.message))


def hiding() -> None:
    """Run a strategy by itself on a plain list: the quickest way to try one."""
    messages = [
        {"role": "user", "content": "What is here?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "tool": "list_folder", "arguments": {}}]},
        {"role": "tool", "tool_call_id": "c1", "name": "list_folder", "content": "a.py\n" * 400},
        {"role": "assistant", "content": "400 files."},
    ]
    shorter = HideListings().compact(messages)
    assert shorter[2]["content"] == "[listing left out: m3]"
    assert HideListings().compact(shorter) is shorter
    assert messages[2]["content"] == "a.py\n" * 400


async def folding() -> None:
    context = ContextManager(load_config({"max_tokens": 2_000}), ladder=[FoldTools()])
    await context.add_message({"role": "user", "content": "Read all of it."})
    for number in range(60):
        call = {"id": f"c{number}", "tool": "read_file", "arguments": {"path": f"{number}.txt"}}
        await context.add_message({"role": "assistant", "content": None, "tool_calls": [call]})
        await context.add_message({"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}\n" * 40})
        view = await context.get_messages_for_request()
    assert "m2 called read_file\nm4 called read_file" in view[1]["content"]
    assert (await context.recall("m3"))["content"] == "line 0\n" * 40
    report = await context.explain()
    assert report["rounds"][1] | {"state": "folded", "rule": "fold-tools"} == report["rounds"][1]
    assert report["warnings"] == []


async def folding_tests_last() -> None:
    context = ContextManager(load_config({"max_tokens": 3_000}), ladder=[FoldTestsLast()])
    await context.add_message({"role": "user", "content": "Make the tests pass."})
    for number in range(30):
        tool = "run_tests" if number == 2 else "read_file"
        call = {"id": f"c{number}", "tool": tool, "arguments": {"path": f"{number}.py"}}
        await context.add_message({"role": "assistant", "content": None, "tool_calls": [call]})
        await context.add_message({"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}\n" * 40})
        await context.get_messages_for_request()
    report = await context.explain()
    states = {row["mark"]: (row["state"], row["rule"]) for row in report["rounds"]}
    assert states["m4"] == ("folded", "fold")
    assert states["m6"] == ("kept", "")  # it ran tests
    assert states["m8"] == ("folded", "fold")
    assert report["warnings"] == []


if __name__ == "__main__":
    hiding()
    asyncio.run(folding())
    asyncio.run(folding_tests_last())
    print("all three do what they say")
