"""Compactions are announced through the kernel's hooks; what a handler does cannot harm a request."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, events
from amplifier_context_core.compaction.strategies import FoldRounds
from amplifier_context_testing import EventRecorder
from tests.managers import Watch, ask, feed, new_manager, watched
from tests.messages import rounds, size, text, work

BUDGET = 4_000
PRE, POST, COMPACTION, WARNING, PREFIX_CHANGED, USAGE = events.EVENTS

Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]
COMPACTIONS = (PRE, POST, COMPACTION)


def hooks_with(handler: Handler, *names: str) -> HookRegistry:
    """The kernel's own registry, with a handler on these events."""
    hooks = HookRegistry()
    for name in names:
        hooks.register(name, handler, 0, name=f"test:{name}")
    return hooks


async def worked(rounds: int, handler: Handler | None = None, **config: Any) -> tuple[ContextManager, EventRecorder]:
    """A session of so many rounds, with a handler before compactions; and its events."""
    manager, recorder = watched(hooks_with(handler, PRE) if handler else None, **config)
    return await feed(manager, work(rounds)), recorder


def answering(action: str, **more: Any) -> Handler:
    async def handler(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action=action, **more)  # type: ignore[arg-type]

    return handler


async def test_a_compaction_is_announced_before_with_its_reason_and_after_with_its_figures() -> None:
    manager, recorder = await worked(60)
    before = size(await manager.get_messages())
    view = await ask(manager, BUDGET)
    (payload,) = recorder.named(PRE)
    assert payload["message_count"] == 121
    assert payload["token_count"] == before
    assert (payload["budget"], payload["threshold"]) == (BUDGET, int(BUDGET * 0.95))
    assert payload["target"] == int(BUDGET * manager.config.target_usage)
    assert (recorder.count(POST), recorder.count(COMPACTION)) == (1, 1)
    for payload in recorder.named(POST, COMPACTION):
        assert payload["message_count"] == payload["after_messages"] == len(view)
        assert payload["token_count"] == payload["after_tokens"] == size(view)
        assert payload["before_messages"] == 121
        assert all(set(step) == {"name", "freed"} for step in payload["strategies"])
        assert "fold" in [step["name"] for step in payload["strategies"]]
        assert 0 < payload["floor_tokens"] < payload["after_tokens"]
        assert payload["duration_ms"] > 0
        assert payload["budget"] == BUDGET
        assert payload["target_tokens"] == payload["target"]
        assert payload["strategy_level"] == len(payload["strategies"])
        assert text([payload]), "it is plain JSON"


async def prompt() -> str:
    return "Hm."


async def edited(manager: Any) -> None:
    messages = await manager.get_messages()
    await manager.set_messages([*messages[:-2], *rounds(1, start=200)])


async def cleared(manager: Any) -> None:
    await manager.clear()
    await feed(manager, work(2))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda manager: manager.compact(), "compaction"),
        (lambda manager: manager.undo(), "edited history"),
        (edited, "edited history"),
        (lambda manager: manager.forget(["m9"]), "edited history"),
        (cleared, "edited history"),
        (lambda manager: manager.set_system_prompt_factory(prompt), "changed system prompt"),
    ],
)
async def test_a_view_that_does_not_begin_with_the_one_before_is_announced_with_its_reason(
    change: Callable[[ContextManager], Awaitable[Any]], reason: str
) -> None:
    """Other reasons are in test_cache_health.py."""
    manager, recorder = await worked(45)
    await ask(manager, 8_000)
    await manager.compact()
    await ask(manager, 8_000)
    seen = recorder.count(PREFIX_CHANGED)
    await (feed(manager, rounds(30, start=400)) if reason == "compaction" else manager.explain())
    await change(manager)
    await manager.explain()  # a page that looks is no request
    assert recorder.count(PREFIX_CHANGED) == seen
    await ask(manager, 8_000)
    assert recorder.named(PREFIX_CHANGED)[-1]["reason"] == reason
    await ask(await feed(manager, rounds(3, start=300)), 8_000)
    assert recorder.count(PREFIX_CHANGED) == seen + 1


async def test_growth_and_another_provider_announce_no_other_prefix_and_another_budget_does() -> None:
    manager, recorder = await worked(20)
    for number in range(3):
        for name in ("openai", "anthropic"):
            await manager.get_messages_for_request(8_000, SimpleNamespace(name=name))
        await feed(manager, rounds(2, start=100 + 2 * number))
    assert recorder.count(PREFIX_CHANGED) == 0
    await ask(manager, 8_000)
    await ask(manager, 2_000)
    assert [event["reason"] for event in recorder.named(PREFIX_CHANGED)] == ["compaction"]
    await ask(manager, 8_000)
    assert [event["reason"] for event in recorder.named(PREFIX_CHANGED)] == ["compaction", "other budget"]


