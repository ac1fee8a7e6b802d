"""What providers report of requests and caches, and what explain, usage and events report of a session."""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core import ContextManager
from amplifier_context_core.events import COMPACTION, EVENTS, POST_COMPACT, PRE_COMPACT, USAGE, WARNING
from amplifier_context_core.kernel import mount_manager
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.view.usage_reports import SETTING
from amplifier_context_testing import EventRecorder, coding_session
from amplifier_context_testing.caches import Cache, caches
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ToolHost, ask, feed, new_manager, watched
from tests.messages import Message, rounds, says, size, system, user, work

BUDGET = 16_000
ANTHROPIC, OPENAI = ("anthropic", "claude-opus-5"), ("openai", "gpt-5.6")


class Loop:
    """A loop that asks a provider, whose cache is one of the lab's models, and reports its usage."""

    def __init__(self, cache: str, key: tuple[str, str] = ANTHROPIC) -> None:
        self.manager, self.recorder = watched()
        self.cache: Cache = caches()[cache]
        self.scale = TokenScale()
        self.provider = SimpleNamespace(name=key[0], default_model=key[1])
        self.now = 0.0
        self.number = 0

    async def ask(self) -> None:
        view = await self.manager.get_messages_for_request(BUDGET, self.provider)
        bill = self.cache.bill(Request.of(view, self.scale), self.now)
        usage = Usage(bill.read + bill.fresh, 10, bill.read, bill.written)
        self.manager.on_response(Response("m", self.provider.name, usage, "stop", None))

    async def work(self, number: int, output: int = 2_400) -> Self:
        await feed(self.manager, [system(), *work(1, output=output)])
        for start in range(1, number + 1):
            await self.ask()
            await feed(self.manager, rounds(1, start=start, output=output))
        return self


@pytest.mark.parametrize(
    ("cache", "key"),
    [("anthropic", ANTHROPIC), ("declared", ANTHROPIC), ("prefix", ANTHROPIC), ("openai", OPENAI)],
)
async def test_the_trap_of_provider_anthropic_alone_is_recognised_and_the_setting_named_once(
    cache: str, key: tuple[str, str]
) -> None:
    loop = await Loop(cache, key).work(140)
    health, compactions = await loop.manager.cache_health(), loop.manager.compactor.compactions
    assert compactions > 2
    warned = [event["message"] for event in loop.recorder.named(WARNING) if event["reason"] == "cache setting"]
    if cache == "anthropic":
        assert health["breaks"]["provider setting"] > 2
        assert [SETTING in text for text in (health["advice"], *warned)] == [True, True]
    else:
        assert (health["advice"], warned, health["breaks"].get("provider setting")) == ("", [], None)
    if cache == "declared":
        assert health["breaks"] == {"compaction": compactions}
        assert health["read"] > 0.8 * health["tokens"]
    await loop.manager.clear()
    assert await loop.manager.cache_health() == await new_manager().cache_health(), "a cleared session begins again"


async def later(loop: Loop) -> None:
    """A message that comes later; the cache forgets in the meantime."""
    await feed(loop.manager, [says()])
    then = datetime.fromisoformat(loop.manager.snapshot()[-1].completed) + timedelta(seconds=3_000)
    loop.now += 3_000
    await loop.manager.add_message(user(metadata={"timestamp": then.isoformat(timespec="milliseconds")}))


async def other_tools(loop: Loop) -> None:
    loop.manager.requests.host = ToolHost(lambda: {"t": SimpleNamespace(name="t")})


async def other_provider(loop: Loop) -> None:
    loop.provider = SimpleNamespace(name="openai")


@pytest.mark.parametrize(
    ("reason", "change"),
    [("changed tools", other_tools), ("other provider or model", other_provider), ("cold cache", later)],
)
async def test_each_change_is_named_as_what_it_is(reason: str, change: Callable[[Loop], Awaitable[None]]) -> None:
    """Other ones are in test_events.py."""
    loop = await Loop("declared").work(12)
    await change(loop)
    await loop.ask()
    await feed(loop.manager, [says()])
    health = await loop.manager.cache_health()
    assert health["breaks"] == {reason: 1}
    assert reason in health["line"]


