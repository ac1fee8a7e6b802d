"""A request that its provider counts before it is sent: `context.measured_request_view` as loop-streaming calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from amplifier_core.llm_errors import ContextLengthError

from amplifier_context_core import ContextManager, ContextOverflow
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.view import shared_cache
from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.session_state import dump
from amplifier_context_testing import checked
from tests.manager.support import Message, ask, feed, new_manager, rounds, size, text, work

BUDGET = 4_000
OVERHEAD = 700  # tokens of tool definitions, which only the provider sees
RESERVE = 100  # tokens that the provider keeps free


class Counting:
    """A provider's count of whole requests, as a loop asks for it; it disagrees with the manager's own counter.

    Attributes:
        views: what was counted, in order.
        limit: tokens that the provider takes.
        unavailable: numbers of the counts (from 1) without an answer.
        fails: the exception of the next count.
    """

    def __init__(self, *, ratio: float = 1.3, limit: int = 100_000, unavailable: Sequence[int] = ()) -> None:
        self.views: list[list[Message]] = []
        self.ratio = ratio
        self.limit = limit
        self.unavailable = frozenset(unavailable)
        self.fails: BaseException | None = None

    def tokens(self, view: Sequence[Message]) -> int:
        return OVERHEAD + int(self.ratio * size(view))

    async def __call__(self, view: list[Message]) -> dict[str, Any]:
        checked(view)
        self.views.append(view)
        if self.fails is not None:
            raise self.fails
        decision: dict[str, Any] | None = None
        if len(self.views) not in self.unavailable:
            count = self.tokens(view)
            decision = {
                "estimated_input_tokens": count + RESERVE,
                "input_limit_tokens": self.limit,
                "measurement": {"kind": "provider_count", "source": "test", "input_tokens": count},
            }
        return {"dispatch": object(), "budget_decision": decision}


async def measure(manager: ContextManager, count: Counting, **more: Any) -> dict[str, Any]:
    result = await manager.measured_request_view(provider=None, count_view=count, **more)
    assert result["count_calls"] == len(count.views)
    assert result["base_view"] is count.views[-1]
    return result


async def state_of(manager: ContextManager) -> bytes:
    """All that is kept beside the history, as it would be saved."""
    counter = await manager.token_counter()
    return dump(collect_state(manager.history, manager.compactor, manager.meter, manager.warnings, counter, {}))


def settings(**more: Any) -> dict[str, Any]:
    return {"max_tokens": BUDGET, "cadence": "fixed", "compact_threshold": 0.8, **more}


# --- outcomes and figures ---------------------------------------------------------------------------------------------


async def test_a_request_that_fits_is_counted_once_and_not_compacted() -> None:
    manager = await feed(new_manager(**settings()), work(4))
    count = Counting()
    result = await measure(manager, count)
    assert result["outcome"] == "not_needed"
    assert result["measured_before"] == result["measured_after"] == count.tokens(result["base_view"])
    assert (result["policy_budget"], result["count_calls"]) == (BUDGET, 1)
    assert await result["transaction"].commit() is True
    assert (await manager.explain())["compactions"] == 0


async def test_the_providers_count_decides_although_our_own_sees_no_need() -> None:
    manager = await feed(new_manager(**settings()), work(22))
    count = Counting()
    own = size(await manager.get_messages())
    assert own < 0.8 * BUDGET < count.tokens(await manager.get_messages())
    result = await measure(manager, count)
    assert result["outcome"] == "target_reached"
    assert result["measured_before"] > result["trigger"]
    assert result["measured_after"] == count.tokens(result["base_view"]) <= result["target"]
    assert abs(result["trigger"] - 0.8 * (BUDGET - OVERHEAD) - OVERHEAD) <= 2


async def test_the_providers_count_decides_although_our_own_sees_a_need() -> None:
    manager = await feed(new_manager(**settings()), work(25))
    result = await measure(manager, Counting(ratio=0.5))
    assert result["outcome"] == "not_needed"


async def test_a_view_counted_as_too_large_is_compacted_further_within_the_same_transaction() -> None:
    manager = await feed(new_manager(**settings()), work(40))

    class Uneven(Counting):
        """Finds much more in what a compaction leaves than the first count lets expect."""

        def tokens(self, view: Sequence[Message]) -> int:
            return super().tokens(view) if len(self.views) == 1 else 3 * super().tokens(view)

    count = Uneven(ratio=1.0)
    result = await measure(manager, count)
    assert len(count.views) > 2
    assert result["measured_after"] <= BUDGET
    assert await result["transaction"].commit()
    assert (await manager.explain())["compactions"] == 1


async def test_what_the_provider_takes_at_most_is_a_limit_too() -> None:
    manager = await feed(new_manager(**settings(max_tokens=20_000)), work(30))
    count = Counting(limit=3_000)
    result = await measure(manager, count)
    decision = result["final_attempt"]["budget_decision"]
    assert decision["estimated_input_tokens"] <= decision["input_limit_tokens"]
    assert result["policy_budget"] == 20_000


async def test_what_must_stay_is_clipped_rather_than_refused() -> None:
    manager = await feed(new_manager(**settings()), [*work(1), *rounds(1, start=7, output=40_000)])
    result = await measure(manager, Counting(limit=2_500))
    assert result["final_attempt"]["budget_decision"]["estimated_input_tokens"] <= 2_500


async def test_a_request_that_can_never_fit_is_an_error_and_changes_nothing() -> None:
    manager = await feed(new_manager(**settings()), work(5))
    before = await state_of(manager)
    with pytest.raises(ContextLengthError, match="cannot fit"):
        await manager.measured_request_view(provider=None, count_view=Counting(limit=OVERHEAD // 2))
    assert await state_of(manager) == before


async def test_strict_is_an_error_when_what_must_stay_exceeds_the_budget() -> None:
    manager = await feed(new_manager(**settings(strict=True)), [{"role": "user", "content": "word " * 9_000}])
    await manager.set_system_prompt_factory(_prompt)
    with pytest.raises(ContextOverflow):
        await manager.measured_request_view(provider=None, count_view=Counting(limit=10**6))


async def _prompt() -> str:
    return "rule " * 5_000


async def test_a_view_far_above_the_budget_is_not_counted_before_it_is_compacted() -> None:
    manager = await feed(new_manager(**settings()), work(200))
    count = Counting()
    result = await measure(manager, count)
    assert result["measured_before"] is None
    assert max(size(view) for view in count.views) <= 2 * BUDGET


async def test_texts_to_retain_stay_verbatim_and_rollback_folds_them_again() -> None:
    note = {"role": "user", "content": "<system-reminders>be brief</system-reminders>", "metadata": {"ephemeral": True}}
    manager = await feed(new_manager(**settings()), [*work(2), note, *rounds(40, start=50)])
    await ask(manager, BUDGET)
    if note["content"] in text(await ask(manager, BUDGET)):
        await manager.compact()
    before = await state_of(manager)
    result = await measure(manager, Counting(), retain_contents=[note["content"]])
    assert sum(message["content"] == note["content"] for message in result["base_view"]) == 1
    assert await state_of(manager) == before
    result["transaction"].rollback()
    assert await state_of(manager) == before
    again = await measure(manager, Counting(), retain_contents=[note["content"]])
    assert await again["transaction"].commit()
    assert text(again["base_view"]) == text(await ask(manager, BUDGET))


async def test_a_text_to_retain_that_is_not_in_the_history_is_an_error() -> None:
    manager = await feed(new_manager(**settings()), work(2))
    with pytest.raises(ValueError, match="not in the history"):
        await manager.measured_request_view(provider=None, retain_contents=["other"], count_view=Counting())


# --- counts that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [4, 60])
async def test_without_a_count_our_own_decides(number: int) -> None:
    manager = await feed(new_manager(**settings()), work(number))
    count = Counting(unavailable=range(9))
    result = await measure(manager, count)
    assert result["outcome"] == "measurement_unavailable"
    assert size(result["base_view"]) <= BUDGET
    assert await result["transaction"].commit()
    assert text(await ask(manager, None)) == text(result["base_view"])


async def test_a_recount_that_fails_leaves_the_smaller_view_to_our_own_count() -> None:
    manager = await feed(new_manager(**settings()), work(22))
    count = Counting(unavailable=[2])
    result = await measure(manager, count)
    assert result["outcome"] == "measurement_unavailable"
    assert result["measured_before"] == count.tokens(count.views[0])
    assert result["measured_after"] is None
    assert count.tokens(result["base_view"]) <= BUDGET


@pytest.mark.parametrize("failure", [RuntimeError("no count"), asyncio.CancelledError()])
async def test_a_count_that_raises_is_passed_on_and_changes_nothing(failure: BaseException) -> None:
    manager = await feed(new_manager(**settings()), work(40))
    await ask(manager)
    await feed(manager, rounds(20, start=90))
    before = await state_of(manager)
    count = Counting()
    count.fails = failure
    with pytest.raises(type(failure)) as caught:
        await measure(manager, count)
    assert caught.value is failure
    assert await state_of(manager) == before


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (None, "dispatch"),
        ({"budget_decision": None}, "dispatch"),
        ({"dispatch": 1, "budget_decision": 7}, "budget_decision"),
        ({"dispatch": 1, "budget_decision": {"input_limit_tokens": 1}}, "estimated_input_tokens"),
        ({"dispatch": 1, "budget_decision": {"estimated_input_tokens": 1, "input_limit_tokens": True}}, "input_limit"),
        ({"dispatch": 1, "budget_decision": {"estimated_input_tokens": 10**400, "input_limit_tokens": 9}}, "estimated"),
    ],
)
async def test_an_answer_of_another_form_names_the_field(answer: Any, field: str) -> None:
    manager = await feed(new_manager(**settings()), work(2))

    async def count(view: list[Message]) -> Any:
        return answer

    with pytest.raises(TypeError, match=field):
        await manager.measured_request_view(provider=None, count_view=count)


@pytest.mark.parametrize("measurement", [None, {"kind": "estimate", "input_tokens": 9}, {"kind": "provider_count"}])
async def test_a_decision_without_an_exact_count_is_no_measurement(measurement: Any) -> None:
    manager = await feed(new_manager(**settings()), work(2))

    async def count(view: list[Message]) -> dict[str, Any]:
        decision = {"estimated_input_tokens": 9, "input_limit_tokens": 99, "measurement": measurement}
        return {"dispatch": object(), "budget_decision": decision}

    result = await manager.measured_request_view(provider=None, count_view=count)
    assert (result["outcome"], result["measured_after"]) == ("measurement_unavailable", None)


@pytest.mark.parametrize("tokens", [0, 1])
async def test_a_count_far_below_the_view_is_no_measurement(tokens: int) -> None:
    manager = await feed(new_manager(**settings()), work(60))

    class Low(Counting):
        def tokens(self, view: Sequence[Message]) -> int:
            return tokens

    result = await measure(manager, Low())
    assert (result["outcome"], result["measured_after"]) == ("measurement_unavailable", None)
    assert size(result["base_view"]) <= BUDGET


# --- a shorter answer -------------------------------------------------------------------------------------------------


class Fitting:
    """A loop that lowers the longest answer, so that the provider takes more input."""

    def __init__(self, count: Counting, limit: int | None) -> None:
        self.count = count
        self.limit = limit
        self.attempts: list[Any] = []

    async def __call__(self, view: list[Message], attempt: Any) -> dict[str, Any] | None:
        self.attempts.append(attempt)
        if self.limit is None:
            return None
        self.count.limit = self.limit
        return {**await self.count(view), "count_calls": 1}


async def test_a_shorter_answer_is_asked_for_before_anything_that_must_stay_is_clipped() -> None:
    manager = await feed(new_manager(**settings()), [{"role": "user", "content": "word " * 1_500}])
    before = await state_of(manager)
    count = Counting(limit=1_000)
    result = await measure(manager, count, fit_output=Fitting(count, 50_000))
    assert result["outcome"] == "reduced_output"
    assert "word " * 1_500 in text(result["base_view"])
    assert await state_of(manager) == before


async def test_a_shorter_answer_that_the_loop_cannot_give_leaves_clipping() -> None:
    manager = await feed(new_manager(**settings()), [{"role": "user", "content": "word " * 1_500}])
    count = Counting(limit=1_200)
    fit = Fitting(count, None)
    result = await measure(manager, count, fit_output=fit)
    assert len(fit.attempts) == 1
    assert result["final_attempt"]["budget_decision"]["estimated_input_tokens"] <= 1_200


async def test_a_shorter_answer_that_does_not_help_leaves_clipping() -> None:
    manager = await feed(new_manager(**settings()), [{"role": "user", "content": "word " * 1_500}])
    count = Counting(limit=1_200)
    result = await measure(manager, count, fit_output=Fitting(count, 1_300))
    assert result["final_attempt"]["budget_decision"]["estimated_input_tokens"] <= 1_300


# --- the transaction --------------------------------------------------------------------------------------------------


async def pending(number: int = 40, hooks: Any = None, **more: Any) -> tuple[ContextManager, dict[str, Any], bytes]:
    """A manager with a measured request that needs a compaction, and its state before."""
    manager = await feed(new_manager(hooks=hooks, **settings(**more)), work(number))
    before = await state_of(manager)
    return manager, await measure(manager, Counting()), before


async def test_nothing_changes_before_the_commit() -> None:
    manager, result, before = await pending()
    assert await state_of(manager) == before
    assert manager.compactor.last_sent is None
    assert await result["transaction"].commit()
    assert (await manager.explain())["compactions"] == 1
    assert text(result["base_view"]) == text(await ask(manager, None))


async def test_rollback_leaves_the_next_view_as_it_would_have_been() -> None:
    manager, result, _ = await pending()
    result["transaction"].rollback()
    view, state = text(await ask(manager, None)), await state_of(manager)
    shared_cache.clear()
    other = new_manager(session_id="other", **settings())
    await other.set_messages(await manager.get_messages())
    assert view == text(await ask(other, None))
    assert state == await state_of(other)


async def test_rollback_leaves_nothing_for_other_sessions_to_find() -> None:
    _, result, _ = await pending()
    result["transaction"].rollback()
    assert shared_cache.is_empty()


async def test_both_ends_of_a_transaction_may_be_called_again() -> None:
    manager, result, before = await pending()
    result["transaction"].rollback()
    result["transaction"].rollback()
    assert await result["transaction"].commit() is False
    assert await state_of(manager) == before
    again = await measure(manager, Counting())
    assert await again["transaction"].commit() is True
    committed = await state_of(manager)
    again["transaction"].rollback()
    assert await again["transaction"].commit() is True
    assert await state_of(manager) == committed
    assert committed != before


async def test_a_cancelled_commit_is_a_rollback() -> None:
    manager, result, before = await pending()
    assert await result["transaction"].commit(is_cancelled=lambda: True) is False
    assert await result["transaction"].commit() is False
    assert await state_of(manager) == before


async def test_a_commit_whose_question_raises_may_be_rolled_back() -> None:
    manager, result, before = await pending()

    def raises() -> bool:
        raise TypeError("no answer")

    with pytest.raises(TypeError, match="no answer"):
        await result["transaction"].commit(is_cancelled=raises)
    result["transaction"].rollback()
    assert await state_of(manager) == before


async def test_a_commit_cancelled_while_it_waits_changes_nothing_and_may_be_rolled_back() -> None:
    manager, result, before = await pending()
    async with manager.compactor.lock:
        task = asyncio.create_task(result["transaction"].commit())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0)
    assert await state_of(manager) == before
    result["transaction"].rollback()
    assert await result["transaction"].commit() is False


async def test_a_rollback_while_a_commit_waits_wins() -> None:
    manager, result, before = await pending()
    async with manager.compactor.lock:
        task = asyncio.create_task(result["transaction"].commit())
        await asyncio.sleep(0)
        result["transaction"].rollback()
    assert await task is False
    assert await state_of(manager) == before


async def test_a_commit_cancelled_while_handlers_run_has_happened_and_is_saved() -> None:
    class Slow:
        def __init__(self) -> None:
            self.entered, self.leave = asyncio.Event(), asyncio.Event()

        async def emit(self, event: str, data: dict[str, Any]) -> None:
            if event == "context:compaction":
                self.entered.set()
                await self.leave.wait()

    hooks = Slow()
    manager, result, _ = await pending(hooks=hooks)
    task = asyncio.create_task(result["transaction"].commit())
    await hooks.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result["transaction"].rollback()
    hooks.leave.set()
    assert await result["transaction"].commit() is True
    await manager.close()
    assert (await manager.explain())["compactions"] == 1


async def test_a_message_that_comes_between_is_kept_and_the_request_may_be_sent() -> None:
    manager, result, _ = await pending()
    await manager.add_message({"role": "user", "content": "One more thing."})
    assert await result["transaction"].commit() is True
    view = await ask(manager, None)
    assert text(view[: len(result["base_view"])]) == text(result["base_view"])
    assert view[-1]["content"] == "One more thing."


async def test_a_request_of_a_history_that_was_edited_since_may_not_be_sent() -> None:
    manager, result, _ = await pending()
    await manager.set_messages((await manager.get_messages())[:-4])
    assert await result["transaction"].commit() is False
    assert (await manager.explain())["compactions"] == 0


@pytest.mark.parametrize("end", ["clear", "forget"])
async def test_nothing_that_was_erased_comes_back_with_a_commit(end: str) -> None:
    manager, result, _ = await pending()
    await (manager.clear() if end == "clear" else manager.forget(containing="file 39: "))
    assert await result["transaction"].commit() is False
    await manager.add_message({"role": "user", "content": "Go on."})
    assert "file 39: " not in text(await ask(manager, None))


async def test_a_compaction_that_came_between_is_kept() -> None:
    manager, result, _ = await pending()
    view = await ask(manager, None)
    assert await result["transaction"].commit() is True
    assert (await manager.explain())["compactions"] == 1
    assert text(await ask(manager, None)) == text(view)


async def test_a_pin_that_came_between_holds_after_the_commit() -> None:
    manager, result, _ = await pending()
    pinned = manager.snapshot()[5]
    await manager.pin(pinned.mark)
    assert await result["transaction"].commit() is True
    await ask(manager, None)
    sent = manager.compactor.last_sent
    assert sent is not None
    assert sent.view.shows(pinned.seq)
    assert (await manager.explain())["compactions"] == 1, "that of the request behind the commit"


@pytest.mark.parametrize("number", [4, 60])
async def test_the_first_request_of_a_resumed_session_changes_nothing_before_its_commit(number: int) -> None:
    first = await feed(new_manager(**settings()), work(number))
    await ask(first, BUDGET)
    await first.close()
    manager = ContextManager(first.config, session_id=first.session_id, store=first.store)
    await manager.ready()
    before = await state_of(manager)
    (await measure(manager, Counting()))["transaction"].rollback()
    assert await state_of(manager) == before
    await manager.close()


async def test_what_is_saved_before_the_first_request_of_a_resumed_session_keeps_its_views() -> None:
    first = await feed(new_manager(**settings()), work(4))
    await ask(first, BUDGET)
    saved = await state_of(first)
    await first.close()
    manager = first
    for _ in range(2):
        manager = ContextManager(first.config, session_id=first.session_id, store=first.store)
        await manager.pin("m1")
        await manager.pin("m1", pinned=False)
        await manager.close()
    assert await state_of(manager) == saved


# --- events -----------------------------------------------------------------------------------------------------------


class Recorder:
    def __init__(self, *, deny: bool = False) -> None:
        self.events: list[str] = []
        self.deny = deny
        self.manager: ContextManager | None = None
        self.views: list[Any] = []

    async def emit(self, event: str, data: dict[str, Any]) -> Any:
        from types import SimpleNamespace

        self.events.append(event)
        if self.manager is not None and event == "context:pre_compact":
            self.views.append(await measure(self.manager, Counting()))
        return SimpleNamespace(action="deny" if self.deny and event == "context:pre_compact" else "continue")


async def test_a_compaction_is_reported_when_it_is_committed_and_asked_about_once() -> None:
    hooks = Recorder()
    _, result, _ = await pending(hooks=hooks)
    assert hooks.events == ["context:pre_compact"]
    await result["transaction"].commit()
    assert hooks.events == ["context:pre_compact", "context:compaction", "context:post_compact"]


async def test_a_compaction_that_is_rolled_back_is_not_reported() -> None:
    hooks = Recorder()
    _, result, _ = await pending(hooks=hooks)
    result["transaction"].rollback()
    assert hooks.events == ["context:pre_compact"]


async def test_a_handler_may_postpone_it() -> None:
    manager, result, before = await pending(22, hooks=Recorder(deny=True))
    assert result["outcome"] == "postponed"
    assert await state_of(manager) == before
    assert await result["transaction"].commit()
    assert (await measure(manager, Counting()))["outcome"] == "not_needed"


async def test_a_handler_may_ask_for_a_measured_view_itself() -> None:
    hooks = Recorder()
    manager = await feed(new_manager(hooks=hooks, **settings()), work(40))
    hooks.manager = manager
    result = await asyncio.wait_for(measure(manager, Counting()), 20)
    assert len(hooks.views) == 1
    assert await result["transaction"].commit()


# --- what is learned --------------------------------------------------------------------------------------------------


async def test_a_committed_count_tells_the_meter_what_requests_cost() -> None:
    manager = await feed(new_manager(**settings()), work(8))
    result = await measure(manager, Counting())
    assert manager.meter.corrections == {}
    await result["transaction"].commit()
    sent = manager.compactor.last_sent
    assert sent is not None
    assert manager.meter.estimate(sent.counted, ("", "")) == result["measured_after"]


async def test_usage_of_the_loops_own_request_is_taken_before_that_of_side_calls() -> None:
    manager = await feed(new_manager(**settings()), work(8))
    record = manager.foreground_usage()
    await ask(manager)
    manager.on_response(Response(usage=Usage(90_000)))
    assert record(input_tokens=1_500, cache_write_tokens=300) is True
    await manager.add_message({"role": "assistant", "content": "Done."})
    sent = manager.compactor.last_sent
    assert sent is not None
    assert manager.meter.estimate(sent.counted, ("", "")) == 1_800


@pytest.mark.parametrize("figures", [{"input_tokens": None}, {"input_tokens": True}, {"input_tokens": -1}])
async def test_usage_that_makes_no_sense_teaches_nothing(figures: dict[str, Any]) -> None:
    manager = await feed(new_manager(**settings()), work(8))
    record = manager.foreground_usage()
    await ask(manager)
    manager.on_response(Response(usage=Usage(90_000)))
    assert record(**figures) is False
    await manager.add_message({"role": "assistant", "content": "Done."})
    assert manager.meter.corrections == {}


async def test_a_loop_that_claimed_usage_and_reports_none_leaves_the_events() -> None:
    manager = await feed(new_manager(**settings()), work(8))
    manager.foreground_usage()
    await ask(manager)
    manager.on_response(Response(usage=Usage(1_900)))
    await manager.add_message({"role": "assistant", "content": "Done."})
    assert manager.meter.corrections["", ""].reports == 1