async def test_after_a_cancelled_announcement_the_next_request_announces_it_once_more() -> None:
    entered, changed = asyncio.Event(), list[str]()

    async def slow(event: str, data: dict[str, Any]) -> HookResult:
        changed.append(data["reason"])
        entered.set()
        await asyncio.sleep(0 if len(changed) > 1 else 60)
        return HookResult(action="continue")

    manager = await feed(new_manager(hooks=hooks_with(slow, PREFIX_CHANGED)), work(20))
    await ask(manager, 8_000)
    await edited(manager)
    request = asyncio.create_task(manager.get_messages_for_request(8_000))
    await entered.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await ask(manager, 8_000)
    await ask(manager, 8_000)
    assert changed == ["edited history"] * 2


@pytest.mark.parametrize("action", ["deny", "ask_user"])
async def test_a_no_postpones_a_compaction_until_the_view_has_grown(action: str) -> None:
    manager, recorder = await worked(37, answering(action, reason="later"), compact_threshold=0.92)
    for _ in range(10):
        view = await ask(manager, BUDGET)
        assert int(BUDGET * 0.92) < size(view) <= BUDGET
    assert recorder.count(PRE) == 1
    await feed(manager, rounds(2, start=800))
    for _ in range(10):
        await ask(manager, BUDGET)
    assert recorder.count(PRE) == 2
    assert manager.compactor.compactions == 0
    for number in range(10):
        await feed(manager, rounds(1, start=900 + number))
        await ask(manager, BUDGET)
    assert manager.compactor.compactions, "but not past the budget"


async def test_a_denied_manual_compaction_is_reported_to_its_caller_and_its_reason_is_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A handler may quote the conversation in its reason."""
    caplog.set_level(logging.DEBUG, "amplifier_context_core")
    manager, _ = await worked(30, answering("deny", reason="they said hunter2"))
    assert (await manager.compact())["compacted"] is False
    ours = [record.getMessage() for record in caplog.records if "amplifier_context" in record.name]
    assert "a handler postponed the compaction" in str(ours)
    assert "hunter2" not in str(ours)


async def test_an_injection_comes_beside_the_focus_asked_for_before() -> None:
    watch = Watch()
    inject = answering("inject_context", context_injection="Keep the dates.")
    manager, _ = await worked(60, inject, strategies=[watch, FoldRounds()])
    await ask(manager, 8_000)
    await manager.compact("Keep the names.")
    await feed(manager, rounds(60, start=500))
    await ask(manager, BUDGET)
    assert "Keep the dates." in watch.goals[-1].focus
    assert "Keep the names." in watch.goals[-1].focus


@pytest.mark.parametrize("answer", [ValueError("secret"), "deny", {"action": "deny"}], ids=["raises", "text", "dict"])
async def test_a_registry_that_raises_or_answers_nonsense_counts_as_no_answer(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        async def emit(self, event: str, data: dict[str, Any]) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    with caplog.at_level(logging.WARNING):
        manager = await feed(new_manager(hooks=Odd()), work(60))
        await ask(manager, BUDGET)
    assert (await manager.explain())["compactions"] == 1
    assert ("ValueError" in caplog.text) is isinstance(answer, Exception)
    assert "secret" not in caplog.text


@pytest.mark.parametrize("event", [PRE, POST, USAGE])
async def test_a_handler_that_asks_for_a_smaller_view_gets_one_within_its_budget(event: str) -> None:
    sizes = list[int]()

    async def asks(event: str, data: dict[str, Any]) -> HookResult:
        sizes.append(size(await manager.get_messages_for_request(1_000)))
        return HookResult(action="continue")

    manager = await feed(new_manager(hooks=hooks_with(asks, event), strict=True), work(60))
    async with asyncio.timeout(30):
        await ask(manager, BUDGET)
    assert [size <= 1_000 for size in sizes] in ([True], [True, True]), "the second is for the compaction within"


async def test_handlers_that_hang_are_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hanging(event: str, data: dict[str, Any]) -> HookResult:
        await asyncio.sleep(60)
        return HookResult(action="deny")

    monkeypatch.setattr(events, "_TIMEOUT", 0.05)
    manager = await feed(new_manager(hooks=hooks_with(hanging, *COMPACTIONS)), work(60))
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(30):
            await ask(manager, BUDGET)
    assert (await manager.explain())["compactions"] == 1
    assert [event for event in COMPACTIONS if event not in caplog.text] == []
