"""What public hosts, hooks and tools do with a mounted context, call by call; docs/kernel.md names each of them.

None of them but the kernel is on PyPI, so their calls are made here in their order, on a context that the real kernel
mounted.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing import mount_plan, session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.durable.host import Host
from tests.kernel.hosted import CURRENT, view_of
from tests.managers import feed
from tests.messages import Message, system, text, user

pytestmark = pytest.mark.kernel


@asynccontextmanager
async def running(name: str = "host", **config: Any) -> AsyncGenerator[tuple[Any, ContextManager]]:
    plan = mount_plan(CURRENT.entry(**config), script=["Done."] * 50, window=8_000, provider={"check": True})
    async with session(plan, session_id=name) as opened:
        yield opened, opened.coordinator.get("context")


def talk(rounds: int = 3) -> list[Message]:
    """A conversation as loop-streaming stores it."""
    made = ConversationBuilder("kernel").user("Look around.")
    for number in range(rounds):
        (call,) = made.call(("look", {"at": f"place_{number}"}), text=f"Looking at place {number}.")
        made.result(call, f"place {number} is empty", name="look")
    return made.say("Nothing there.").messages


async def test_what_the_cli_saves_is_resumed_below_its_fresh_prompt_repaired_and_cleared(tmp_path: Path) -> None:
    """app-cli: incremental_save, session_runner, main, and its SessionStore, which is `Host`."""
    host = Host(tmp_path, "first")
    async with running("first", max_tokens=2_500) as (opened, context):
        for number in range(12):
            assert await opened.execute(f"Prompt {number}. " + "word " * 400) == "Done."
        assert (await context.explain())["compactions"] > 0
        await host.save(context)
        saved = host.saved()
    async with running("second") as (opened, context):
        await context.add_message(system("Fresh prompt."))
        fresh = (await context.get_messages())[0]
        await context.set_messages(saved)
        await context.set_messages([fresh, *saved])
        assert await context.get_messages() == [fresh, *saved]
        assert (await view_of(context))[0]["content"] == "Fresh prompt."
        _, call, result, *_ = talk(1)
        await feed(context, [call, user("Well?")])
        *stored, last = await context.get_messages()
        await context.set_messages([*stored, {**result, "content": "interrupted"}, last])
        assert [message["content"] for message in await view_of(context)][-2:] == ["interrupted", "Well?"]
        await context.clear()
        assert (await context.get_messages(), context.turn_count) == ([], 0)
        assert await opened.execute("Hi.") == "Done."
        assert "place" not in text([*await context.get_messages(), *await view_of(context)])


async def test_a_hook_finds_the_prompt_factory_and_puts_its_own_around_it_once() -> None:
    async with running() as (_, context):
        assert context._system_prompt_factory is None  # the hook injects its block then
        for prompt in ("Base.", "Base.\n\n<system-reminder>skills</system-reminder>"):
            factory = AsyncMock(return_value=prompt)
            await context.set_system_prompt_factory(factory)
            assert context._system_prompt_factory is factory  # or the hook wraps again on every request
        await context.add_message(user("Hi."))
        assert (await view_of(context))[0]["content"] == prompt


async def test_a_view_that_a_page_counts_while_the_model_answers_is_not_taken_for_the_request() -> None:
    """Nor is a side call that states its purpose, as that of hooks-session-naming."""
    async with running() as (opened, context):
        emit = opened.coordinator.hooks.emit
        await view_of(await feed(context, talk(20)))
        counted = context.compactor.last_sent.counted
        await emit("llm:request", {"provider": "anthropic", "model": "claude-opus-5-5"})
        await context.get_messages_for_request(token_budget=counted // 2)
        for more, tokens in (({}, counted + 40), ({"purpose": "session-naming"}, counted + 3)):
            await emit("llm:response", {"usage": {"input_tokens": tokens, "output_tokens": 1}, **more})
        await context.add_message({"role": "assistant", "content": "Done."})
        (correction,) = context.session.meter.corrections.values()
        assert correction.last == (counted, counted + 40)


async def test_the_handle_of_a_job_that_still_runs_is_kept_by_every_compaction() -> None:
    async with running(max_tokens=3_000, target_usage=0.2) as (opened, context):
        made, handle = ConversationBuilder("kernel").user("Delegate it."), '{"job_id": "job-4711"}'
        made.call(("delegate", {"task": "search"}), ids=["job_call"])
        made.result("job_call", handle, name="delegate")
        jobs: Any = [{"job_id": "job-4711", "call_id": "job_call", "status": "running", "tool": "delegate"}]
        opened.coordinator.register_capability("context.active_operations", lambda: jobs)
        for message in [*made.messages, *talk(120)[1:]]:
            await context.add_message(message)
            if message["role"] == "tool":
                view = await view_of(context)
        assert (await context.explain())["compactions"] > 0
        assert handle in [message["content"] for message in view]
        jobs.clear()
        await context.compact()
        assert handle not in [message["content"] for message in await view_of(context)]
        odd: list[Any] = [7, [None, {"call_id": 3}]]
        opened.coordinator.register_capability("context.active_operations", odd.pop)  # raises at last
        for _ in range(3):
            await view_of(await feed(context, [user()]))
        assert not odd


async def test_streams_are_hidden_while_the_context_compacts() -> None:
    async with running() as (opened, context):
        compacting = opened.coordinator.get_capability("context.compacting")
        seen: list[bool] = [compacting()]

        async def look(event: str, data: dict[str, Any]) -> None:
            seen.append(compacting())

        opened.coordinator.hooks.register("context:pre_compact", look, name="look")
        await (await feed(context, talk(60))).compact()
        assert [*seen, compacting()] == [False, True, False]


async def test_the_transcript_tool_reads_the_history_by_turns() -> None:
    async with running() as (opened, _):
        get = opened.coordinator.get_capability
        for prompt in ("First.", "Second."):
            await opened.execute(prompt)
        prompts = [one["content"] for one in await get("context.history")() if one["role"] == "user"]
        assert (get("context.history_authority"), prompts) == ("host", ["First.", "Second."])


@pytest.mark.parametrize(("meter", "offered"), [("estimate", False), ("hybrid", False), ("actual", True)])
async def test_measured_views_are_offered_with_the_actual_meter_only(meter: str, offered: bool) -> None:
    async with running(token_meter=meter) as (opened, _):
        capability = opened.coordinator.get_capability("context.measured_request_view")
        assert callable(capability) is offered
        assert callable(opened.coordinator.get_capability("context.foreground_usage"))
