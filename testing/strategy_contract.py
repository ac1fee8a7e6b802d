"""The contract of strategies as tests to inherit: `StrategyContract`.

The test file of a strategy gives the contract a way to make it::

    from amplifier_context_testing.strategy_contract import StrategyContract


    class TestDropSearches(StrategyContract):
        def make_strategy(self) -> Strategy:
            return DropSearches("grep")

`amplifier_context_core.compaction.strategies.base` says in words what is tested here. The strategy is tried on odd
conversations and on a long one, with goals as the ladder sets them.

Needs pytest, and pytest-asyncio in its auto mode (``asyncio_mode = "auto"``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from amplifier_context_core import ContextManager, Draft, Goal, Plugins, Strategy, approx_token_counter, load_config
from amplifier_context_core.compaction.ladder import build_ladder, run_ladder
from amplifier_context_core.compaction.protected import Protection, mark_protected
from amplifier_context_core.compaction.strategies.base import draft_of

from .checks.coding_session import coding_session
from .checks.corpus import conversations
from .checks.message_shapes import Message
from .checks.request_checker import checked

_TOKENS = 60_000  # of the largest conversation: what a strategy does to it shows in a second
_BUDGET = 6_000  # tokens: some compactions in a session of 400 messages


class StrategyContract:
    """Holds a strategy to `amplifier_context_core.compaction.strategies.base`. Inherit it and give `make_strategy`."""

    def make_strategy(self) -> Strategy:
        # Not an abstract method: pytest collects no abstract class, so one without it would pass unseen.
        pytest.fail("give a `make_strategy` method that makes the strategy", pytrace=False)

    def test_it_has_a_name_of_its_own(self) -> None:
        name = self.make_strategy().name
        assert isinstance(name, str)
        assert name
        assert name != Strategy.name

    def test_two_made_alike_have_the_same_repr(self) -> None:
        """A checkpoint serves another session only where this is the same."""
        assert repr(self.make_strategy()) == repr(self.make_strategy())

    def test_the_ladder_never_skips_it(self) -> None:
        for name, draft in _drafts():
            for share in (0.0, 0.5, 0.9):
                goal = Goal(int(draft.tokens * share), draft.tokens)
                done = run_ladder(
                    draft,
                    goal,
                    [self.make_strategy()],
                    Protection(pin_tokens=draft.tokens),
                    trigger=draft.tokens,
                    recent_tokens=draft.tokens // 10,
                )
                assert done.skipped == (), f"{name}, target {goal.target:,} of {draft.tokens:,} tokens"

    def test_protected_segments_are_left_as_they_are(self) -> None:
        for name, draft in _drafts():
            done = self.make_strategy().apply(draft, Goal(0, draft.tokens))
            after = {segment.first: segment for segment in done.segments}
            for segment in draft.segments:
                if segment.protected_because:
                    assert after.get(segment.first) is segment, f"{name}, {segment.mark} {segment.protected_because}"

    def test_recent_segments_are_left_as_they_are(self) -> None:
        for name, draft in _drafts():
            recent = frozenset(segment.first for segment in draft.segments)
            assert self.make_strategy().apply(draft, Goal(0, draft.tokens, recent=recent)) is draft, name

    def test_where_the_goal_is_met_it_returns_the_same_draft(self) -> None:
        for name, draft in _drafts():
            assert self.make_strategy().apply(draft, Goal(draft.tokens, draft.tokens)) is draft, name

    def test_where_nothing_changes_it_returns_the_same_draft(self) -> None:
        for name, draft in _drafts():
            goal = Goal(0, draft.tokens)
            done = draft
            for _ in range(10):
                before, done = done, self.make_strategy().apply(done, goal)
                assert (done is before) == (done == before), name
                if done is before:
                    break
            else:
                pytest.fail(f"{name}: ten calls on their own results, and the last one changed the draft")

    def test_it_changes_no_message_in_place(self) -> None:
        for name, draft in _drafts():
            before = copy.deepcopy(draft)
            self.make_strategy().apply(draft, Goal(0, draft.tokens))
            assert draft == before, name

    def test_it_does_the_same_each_time(self) -> None:
        strategy = self.make_strategy()
        for name, draft in _drafts():
            goal = Goal(draft.tokens // 2, draft.tokens)
            first = strategy.apply(draft, goal)
            assert strategy.apply(draft, goal) == first, name
            assert self.make_strategy().apply(draft, goal) == first, name

    async def test_a_session_with_it_sends_valid_requests_and_keeps_its_history(self) -> None:
        config = load_config({"max_tokens": _BUDGET, "token_counter": "heuristic"})
        ladder = [self.make_strategy(), *build_ladder(config, Plugins())]
        manager = ContextManager(config, ladder=ladder, plugins=Plugins())
        messages = list(coding_session(100, seed=1))
        for message in messages:
            await manager.add_message(message)
            if message["role"] != "assistant":
                checked(await manager.get_messages_for_request())
        report = await manager.explain()
        assert report["compactions"] > 0
        assert report["warnings"] == []
        assert [m["content"] for m in await manager.get_messages()] == [m["content"] for m in messages]


def _drafts() -> Iterator[tuple[str, Draft]]:
    histories: dict[str, list[Message]] = {one.name: one.messages for one in conversations()}
    histories["a coding session"] = list(coding_session(120, seed=2))
    for name, messages in histories.items():
        _, draft = draft_of(messages, approx_token_counter)
        if not draft.segments or draft.tokens > _TOKENS:
            continue
        segments, _ = mark_protected(draft.segments, Protection(pin_tokens=draft.tokens))
        yield name, draft.with_segments(segments)
