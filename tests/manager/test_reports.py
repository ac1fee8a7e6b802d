"""What explain, usage and events report: of every round, by kind, in the tokens of the provider."""

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager
from amplifier_context_core.economics.meter import Correction, Meter
from amplifier_context_core.events import COMPACTION, EVENTS, POST_COMPACT, PRE_COMPACT, USAGE, WARNING
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_testing import EventRecorder, coding_session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.manager.reporting import KEY, Reporting, provider
from tests.managers import ask, feed, new_manager
from tests.messages import Message, rounds, says, size, system, user, work

BUDGET = 4_000


async def explained(messages: list[Message], budget: int = BUDGET, **config: Any) -> tuple[Any, dict[str, Any]]:
    manager = await feed(new_manager(**config), messages)
    await ask(manager, budget)
    return manager, await manager.explain()


@pytest.mark.parametrize("budget", [1_000, 100_000])
async def test_every_message_is_in_exactly_one_round_and_tokens_before_add_up_to_the_history(budget: int) -> None:
    manager, report = await explained([system(), *coding_session(100)], budget)
    spans = [(int(row["mark"][1:]), int(row["to"][1:])) for row in report["rounds"]]
    assert [start for start, _ in spans] == [2, *(end + 1 for _, end in spans[:-1])]
    assert spans[-1][1] == len(await manager.get_messages())
    assert sum(row["tokens_before"] for row in report["rounds"]) == size((await manager.get_messages())[1:])


async def test_each_round_says_what_became_of_it_and_by_which_rule() -> None:
    ladder = ["supersede", {"clip": {"max_chars": 100}}, {"clear": {"keep_last": 1}}, "fold"]
    talk = ConversationBuilder().user("Look.")
    for number in range(30):
        talk.round("read", {"path": "same" if number % 3 == 0 else f"f{number}"}, f"{number} " * 300)
    _, report = await explained(talk.messages, target_usage=0.5, ladder=ladder)
    found = {row["state"]: row["rule"] for row in report["rounds"]}
    assert (found["superseded"], found["clipped"]) == ("supersede", "clip")
    assert set(found) <= {"kept", "clipped", "cleared", "superseded", "folded", "dropped"}
    assert all(row["tokens_after"] <= row["tokens_before"] for row in report["rounds"])


async def test_the_report_names_what_is_protected_and_why() -> None:
    messages = [system("Prompt."), user("The task."), *rounds(20), user("Keep this.", metadata={"pinned": True})]
    messages += [*rounds(40, start=100), user("The newest."), *rounds(3, start=200)]
    manager, report = await explained(messages)
    assert report["tokens_saved"] == size(await manager.get_messages()) - report["view"]["counted"]
    why = {member["why"]: member["mark"] for member in report["floor"]["members"]}
    assert (why["system prompt"], why["task"], why["pinned"]) == ("system prompt", "m2", "m43")
    assert (why["newest human message"], why["newest round"]) == ("m124", "m129")
    assert report["floor"]["tokens"] == sum(member["tokens"] for member in report["floor"]["members"])


async def test_a_report_on_a_view_that_a_request_would_compact_first_is_no_overflow() -> None:
    manager = await feed(new_manager(strict=True, max_tokens=3_000), work(40, output=900))
    report = await manager.explain()
    assert report["view"]["tokens"] > report["view"]["budget"] == 3_000
    assert report["warnings"] == []
    assert size(await ask(manager)) <= 3_000
    assert (await manager.explain())["warnings"] == []


WINDOW = 8_000


def manager_with(recorder: EventRecorder | None = None, **config: Any) -> ContextManager:
    hooks = HookRegistry()
    if recorder is not None:
        recorder.attach(hooks, EVENTS)
    return new_manager(hooks=hooks, max_tokens=WINDOW, **config)


async def until_compacted(manager: ContextManager, number: int = 200) -> int:
    """Work until a compaction; return how many rounds that took."""
    before = manager.compactor.compactions
    for count in range(number):
        await feed(manager, rounds(1, start=count))
        await manager.get_messages_for_request()
        if manager.compactor.compactions > before:
            return count
    raise AssertionError("no compaction")