async def test_memory_is_bounded_and_sums_are_not_cut() -> None:
    loop = await Loop("declared").work(150, output=40)
    health = await loop.manager.cache_health()
    assert (health["requests"], len(health["recent"])) == (150, 100)
    assert [row["request"] for row in health["recent"]] == [*range(51, 151)]


async def test_what_providers_report_is_summed_up_in_a_line_however_little_or_impossible() -> None:
    manager = await feed(new_manager(), work(3))
    for usage, line in (
        (None, "no usage reported yet"),
        (Usage(400, 10), "1 request, no cache reads or writes reported"),
        (Usage(400, 10, 9_000), "50% of 800 tokens"),  # no more is read than was sent
    ):
        await manager.get_messages_for_request(BUDGET)
        manager.on_response(Response("m", "p", usage, "stop", None))
        await feed(manager, [says()])
        assert (await manager.cache_health())["line"].startswith(line)
        assert (await manager.explain())["cache"] == (await manager.cache_health())["line"]


KEY = ("anthropic", "model-1")


def provider(name: str = KEY[0], window: int = 100_000) -> Any:
    defaults = {"context_window": window, "max_output_tokens": 1_000, "model": KEY[1]}
    return SimpleNamespace(name=name, get_info=lambda: SimpleNamespace(defaults=defaults))


class Reporting:
    """A mounted manager, and a provider that reports what it likes.

    Attributes:
        asked_for: the provider of requests.
        cleanup: what the mount returned.
    """

    def __init__(self, **config: Any) -> None:
        self.coordinator = MockCoordinator()
        self.manager = new_manager(hooks=self.coordinator.hooks, **config)
        self.asked_for: Any = provider()
        self.cleanup: Any = None

    async def mounted(self, messages: list[Message]) -> Self:
        await feed(self.manager, messages)
        self.cleanup = await mount_manager(self.coordinator, self.manager, "context-test")
        return self

    async def respond(self, tokens: int, **more: Any) -> None:
        usage = {"input_tokens": tokens, "output_tokens": 7, **more.pop("usage", {})}
        data = {"provider": KEY[0], "model": KEY[1], "status": "ok", "usage": usage, **more}
        await self.coordinator.hooks.emit("llm:response", data)

    async def request(self, reported: Callable[[int], int]) -> list[Message]:
        """A request, its response event with what the provider reports of our count, and the answer stored."""
        view = await ask(self.manager, None, self.asked_for)
        await self.respond(reported(size(view)))
        await self.manager.add_message(says("Yes."))
        return view

    @property
    def known(self) -> Any:
        return self.manager.session.meter.correction(KEY)


@pytest.fixture
async def running() -> Reporting:
    return await Reporting().mounted(work(20))


async def test_a_side_call_between_view_and_answer_is_not_counted(running: Reporting) -> None:
    view = await ask(running.manager, None, running.asked_for)
    await running.respond(150)  # a session's name, made up meanwhile
    await running.respond(size(view) + 3_000)
    await running.respond(90)  # a check whether the goal is met
    await running.manager.add_message(says())
    assert running.known.reports == 1
    assert running.known.offset == pytest.approx(3_000, rel=0.05)
    counted = size(await ask(running.manager, None, running.asked_for))
    estimate = running.manager.session.meter.estimate(counted, KEY)
    assert estimate == pytest.approx(counted + 3_000, rel=0.05)


@pytest.mark.parametrize(
    ("tokens", "more"),
    [
        *((9, {"usage": {"input_tokens": odd}}) for odd in (None, "5", -5)),
        (90_000, {"status": "error"}),
        (150, {}),  # a side call alone
    ],
)
async def test_a_report_that_cannot_be_of_the_view_teaches_nothing(
    running: Reporting, tokens: int, more: dict[str, Any]
) -> None:
    await ask(running.manager, None, running.asked_for)
    await running.respond(tokens, **more)
    await running.manager.add_message(says())
    assert running.known.reports == 0


async def refuse(running: Reporting, error: str = "ContextLengthError") -> None:
    await running.coordinator.hooks.emit(
        "provider:error", {"provider": "anthropic", "error": {"type": error, "msg": "prompt is too long"}}
    )


