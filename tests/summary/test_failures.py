"""Every way in which a model does not do what it is asked: the view is the digest's, and nothing waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_summary import call
from amplifier_context_summary.asking import EVENTS
from amplifier_context_testing import EventRecorder
from tests.messages import bare, digest, text
from tests.summary.scripted import BUDGET, SESSION, WORDS, drive, summary_manager, wait_for_summaries
from tests.writers import Writer

pytestmark = pytest.mark.kernel


async def test_a_late_summary_takes_the_place_of_the_digest_at_the_next_compaction() -> None:
    writer = Writer("slow")
    manager = summary_manager(writer)
    views = await drive(manager, SESSION[:45], waits=False)
    assert manager.compactor.compactions == 1
    assert WORDS not in text(views[-1])
    before = views[-1]
    writer.release.set()
    await wait_for_summaries(manager)
    again = await manager.get_messages_for_request(BUDGET)
    assert digest(bare(again)) == digest(bare(before)), "the prefix stays while it is cached"
    views = await drive(manager, SESSION[45:])
    assert manager.compactor.compactions > 1
    assert WORDS in text(views[-1])


@pytest.mark.parametrize("kind", ["refusing", "filtered", "empty", "truncated"])
async def test_an_answer_that_fails_its_checks_is_asked_for_once_more_with_the_reason(kind: str) -> None:
    writer = Writer(kind)
    hooks = HookRegistry()
    recorder = EventRecorder().attach(hooks, EVENTS)
    manager = summary_manager(writer, hooks=hooks)
    await drive(manager, SESSION[:41])
    assert manager.compactor.compactions == 1
    first, again = (str(request.messages[-1].content) for request in writer.asked)
    assert "could not be used" not in first
    assert "could not be used" in again
    started = recorder.named("context:summary_started")
    assert [one["again"] for one in started] == [False, True]
    assert started[1]["input_tokens"] > started[0]["input_tokens"]


async def test_an_attempt_has_failed_if_the_limits_forbid_to_ask_for_a_better_answer() -> None:
    hooks = HookRegistry()
    recorder = EventRecorder().attach(hooks, EVENTS)
    manager = summary_manager(Writer("empty"), hooks=hooks, max_summary_calls=1)
    await drive(manager, SESSION[:41])
    assert recorder.names() == ["context:summary_started", "context:summary_failed"]
    assert (await manager.explain())["summary"]["reason"] == "it was empty"
    assert manager.limits.failures == 1


async def test_events_report_calls_and_quote_nothing() -> None:
    hooks = HookRegistry()
    recorder = EventRecorder().attach(hooks, EVENTS)
    manager = summary_manager(Writer("error:RateLimitError", retry_after=77), hooks=hooks)
    manager.writer.asking.clock = lambda: 0.0
    await drive(manager, SESSION)
    assert recorder.count("context:summary_started") == 1
    [failed] = recorder.named("context:summary_failed")
    assert failed["reason"] == "RateLimitError"
    assert failed["waits_seconds"] == 77
    assert "as the test asked for" not in str(failed)


async def test_a_call_without_an_answer_is_not_made_again_for_the_same_compaction() -> None:
    writer = Writer("error:NetworkError")
    manager = summary_manager(writer)
    now = [0.0]
    manager.writer.asking.clock = lambda: now[0]
    for message in SESSION:
        await drive(manager, [message])
        now[0] += 4_000
    assert 1 < len(writer.asked) <= manager.compactor.compactions + 1


async def test_a_compaction_by_hand_asks_no_model_before_the_back_off_is_over() -> None:
    writer = Writer("error:ProviderUnavailableError")
    manager = summary_manager(writer)
    now = [0.0]
    manager.writer.asking.clock = lambda: now[0]
    await drive(manager, SESSION[:41])
    assert len(writer.asked) == 1
    for asked, reason in ((1, "back-off after a failure"), (2, "ProviderUnavailableError")):
        for message in SESSION[41:51]:
            await manager.add_message(message)
        await manager.compact()
        assert len(writer.asked) == asked
        assert (await manager.explain())["summary"]["reason"] == reason
        now[0] += 31


async def test_without_a_provider_there_is_one_warning() -> None:
    hooks = HookRegistry()
    recorder = EventRecorder().attach(hooks, ("context:warning",))
    manager = summary_manager(Writer("good"), summary_provider="elsewhere", hooks=hooks)
    views = await drive(manager, SESSION)
    assert WORDS not in text(views[-1])
    warnings = [data["message"] for data in recorder.named("context:warning") if "elsewhere" in data["message"]]
    assert len(warnings) == 1
    assert warnings[0] in (await manager.explain())["warnings"]


async def test_a_provider_that_never_lists_its_models_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Writer):
        async def list_models(self) -> list[Any]:
            while not self.release.is_set():
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    continue
            return []

    monkeypatch.setattr(call, "_LISTING", 0.01)
    writer = Hanging("good")
    manager = summary_manager(writer)
    async with asyncio.timeout(20):
        views = await drive(manager, SESSION[:43])
    assert WORDS in text(views[-1])
    writer.release.set()
    await manager.close()
