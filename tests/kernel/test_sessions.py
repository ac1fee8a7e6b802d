"""Whole sessions: the kernel, a loop, a provider with a small window, tools, and our memory between them."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult
from amplifier_core.models import ContextInjection
from amplifier_core.testing import create_test_coordinator

from amplifier_context_testing import EventRecorder, check_request, checked, mount_plan, prepare, session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.checks.corpus import conversation
from amplifier_context_testing.replay.transcripts import Transcript
from tests.kernel.mounted import CURRENT
from tests.places import BACKENDS

# In memory, in files (the default of what is persistent) and in SQLite; on the servers the first test.
pytestmark = [pytest.mark.kernel, pytest.mark.stores()]

EVENTS = ("context:", "provider:", "llm:", "cancel:")


class Echo:
    """A tool that returns a page of text; `wait` keeps it busy."""

    name = "echo"
    description = "Returns text."
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - what the kernel reads

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        self.started.set()
        await self.release.wait()
        return ToolResult(success=True, output=f"page {input.get('page')}: " + f"word{input.get('page')} " * 150)


def echo_module(tool: Echo) -> dict[str, Any]:
    async def mount(coordinator: Any, config: Any = None) -> None:
        await coordinator.mount("tools", tool, name=tool.name)

    return {"tool-echo": mount}


def reading(pages: int, start: int = 0) -> list[dict[str, Any]]:
    """Answers that read page after page."""
    return [{"calls": [{"tool": "echo", "arguments": {"page": start + page}}]} for page in range(pages)]


def plan_of(script: list[Any], *, window: int = 4_000, loop: dict[str, Any] | None = None, **provider: Any) -> Any:
    context = CURRENT.entry(safety_margin=100, **provider.pop("context", {}))
    return mount_plan(
        context,
        script=script,
        window=window,
        loop=loop,
        provider={"check": True, **provider},
        tools={"tool-echo": {}},
    )


def replay_of(running: Any) -> Any:
    return running.coordinator.get("providers")["replay"]


@pytest.mark.stores(*BACKENDS)
@pytest.mark.few_elsewhere("style", ["basic", "streaming"], ["streaming"])
async def test_a_session_outgrows_its_window_several_times_and_every_request_is_valid(style: str) -> None:
    recorder = EventRecorder(only=EVENTS)
    script = [answer for turn in range(3) for answer in (*reading(25, 25 * turn), "Read.")]
    plan = plan_of(script, loop={"style": style})
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        assert [await running.execute(f"Prompt {turn}.") for turn in range(3)] == ["Read."] * 3
        provider = replay_of(running)
        manager = running.coordinator.get("context")
        assert provider.violations == []
        assert provider.requests == 78
        assert recorder.count("provider:error") == 0
        assert recorder.count("context:compaction") >= 2
        assert all(weight.tokens <= 4_000 for weight in provider.weights)
        report = await manager.explain()
        assert report["compactions"] == recorder.count("context:compaction")
        assert report["view"]["figure"] == "measured"
        history = await manager.get_messages()
    assert len([message for message in history if message["role"] == "tool"]) == 75
    assert all(f"word{page} " in history[2 + 2 * page]["content"] for page in range(25))


async def test_most_of_each_request_was_in_the_one_before() -> None:
    plan = plan_of([*reading(60), "Read."])
    async with session(plan, modules=echo_module(Echo())) as running:
        await running.execute("Read sixty pages.")
        weights = replay_of(running).weights[1:]
    assert sum(weight.cached for weight in weights) > 0.8 * sum(weight.tokens for weight in weights)


async def test_a_handler_of_the_host_may_postpone_a_compaction_of_a_real_session() -> None:
    from amplifier_core import HookResult

    asked: list[dict[str, Any]] = []

    async def deny(event: str, data: dict[str, Any]) -> HookResult:
        asked.append(data)
        return HookResult(action="deny", reason="not now")

    plan = plan_of([*reading(40), "Read."])
    async with session(plan, modules=echo_module(Echo())) as running:
        running.coordinator.hooks.register("context:pre_compact", deny, 0, name="test")
        assert await running.execute("Read.") == "Read."
        assert replay_of(running).violations == []
    assert asked
    assert asked[0]["session_id"] == running.session_id


# --- cancellation -----------------------------------------------------------------------------------------------------


CANCELLATIONS = [
    *map("-".join, product(("graceful", "immediate"), ("silent", "closing"), ("keep", "discard", "repair")))
]


@pytest.mark.few_elsewhere(
    "cancellation", CANCELLATIONS, ["graceful-silent-keep", "immediate-closing-discard", "immediate-silent-repair"]
)
async def test_a_session_goes_on_after_a_cancellation_in_the_middle_of_a_call(cancellation: str) -> None:
    how, last_word, on_interrupt = cancellation.split("-")
    immediate = how == "immediate"
    closing = "The turn was cancelled." if last_word == "closing" else None
    tool = Echo()
    recorder = EventRecorder(only=EVENTS)
    script = [*reading(3), "Read.", *reading(3, 10), *reading(2, 20), "Read on."]
    plan = plan_of(script, loop={"closing_message": closing}, context={"on_interrupt": on_interrupt})
    async with session(plan, modules=echo_module(tool), recorder=recorder) as running:
        await running.execute("Read three.")
        manager = running.coordinator.get("context")
        before = await manager.get_messages()
        tool.release.clear()
        tool.started.clear()
        turn = asyncio.create_task(running.execute("Read three more."))
        async with asyncio.timeout(10):
            await tool.started.wait()
            await running.coordinator.request_cancel(immediate)
            if not immediate:
                tool.release.set()
            await turn
        assert recorder.count("cancel:completed") == 2
        tool.release.set()
        running.coordinator.cancellation.reset()
        # The host repairs: reads the history and sets it again, as it does before every turn.
        await manager.set_messages(await manager.get_messages())
        assert await running.execute("Go on.") == "Read on."
        history = await manager.get_messages()
        assert history[: len(before)] == before
        assert ("Read three more." in [message["content"] for message in history]) is (on_interrupt != "discard")
        assert replay_of(running).violations == []
        assert check_request(await manager.get_messages_for_request()) == []


async def test_a_task_that_is_cancelled_leaves_a_session_that_goes_on() -> None:
    tool = Echo()
    plan = plan_of([*reading(2), *reading(1, 9), "Read on."])
    async with session(plan, modules=echo_module(tool)) as running:
        tool.release.clear()
        turn = asyncio.create_task(running.execute("Read."))
        await tool.started.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        tool.release.set()  # the kernel's engine does not stop the loop: both turns run on, in one history
        assert await running.execute("Go on.")
        assert replay_of(running).violations == []


async def test_a_discarded_turn_is_gone_from_every_later_request() -> None:
    tool = Echo()
    plan = plan_of([*reading(1), *reading(1, 5), "Done."], context={"on_interrupt": "discard"})
    async with session(plan, modules=echo_module(tool)) as running:
        tool.release.clear()
        turn = asyncio.create_task(running.execute("FORGET THIS"))
        await tool.started.wait()
        await running.coordinator.request_cancel(True)
        await turn
        running.coordinator.cancellation.reset()
        tool.release.set()
        await running.execute("Something else.")
        assert "FORGET THIS" not in str(replay_of(running).last_request)


# --- overflow ---------------------------------------------------------------------------------------------------------


async def test_a_provider_that_takes_less_than_it_declares_is_answered_by_a_smaller_view() -> None:
    """It declares 8,000 tokens and refuses above 3,000."""
    recorder = EventRecorder(only=EVENTS)
    plan = plan_of(
        [*reading(60), "Read."],
        window=8_000,
        real_window=3_000,
        loop={"retry_on_overflow": True, "overflow_share": 0.3},
    )
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        assert await running.execute("Read sixty pages.") == "Read."
        assert replay_of(running).violations == []
    refused = recorder.count("provider:error")
    assert 1 <= refused <= 4  # learned: it is not run into again and again


async def test_what_a_refusal_taught_holds_for_the_retry_even_when_the_loop_asks_for_hardly_less() -> None:
    plan = plan_of(
        [*reading(40), "Read."],
        window=6_000,
        real_window=3_500,
        loop={"retry_on_overflow": True, "overflow_share": 1.0},
    )
    async with session(plan, modules=echo_module(Echo())) as running:
        assert await running.execute("Read forty pages.") == "Read."


async def test_without_a_retry_the_turn_fails_and_the_next_one_works() -> None:
    plan = plan_of([*reading(40), "Read."], window=8_000, real_window=3_000)
    async with session(plan, modules=echo_module(Echo())) as running:
        with pytest.raises(Exception, match="ContextLengthError"):
            await running.execute("Read forty pages.")
        assert await running.execute("Go on.") == "Read."
        assert replay_of(running).violations == []


async def test_a_provider_that_counts_otherwise_is_not_overrun() -> None:
    """Its tokenizer finds 1.4 times as many tokens as ours."""
    recorder = EventRecorder(only=EVENTS)
    plan = plan_of([*reading(60), "Read."], usage_ratio=1.4, loop={"retry_on_overflow": True})
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        assert await running.execute("Read sixty pages.") == "Read."
        assert replay_of(running).violations == []
    assert recorder.count("provider:error") <= 1


async def test_another_error_of_the_provider_changes_nothing() -> None:
    plan = plan_of(["Never.", "Hello."], fail={"on": 1, "error": "RateLimitError"})
    async with session(plan, modules=echo_module(Echo())) as running:
        with pytest.raises(Exception, match="as the config asked for"):
            await running.execute("Hi.")
        assert await running.execute("Hi again.") == "Never."


# --- recordings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lone_surrogates", "cancelled_turn"])
async def test_an_odd_conversation_runs_as_a_session_in_a_small_window(name: str) -> None:
    prepared = prepare(Transcript(name, "corpus", conversation(name).messages), check=True)
    context = CURRENT.entry(safety_margin=100)
    plan = prepared.plan(context, window=3_000, max_output_tokens=300)
    async with session(plan) as running:
        answers = await prepared.run(running)
        assert len(answers) == len(prepared.prompts)
        assert replay_of(running).violations == []


async def test_a_resumed_session_goes_on_from_its_saved_transcript() -> None:
    plan = plan_of([*reading(30), "Read."])
    async with session(plan, modules=echo_module(Echo())) as running:
        await running.execute("Read thirty pages.")
        saved = await running.coordinator.get("context").get_messages()
    plan = plan_of([*reading(3, 100), "Read on."])
    async with session(plan, modules=echo_module(Echo()), is_resumed=True) as running:
        manager = running.coordinator.get("context")
        await manager.set_messages(saved)
        await manager.set_messages([{"role": "system", "content": "You go on."}, *saved])
        assert await running.execute("Go on.") == "Read on."
        history = await manager.get_messages()
        assert replay_of(running).violations == []
    assert history[1 : 1 + len(saved)] == saved
    assert len(history) == 1 + len(saved) + 8


async def test_a_child_session_with_its_parents_history_does_not_compact_again() -> None:
    async with session(plan_of([*reading(34), "Read."]), modules=echo_module(Echo())) as parent:
        await parent.execute("Read 34 pages.")
        history = await parent.coordinator.get("context").get_messages()
        recorder = EventRecorder(only=EVENTS)
        plan = plan_of(["Understood."])
        async with session(plan, modules=echo_module(Echo()), recorder=recorder, parent_id=parent.session_id) as child:
            await child.coordinator.get("context").set_messages(history)
            assert await child.execute("Sum it up.") == "Understood."
            assert replay_of(child).violations == []
        assert recorder.count("context:compaction") == 0


async def test_a_system_prompt_factory_of_the_host_is_in_every_request() -> None:
    calls = 0

    async def prompt() -> str:
        nonlocal calls
        calls += 1
        return "You are the host's agent."

    async with session(plan_of([*reading(20), "Read."]), modules=echo_module(Echo())) as running:
        await running.coordinator.get("context").set_system_prompt_factory(prompt)
        await running.execute("Read twenty pages.")
        provider = replay_of(running)
        assert provider.last_request[0] == {"role": "system", "content": "You are the host's agent."}
        assert calls == provider.requests


async def test_a_hook_that_injects_after_each_tool_harms_no_request() -> None:
    from amplifier_core import HookResult

    count = 0

    async def inject(event: str, data: dict[str, Any]) -> HookResult:
        nonlocal count
        count += 1
        return HookResult(action="inject_context", context_injection=f"note {count}", context_injection_role="system")

    async with session(plan_of([*reading(40), "Read."]), modules=echo_module(Echo())) as running:
        running.coordinator.hooks.register("tool:post", inject, 0, name="notes")
        assert await running.execute("Read forty pages.") == "Read."
        assert replay_of(running).violations == []
        notes = [m for m in replay_of(running).last_request if str(m["content"]).startswith("note ")]
    assert notes
    assert notes[-1]["content"] == f"note {count}"


async def test_explain_and_compact_work_through_the_coordinator_in_the_middle_of_a_session() -> None:
    async with session(plan_of([*reading(10), "Read."], window=40_000), modules=echo_module(Echo())) as running:
        await running.execute("Read ten pages.")
        outcome = await running.coordinator.get_capability("context.compact")("page numbers")
        report = await running.coordinator.get_capability("context.explain")()
        assert report["compactions"] == int(outcome["compacted"])
        assert report["session_id"] == running.session_id


async def test_a_transcript_of_a_talk_with_thinking_survives_a_change_of_provider() -> None:
    talk = ConversationBuilder("kernel").user("Prove it.")
    for number in range(3):
        (made,) = talk.call(("prove", {"lemma": number}), text="Next.")
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
        talk.messages[-1]["content"].insert(0, thought)
        talk.messages[-1]["metadata"] = {"provider": "anthropic", "model": "c-1"}
        talk.result(made, "proved")
    async with session(plan_of(["Yes."]), modules=echo_module(Echo())) as running:
        await running.coordinator.get("context").set_messages(talk.messages)
        await running.execute("All proved?")
        provider = replay_of(running)
        assert "c2lnbmVk" not in str(provider.last_request)
        assert provider.violations == []


async def test_injections_of_hooks_that_stay_are_history_in_order_and_no_persons() -> None:
    coordinator = create_test_coordinator()
    cleanup = await CURRENT.mount(coordinator, {})
    manager = coordinator.get("context")
    await manager.add_message({"role": "user", "content": "Fix it."})
    injections = [
        ContextInjection(content="lint: one error", hook_name="lint", event="tool:post"),
        ContextInjection(content="a note as the user", role="user", hook_name="notes"),
        ContextInjection(content="for one request", ephemeral=True, hook_name="status"),
        ContextInjection(content="beside the result", ephemeral=True, append_to_last_tool_result=True),
    ]
    result = HookResult(action="inject_context", context_injections=injections)
    left = await coordinator.process_hook_result(result, "tool:post", "lint")
    assert [one.content for one in left.context_injections] == ["for one request", "beside the result"]
    view = checked(await manager.get_messages_for_request(10_000))
    assert [(message["role"], message["content"]) for message in view] == [
        ("user", "Fix it."),
        ("system", "lint: one error"),
        ("user", "a note as the user"),
    ]
    assert manager.turn_count == 1
    await manager.clear()  # on a server the next module finds the same session
    await cleanup()