@pytest.mark.parametrize("newest", [True, False], ids=["it is newest", "an answer follows"])
async def test_a_retry_after_a_giant_tool_result_is_smaller_until_the_provider_takes_it(newest: bool) -> None:
    """As microsoft/amplifier #320 has it: 735,000 characters, and each retry was refused as the request before."""
    call, result = rounds(1)
    giant = {**result, "content": "".join(f"row {number}: {number * 7919:09d}\n" for number in range(33_000))[:735_000]}
    messages = [user("Read the table."), call, giant, *([] if newest else [says("I read it.")])]
    running = await Reporting().mounted(messages)
    running.asked_for = provider(window=400_000)
    sizes: list[int] = []
    while not sizes or sizes[-1] > 5_000:  # what the provider takes, far less than what it says
        sizes.append(size(await ask(running.manager, None, running.asked_for)))
        await refuse(running)
        assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[0] > 30_000
    assert (await running.manager.recall("m3"))["content"] == giant["content"]


async def test_other_errors_and_refusals_of_another_model_do_not_shrink_the_view(running: Reporting) -> None:
    before = await ask(running.manager, None, provider("openai"))
    await refuse(running, "RateLimitError")
    await ask(running.manager, None, running.asked_for)
    await refuse(running)
    assert size(await ask(running.manager, None, provider("openai"))) == size(before)


async def test_an_assistants_entry_carries_what_the_event_says_but_where_the_message_says_it_itself(
    running: Reporting,
) -> None:
    own = {"model": "model-2", "usage": {"input_tokens": 11, "output_tokens": 3}, "error": "cut off"}
    answers: list[Any] = []
    for metadata in ({}, own):
        await ask(running.manager, None, running.asked_for)
        await running.respond(5_000, finish_reason="stop", usage={"cache_read_tokens": 400, "cache_write_tokens": 30})
        await running.manager.add_message(says(metadata=metadata))
        answers.append(running.manager.snapshot()[-1].response)
    assert answers[0] == Response("model-1", "anthropic", Usage(5_000, 7, 400, 30), "stop")
    assert (answers[1].model, answers[1].provider, answers[1].error) == ("model-2", "anthropic", "cut off")
    assert answers[1].usage.input_tokens == 11


async def test_after_the_session_nothing_is_heard_any_more(running: Reporting) -> None:
    await ask(running.manager, None, running.asked_for)
    await running.cleanup()
    await running.respond(9)
    await running.manager.add_message(says())
    assert running.known.reports == 0


REPORTED = 4_000


async def explained(messages: list[Message], budget: int = REPORTED, **config: Any) -> tuple[Any, dict[str, Any]]:
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
    manager = await feed(new_manager(max_tokens=WINDOW), [system("Be careful. " * 20), *work(6)])
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
    manager, recorder = watched(max_tokens=WINDOW, cadence="fixed")
    await feed(manager, work(1))
    await until_compacted(manager)
    await feed(manager, rounds(3, start=300))
    await manager.get_messages_for_request()
    compaction = (await manager.usage())["compaction"]
    assert compaction["left"] == compaction["above"] - (await manager.usage())["used"]
    expected = compaction["requests"]
    needed = await until_compacted(manager)
    assert abs(expected - needed) <= max(2, needed // 3)
    announced = recorder.named(PRE_COMPACT)[-1]
    assert announced["threshold"] == compaction["above"] < announced["token_count"]


async def test_what_the_provider_reported_counts_tool_definitions_and_is_unknown_after_a_compaction() -> None:
    manager = await feed(new_manager(max_tokens=WINDOW), work(1))
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
    manager, recorder = watched(max_tokens=WINDOW)
    await feed(manager, work(1))
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


async def started(messages: list[Message], **config: Any) -> tuple[Reporting, EventRecorder]:
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

    session, recorder = await started([user("Do the work.")])
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


async def test_a_view_over_its_budget_is_reported_with_the_tool_definitions_that_fill_it() -> None:
    beside = 3_000
    session, recorder = await started([system("word " * 600)], max_tokens=beside + 50)
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