async def test_the_kinds_add_up_to_what_is_used_and_what_is_free_to_the_size() -> None:
    manager = await feed(manager_with(), [system("Be careful. " * 20), *work(6)])
    await manager.pin("m4")
    await until_compacted(manager)
    usage = await manager.usage()
    assert sum(usage["kinds"].values()) == usage["used"]
    assert usage["used"] + usage["free"] == usage["size"] == WINDOW
    cost = usage["next_request"]
    assert 0 < cost["growth"] < cost["warm"] < cost["cold"]
    used = [kind for kind, tokens in usage["kinds"].items() if tokens]
    assert used == ["system", "pins", "people", "chapters", "rounds"]


async def test_it_names_the_threshold_of_the_next_compaction_and_about_how_many_requests_are_left() -> None:
    recorder = EventRecorder()
    manager = await feed(manager_with(recorder, cadence="fixed"), work(1))
    await until_compacted(manager)
    await feed(manager, rounds(3, start=300))
    await manager.get_messages_for_request()
    compaction = (await manager.usage())["compaction"]
    assert compaction["left"] == compaction["above"] - (await manager.usage())["used"]
    expected = compaction["requests"]
    needed = await until_compacted(manager)
    assert expected is not None
    assert abs(expected - needed) <= max(2, needed // 3)
    announced = recorder.named(PRE_COMPACT)[-1]
    assert announced["threshold"] == compaction["above"] < announced["token_count"]


async def test_what_the_provider_reported_counts_tool_definitions_and_is_unknown_after_a_compaction() -> None:
    manager = await feed(manager_with(), work(1))
    provider = SimpleNamespace(name="p")
    await manager.get_messages_for_request(None, provider)
    usage = await manager.usage()
    assert (usage["reported"], usage["kinds"]["tools"]) == (None, 0)
    manager.on_response(Response("m", "p", Usage(usage["used"] + 700, 10), "stop", None))
    await manager.add_message(says("Read."))
    await manager.get_messages_for_request(None, provider)
    reported = await manager.usage()
    assert (reported["reported"], reported["figure"]) == (usage["used"] + 700, "measured")
    assert reported["kinds"]["tools"] > 0
    await until_compacted(manager)
    assert (await manager.usage())["reported"] is None
    assert "unknown since the last compaction" in await manager.describe()


async def test_the_event_is_emitted_once_for_each_twentieth_and_after_a_compaction() -> None:
    recorder = EventRecorder()
    manager = await feed(manager_with(recorder), work(1))
    await until_compacted(manager)
    steps = [20 * data["used"] // data["size"] for data in recorder.named(USAGE)]
    assert len(steps) > 3
    assert all(one != other for one, other in pairwise(steps))
    assert steps[-1] < steps[-2]
    names = [event.name for event in recorder.records if event.name in (USAGE, COMPACTION)]
    assert names[-2:] == [COMPACTION, USAGE]
    before = len(recorder.named(USAGE))
    await manager.get_messages_for_request()
    assert len(recorder.named(USAGE)) == before


DECLARED = 8_000
ANSWERED = 6_000  # tokens: what the provider's answer and the safety margin leave


async def running(messages: list[Message], **config: Any) -> tuple[Reporting, EventRecorder]:
    session = await Reporting(**config).mounted(messages)
    session.asked_for = provider(window=DECLARED)
    return session, EventRecorder(session.coordinator.hooks, list(EVENTS))


def figures(text: str) -> list[int]:
    """The numbers in a sentence that are written with a thousands separator, or are shorter than 1,000."""
    return [int(found.replace(",", "")) for found in re.findall(r"(?<![\w,.])\d{1,3}(?:,\d{3})*(?![\w,.]*\d|%)", text)]


def agree(report: dict[str, Any]) -> None:
    """The figures of a report agree with one another."""
    view, floor = report["view"], report["floor"]
    assert all(0 <= view[part] <= view["tokens"] for part in ("prefix_tokens", "chapter_tokens", "overhead_tokens"))
    assert view["target"] < view["trigger"] <= view["budget"]
    assert view["tokens"] <= view["budget"]
    assert set(figures(view["why"].partition(" (")[0])) <= {view["trigger"], view["budget"]}
    shown = sum(row["tokens_after"] for row in report["rounds"]) + view["overhead_tokens"]
    assert shown == pytest.approx(view["tokens"], rel=0.15)
    assert floor["tokens"] <= view["tokens"] + 1
    members = [member["tokens"] for member in floor["members"]]
    assert floor["tokens"] == pytest.approx(sum(members), abs=len(members))


@pytest.mark.parametrize(("ratio", "tools"), [(1.3, 0), (0.74, 900)])
async def test_explain_and_events_report_figures_of_the_provider_that_agree_with_one_another(
    ratio: float, tools: int
) -> None:
    def reported(counted: int) -> int:
        return int(ratio * counted) + tools

    session, recorder = await running([user("Do the work.")])
    for number in range(40):
        await feed(session.manager, rounds(2, start=2 * number))
        await ask(session.manager, None, session.asked_for)
        report = await session.manager.explain()
        if 4 <= number < 12:  # after a few reports, before a compaction
            assert report["view"]["tokens"] == pytest.approx(reported(report["view"]["counted"]), rel=0.1)
        agree(report)
        await session.request(reported)
    everything = session.manager.session.meter.units(KEY).request(sum(one.tokens for one in session.manager.snapshot()))
    assert (await session.manager.explain())["history_tokens"] == pytest.approx(everything, rel=0.1)
    announced = recorder.named(PRE_COMPACT)
    assert announced
    for payload in announced:
        assert payload["target"] < payload["threshold"] <= payload["budget"] == ANSWERED
        limit = payload["budget"] if payload["trigger"] == "hard limit" else payload["threshold"]
        assert payload["token_count"] > limit
        assert figures(payload["reason"]) == [payload["token_count"], limit]
    for payload in recorder.named(POST_COMPACT, COMPACTION):
        before, after = payload["before_tokens"], payload["after_tokens"]
        assert before - after == sum(step["freed"] for step in payload["strategies"])
        assert after <= payload["threshold"]
        assert 0 < payload["prefix_given_up_tokens"] <= before >= payload["floor_tokens"]


@given(
    offset=st.floats(0, 50_000),
    ratio=st.floats(0.5, 3),
    counted=st.integers(0, 200_000),
    budget=st.integers(1, 200_000),
)
def test_a_view_is_above_its_capacity_exactly_when_its_reported_size_is_above_the_budget(
    offset: float, ratio: float, counted: int, budget: int
) -> None:
    meter = Meter()
    meter.corrections[KEY] = Correction(offset, ratio, reports=1)
    units = meter.units(KEY)
    room = units.capacity(budget)
    if offset <= 0.5 * budget:  # what is sent beside the messages may be more than a budget holds
        assert (counted > room) == (units.request(counted) > budget) or room == 1
    assert units.part(counted) <= units.request(counted)
    for larger in (counted + 1, counted + 7):
        assert units.limit(counted) < units.request(larger)


async def test_a_view_over_its_budget_is_reported_with_the_tool_definitions_that_fill_it() -> None:
    beside = 3_000
    session, recorder = await running([system("word " * 600)], max_tokens=beside + 50)
    for number in range(3):
        await feed(session.manager, [user(f"Wish {number}.")])
        view = await session.manager.get_messages_for_request(None, session.asked_for)
        await session.respond(size(view) + beside)
        await session.manager.add_message(says())
        session.manager.warnings.kinds.clear()  # every request may report it again
    payload = [payload for payload in recorder.named(WARNING) if payload["reason"] == "overflow"][-1]
    assert payload["budget"] == beside + 50
    assert f"the budget is {beside + 50:,}" in payload["message"]
    tools = next(member for member in payload["members"] if member["mark"] == "tool definitions")
    assert tools["tokens"] == pytest.approx(beside, rel=0.6)
    assert f"tool definitions {tools['tokens']:,} (learned from reported usage)" in payload["message"]
    needed = sum(member["tokens"] for member in payload["members"]) - len(payload["members"])
    assert figures(payload["message"])[0] >= max(needed, beside + 51)
