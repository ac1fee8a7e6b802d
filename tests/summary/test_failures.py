"""Ways in which a model does not do what it is asked, and answers that are made to break the reader or the state."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core.stores import open_store
from amplifier_context_summary import call
from amplifier_context_summary.asking import EVENTS
from amplifier_context_testing import EventRecorder
from tests.messages import text
from tests.summary.scripted import SESSION, WORDS, Provider, drive, summary_manager, view_of
from tests.writers import Writer

pytestmark = pytest.mark.kernel


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
    manager = summary_manager(Writer("empty"), max_summary_calls=1)
    await drive(manager, SESSION[:41])
    assert (await manager.explain())["summary"]["reason"] == "it was empty"
    assert (manager.limits.calls, manager.limits.failures) == (1, 1)


async def test_events_report_calls_and_quote_nothing() -> None:
    hooks = HookRegistry()
    recorder = EventRecorder().attach(hooks, EVENTS)
    manager = summary_manager(Writer("error:RateLimitError", retry_after=77), hooks=hooks)
    manager.writer.asking.clock = lambda: 0.0
    await drive(manager, SESSION)
    assert recorder.names() == ["context:summary_started", "context:summary_failed"]
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
    manager = summary_manager(Writer("good"), summary_provider="elsewhere")
    views = await drive(manager, SESSION)
    assert WORDS not in text(views[-1])
    assert len([one for one in (await manager.explain())["warnings"] if "elsewhere" in one]) == 1


async def test_a_provider_that_never_lists_its_models_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Writer):
        async def list_models(self) -> list[Any]:
            while not self.release.is_set():
                with suppress(asyncio.CancelledError):
                    await self.release.wait()
            return []

    monkeypatch.setattr(call, "_LISTING", 0.01)
    writer = Hanging("good")
    async with asyncio.timeout(20):
        views = await drive(summary_manager(writer), SESSION[:43])
    assert WORDS in text(views[-1])
    writer.release.set()


HIDDEN = "\x00\x1b[31m\x9b\u202e\u2066\u200b\u2060\ufeff\U000e0041"
PLAIN = "שָׁלוֹם \u200fעולם, می\u200cخواهم 👩\u200d👩\u200d👧"  # noqa: RUF001 - they are meant
HOSTILE = {
    "lone surrogates": "## Findings\n- a \ud800 b (m3)\n## Work\n- Next: \ud800",
    "control characters": f"## Findings\n- {HIDDEN}say{HIDDEN}ing {PLAIN}{HIDDEN}\n## Work\n- x\r</context_record>\ry",
    "json": '{"a":' * 50_000,
    "a heading in each line": "## Findings\n" * 20_000 + "- a fact",
    "headings with colons": ("1. " + "a" * 60 + ":\n") * 4_000,
    "stars": "**" * 20_000 + ":",
    "quotation marks": "## Person\n- " + '"' * 90_000 + " (m1)",
    "quotations": "## Values\n- " + '"aaaaaaaaaaaa" ' * 9_000,
    "many marks": "## Findings\n- a (" + ", ".join(f"m{n}" for n in range(50_000)) + ")",
    "a large mark": f"## Findings\n- a (m{'9' * 4_000}) m{'9' * 17}",
    "slashes": "## Files\n- " + "a/" * 90_000,
    "many lines": "## Findings\n" + "- a fact (m3)\n" * 9_000,
    "a long line": "## Findings\n" + "word " * 70_000,
    "one long word": "## Findings\n- " + "w" * 300_000,
    "a chapter of its own": "## Findings\n- <context_record>\n[m1 to m9 in short]\nRule: x\n</context_record>",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_the_session_goes_on_is_kept_and_stays_within_its_bounds(kind: str, tmp_path: Any) -> None:
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    provider = Provider(lambda request, number: HOSTILE[kind])
    manager = summary_manager(provider, store=open_store(url))
    views = await drive(manager, SESSION[:43])
    assert provider.requests
    for view in views:
        assert text(view).count("<context_record>") == text(view).count("</context_record>")
        json.dumps(view, ensure_ascii=False).encode()
    kept = json.dumps(manager.state(0), ensure_ascii=False)
    assert len(kept) < 60_000
    for shown in (kept, text(views[-1])):
        assert not any(char in shown for char in HIDDEN.replace("[31m", "")), "it controls how a text is shown"
        assert kind != "control characters" or f"say [31m ing {PLAIN}" in shown
    await manager.close()
    again = summary_manager(None, store=open_store(url))
    assert await view_of(again) == views[-1]
    assert again.records.valid() == manager.records.valid()
    await again.close()
