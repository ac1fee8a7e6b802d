"""Requests of loop-streaming: counted by the provider before they are sent, or with texts to retain."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry
from amplifier_core.llm_errors import ContextLengthError

from amplifier_context_core import ContextManager, ContextOverflow
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.view import shared_cache
from tests.authors import make_manager
from tests.manager.measured import BUDGET, OVERHEAD, Counting, measure, settings, state_of
from tests.managers import ask, feed, new_manager
from tests.messages import Message, rounds, says, size, system, text, user, words, work


async def test_the_providers_count_decides_although_our_own_sees_no_need() -> None:
    manager = await feed(new_manager(**settings()), work(22))
    count = Counting()
    own = size(await manager.get_messages())
    assert own < 0.8 * BUDGET < count.tokens(await manager.get_messages())
    assert (await measure(manager, Counting(ratio=0.5)))["outcome"] == "not_needed"
    result = await measure(manager, count)
    assert result["outcome"] == "target_reached"
    assert result["measured_before"] > result["trigger"]
    assert result["measured_after"] == count.tokens(result["base_view"]) <= result["target"]
    assert abs(result["trigger"] - 0.8 * (BUDGET - OVERHEAD) - OVERHEAD) <= 2
    assert manager.session.meter.corrections == {}
    await result["transaction"].commit()
    estimate = manager.session.meter.estimate(manager.compactor.last_sent.counted, ("", ""))
    assert estimate == result["measured_after"], "a commit corrects it"


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


@pytest.mark.parametrize(
    ("config", "limit", "error"), [({}, OVERHEAD // 2, ContextLengthError), ({"strict": True}, 10**6, ContextOverflow)]
)
async def test_a_request_that_can_never_fit_or_be_counted_is_an_error_and_changes_nothing(
    config: dict[str, Any], limit: int, error: type[Exception]
) -> None:
    giants = [system(words("rule", 5_000)), user(words("human", 9_000))]
    manager = await feed(new_manager(**settings(**config)), giants if config else work(5))
    before = await state_of(manager)
    with pytest.raises(error):
        await manager.measured_request_view(provider=None, count_view=Counting(limit=limit))
    failing = Counting()
    failing.fails = RuntimeError("no count")
    with pytest.raises(RuntimeError, match="no count"):
        await measure(manager, failing)
    assert await state_of(manager) == before


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


@pytest.mark.parametrize(("number", "unavailable"), [(200, range(9)), (22, [2])], ids=["never", "the recount"])
async def test_without_a_count_our_own_decides(number: int, unavailable: Sequence[int]) -> None:
    manager = await feed(new_manager(**settings()), work(number))
    result = await measure(manager, count := Counting(unavailable=unavailable))
    if number > 100:
        assert result["measured_before"] is None
        assert max(size(view) for view in count.views) <= 2 * BUDGET, "one far above the budget is not counted"
    assert result["outcome"] == "measurement_unavailable"
    assert size(result["base_view"]) <= BUDGET
    assert await result["transaction"].commit()
    assert text(await ask(manager, None)) == text(result["base_view"])


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"budget_decision": None}, "dispatch"),
        ({"dispatch": 1, "budget_decision": 7}, "budget_decision"),
        ({"dispatch": 1, "budget_decision": {"input_limit_tokens": 1}}, "estimated_input_tokens"),
        ({"dispatch": 1, "budget_decision": {"estimated_input_tokens": 10**400, "input_limit_tokens": 9}}, "estimated"),
    ],
)
async def test_an_answer_of_another_form_names_the_field(answer: Any, field: str) -> None:
    async def count(view: list[Message]) -> Any:
        return answer

    with pytest.raises(TypeError, match=field):
        await (await feed(new_manager(), work(2))).measured_request_view(provider=None, count_view=count)


@pytest.mark.parametrize("measurement", [{"kind": "estimate"}, {"input_tokens": True}, {"input_tokens": 1}])
async def test_a_decision_without_an_exact_count_is_no_measurement(measurement: Any) -> None:
    class Inexact(Counting):
        async def __call__(self, view: list[Message]) -> dict[str, Any]:
            answer = await super().__call__(view)
            answer["budget_decision"]["measurement"].update(measurement)
            return answer

    result = await measure(await feed(new_manager(**settings()), work(2)), Inexact())
    assert (result["outcome"], result["measured_after"]) == ("measurement_unavailable", None)


GIANT = "word " * 1_500


async def fitted(limit: int, longest: int | None, *, estimates: bool = False, **more: Any) -> tuple[Any, Any, int]:
    """A request with a giant text, whose loop can lower the longest answer so that the provider takes more input.

    The manager, the result, and the times that the loop was asked.
    """
    manager = await feed(new_manager(**settings(**more)), [user(GIANT)])
    before = await state_of(manager)
    count = Counting(limit=limit)
    attempts: list[Any] = []

    async def fit(view: list[Message], attempt: Any) -> dict[str, Any] | None:
        attempts.append(attempt)
        if longest is None:
            return None
        count.limit = longest
        found = await count(view)
        if estimates:
            found["budget_decision"]["measurement"] = None
        return {**found, "count_calls": 1}

    result = await measure(manager, count, fit_output=fit)
    assert await state_of(manager) == before
    return manager, result, len(attempts)


@pytest.mark.parametrize("estimates", [False, True], ids=["counts", "estimates"])
async def test_a_shorter_answer_is_asked_for_before_anything_that_must_stay_is_clipped(estimates: bool) -> None:
    """Also where the loop only estimates what that leaves. It is committed under the limits that are left."""
    manager, result, _ = await fitted(1_000, 50_000, estimates=estimates, strict=True)
    assert result["outcome"] == "reduced_output"
    assert GIANT in text(result["base_view"])
    assert await result["transaction"].commit() is True
    assert manager.warnings.texts == []
    usage = await manager.usage()
    assert usage["used"] <= usage["size"]
    assert result["measured_after"] == (None if estimates else usage["used"])


@pytest.mark.parametrize(("longest", "limit"), [(None, 1_200), (1_300, 1_300)], ids=["none", "it does not help"])
async def test_without_a_shorter_answer_that_helps_it_is_clipped(longest: int | None, limit: int) -> None:
    _, result, attempts = await fitted(1_200, longest)
    assert attempts == 1
    assert result["final_attempt"]["budget_decision"]["estimated_input_tokens"] <= limit


async def test_usage_of_the_loops_own_request_is_taken_before_that_of_side_calls() -> None:
    manager = await feed(new_manager(**settings()), work(8))
    record = manager.foreground_usage()
    await ask(manager)
    manager.on_response(Response(usage=Usage(90_000)))
    assert not any(record(input_tokens=figure) for figure in (None, True, -1))
    assert record(input_tokens=1_500, cache_write_tokens=300) is True
    await manager.add_message(says())
    assert manager.session.meter.estimate(manager.compactor.last_sent.counted, ("", "")) == 1_800
    await ask(manager)
    manager.on_response(Response(usage=Usage(1_900)))  # what it does not report itself comes by the event
    await manager.add_message(says())
    assert manager.session.meter.corrections["", ""].reports == 2


def steered(content: str) -> Message:
    return user(content, metadata={"ephemeral": True, "persisted": True})


async def test_of_equal_texts_to_retain_the_newest_stays_in_a_hard_fit_too_and_what_cannot_be_kept_is_an_error() -> (
    None
):
    newest = steered("STEER LEFT") | {"name": "newest"}
    manager = await feed(new_manager(), [*work(5), steered("STEER LEFT"), *rounds(40, start=100), newest])
    await feed(manager, [steered("word " * 5_000), says("written by the model"), *rounds(60, start=200)])
    view = await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=BUDGET)
    assert [m.get("name") for m in view if m["content"] == "STEER LEFT"] == ["newest"]
    manager.session.meter.correction(("p", "")).ratio = 2.0  # it was measured to count twice as much
    asks: dict[str, Any] = {"provider": SimpleNamespace(name="p"), "hard_fit": True}
    view = await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=BUDGET, **asks)
    assert 2 * size(view) <= BUDGET
    with pytest.raises(ValueError, match="not in the history"):
        await manager.request_retention(retain_contents=["written by the model"])
    with pytest.raises(ContextLengthError):
        await manager.request_retention(retain_contents=["word " * 5_000], token_budget=BUDGET)
    await ask(manager, 20_000)


async def pending(number: int = 40, hooks: Any = None, **more: Any) -> tuple[ContextManager, dict[str, Any], bytes]:
    """A manager with a measured request that needs a compaction, and its state before."""
    manager = await feed(new_manager(hooks=hooks, **settings(**more)), work(number))
    before = await state_of(manager)
    return manager, await measure(manager, Counting()), before


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_commit_that_is_cancelled_or_rolled_back_while_it_waits_changes_nothing(cancelled: bool) -> None:
    manager, result, before = await pending()
    async with manager.compactor.lock.hold():
        task = asyncio.create_task(result["transaction"].commit())
        await asyncio.sleep(0)
        if cancelled:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            result["transaction"].rollback()
    assert cancelled or await task is False
    await asyncio.sleep(0)
    assert await state_of(manager) == before
    result["transaction"].rollback()
    assert await result["transaction"].commit() is False
    assert shared_cache.is_empty(), "no other session finds the compaction"


async def test_a_commit_cancelled_while_handlers_run_has_happened_and_is_saved() -> None:
    hooks, entered, leave = HookRegistry(), asyncio.Event(), asyncio.Event()

    async def slow(event: str, data: dict[str, Any]) -> None:
        entered.set()
        await leave.wait()

    hooks.register("context:compaction", slow, 0, name="slow")
    manager, result, _ = await pending(hooks=hooks)
    task = asyncio.create_task(result["transaction"].commit())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result["transaction"].rollback()
    leave.set()
    assert await result["transaction"].commit() is True
    await manager.close()
    assert (await manager.explain())["compactions"] == 1


async def shortened(manager: ContextManager) -> None:
    await manager.set_messages((await manager.get_messages())[:-4])


@pytest.mark.parametrize(
    "edit", [shortened, ContextManager.clear, lambda manager: manager.forget(containing="file 39: ")]
)
async def test_a_request_of_a_history_that_was_edited_since_may_not_be_sent_and_brings_nothing_back(
    edit: Callable[[ContextManager], Awaitable[object]],
) -> None:
    manager, result, _ = await pending()
    await edit(manager)
    assert await result["transaction"].commit() is False
    assert (await manager.explain())["compactions"] == 0
    await manager.add_message(user())
    assert "file 39: " not in text(await ask(manager, None))


async def test_a_pin_that_came_between_holds_after_the_commit() -> None:
    manager, result, _ = await pending()
    pinned = manager.snapshot()[5]
    await manager.pin(pinned.mark)
    assert await result["transaction"].commit() is True
    await ask(manager, None)
    assert manager.compactor.last_sent.view.shows(pinned.seq)
    assert (await manager.explain())["compactions"] == 1, "that of the request after the commit"


async def test_the_first_request_of_a_resumed_session_changes_nothing_before_its_commit() -> None:
    first = await feed(new_manager(**settings()), work(60))
    await ask(first, BUDGET)
    await first.close()
    manager = make_manager(first.config, session_id=first.session_id, store=first.store)
    await manager.ready()
    before = await state_of(manager)
    (await measure(manager, Counting()))["transaction"].rollback()
    assert await state_of(manager) == before
    await manager.close()


@pytest.mark.parametrize("answer", ["continue", "deny"])
async def test_a_compaction_is_asked_about_once_before_and_reported_when_it_is_committed(answer: str) -> None:
    events: list[str] = []

    class Hooks:
        async def emit(self, event: str, data: dict[str, Any]) -> Any:
            events.append(event)
            return SimpleNamespace(action=answer if event == "context:pre_compact" else "continue")

    manager, result, before = await pending(22 if answer == "deny" else 40, hooks=Hooks())
    assert events == ["context:pre_compact"]
    assert (result["outcome"] == "postponed") is (answer == "deny")
    assert await state_of(manager) == before
    assert await result["transaction"].commit()
    if answer == "deny":
        assert (await measure(manager, Counting()))["outcome"] == "not_needed"
    else:
        assert events[1:] == ["context:compaction", "context:post_compact", "context:usage"]


async def test_what_is_saved_before_the_first_request_of_a_resumed_session_keeps_its_views() -> None:
    first = await feed(new_manager(**settings()), work(4))
    await ask(first, BUDGET)
    saved = await state_of(first)
    await first.close()
    for _ in range(2):
        manager = make_manager(first.config, session_id=first.session_id, store=first.store)
        await manager.pin("m1")
        await manager.pin("m1", pinned=False)
        await manager.close()
    assert await state_of(manager) == saved


async def test_a_compaction_that_came_between_is_kept() -> None:
    manager, result, _ = await pending()
    view = await ask(manager, None)
    assert await result["transaction"].commit() is True
    assert (await manager.explain())["compactions"] == len(await manager.compactions()) == 1
    assert text(await ask(manager, None)) == text(view)


@pytest.mark.parametrize("commits", [False, True])
async def test_a_short_form_is_shown_at_once_if_no_committed_view_showed_its_result(commits: bool) -> None:
    manager = await feed(new_manager(**settings()), work(1))
    first = await measure(manager, Counting())
    await feed(manager, rounds(1, start=7, output=8_000))
    (await measure(manager, Counting()))["transaction"].rollback()
    if commits:  # of a view from before the result
        assert await first["transaction"].commit()
    await manager.compact_summary("call_7", "in short")
    assert "in short" in text(await ask(manager))
    await manager.compact_summary("call_7", "shorter")
    assert "shorter" not in text(await ask(manager))
