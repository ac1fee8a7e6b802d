"""Conversations as loop-streaming leads them today: persisted reminders, views counted by the provider, refusals.

The loop is not on PyPI. `Loop` makes its calls in its order, as its tests state them (docs/kernel.md), with the
kernel's own request models, on a context that the real kernel mounted.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from amplifier_core.llm_errors import ContextLengthError
from amplifier_core.message_models import ChatRequest, Message, ToolSpec
from amplifier_core.models import ProviderInfo, ToolResult

from amplifier_context_core import approx_token_counter, count_tokens
from amplifier_context_testing import check_request, mount_plan, session
from tests.kernel.mounted import CURRENT
from tests.messages import IMAGE, block, result, says

pytestmark = pytest.mark.kernel


TOOLS = [ToolSpec(name="read", description="Reads a file. " * 40, parameters={"type": "object", "properties": {}})]
WINDOW = 6_000  # tokens that the provider takes


class Provider:
    """Counts requests exactly, and differently from the context.

    Args:
        refuse: numbers of the requests (from 1) that it refuses although it counted them as fitting.
        uncounted: every nth count has no answer.
    """

    name = "exact"

    def __init__(self, refuse: tuple[int, ...], uncounted: int) -> None:
        self.refuse = refuse
        self.uncounted = uncounted
        self.counts = 0
        self.requests: list[ChatRequest] = []

    def get_info(self) -> ProviderInfo:
        defaults = {"model": "m", "context_window": WINDOW, "max_output_tokens": 500}
        counts = ["request_budget:provider_count"]
        return ProviderInfo(id="exact", display_name="Exact", capabilities=counts, defaults=defaults)

    def weigh(self, request: ChatRequest) -> int:
        beside = approx_token_counter(json.dumps([tool.model_dump() for tool in request.tools or []]))
        messages = [message.model_dump(exclude_unset=True) for message in request.messages]
        return beside + int(1.25 * count_tokens(messages, approx_token_counter))

    def request_budget(self, request: ChatRequest) -> dict[str, Any] | None:
        self.counts += 1
        if self.uncounted and self.counts % self.uncounted == 0:
            return None
        tokens = self.weigh(request)
        measurement = {"kind": "provider_count", "source": "exact.count", "input_tokens": tokens}
        limits = {"estimated_input_tokens": tokens + 64, "input_limit_tokens": WINDOW - 500}
        return {**limits, "context_token_budget": WINDOW // 2, "measurement": measurement}

    def complete(self, request: ChatRequest) -> None:
        self.requests.append(request)
        if len(self.requests) in self.refuse:
            raise ContextLengthError("too long after all")


class Loop:
    """One conversation.

    Attributes:
        violations: what the checker has against a request that was counted or sent.
        envelope: the reminder that is in force.
        outcomes: of the measured views.
    """

    def __init__(self, coordinator: Any, provider: Provider) -> None:
        self.context = coordinator.get("context")
        self.capability = coordinator.get_capability
        self.provider = provider
        self.record = self.capability("context.foreground_usage")()
        self.envelope = ""
        self.violations: list[str] = []
        self.outcomes: list[str] = []
        self.calls = 0

    async def remind(self, text: str) -> None:
        """Store a reminder as history, if it says something else than the one in force."""
        body = f'<system-reminders>\n<system-reminder source="todo">{text}</system-reminder>\n</system-reminders>'
        if body != self.envelope:
            self.envelope = body
            metadata = {"ephemeral": True, "persisted": True, "reminder_placement": "pre_user", "source": "hook"}
            await self.context.add_message({"role": "user", "content": body, "metadata": metadata})

    def request_of(self, view: list[dict[str, Any]]) -> ChatRequest:
        self.violations += check_request(view)
        kept = [message for message in view if message.get("content") == self.envelope]
        if self.envelope and len(kept) != 1:
            self.violations.append(f"the current reminder is there {len(kept)} times")
        return ChatRequest(messages=[Message(**message) for message in view], tools=TOOLS)

    async def send(self, *, cancelled: bool = False) -> bool:
        """Count, commit and send one request; recover once from a refusal. False if it was cancelled."""

        async def count_view(view: list[dict[str, Any]]) -> dict[str, Any]:
            request = self.request_of(view)
            return {"dispatch": request, "budget_decision": self.provider.request_budget(request)}

        retained = [self.envelope] if self.envelope else []
        measured = await self.capability("context.measured_request_view")(
            provider=self.provider, retain_contents=retained, count_view=count_view
        )
        self.outcomes.append(measured["outcome"])
        request = measured["final_attempt"]["dispatch"]
        if not await measured["transaction"].commit(is_cancelled=lambda: cancelled):
            return False
        try:
            self.provider.complete(request)
        except ContextLengthError:
            self.record(input_tokens=None)
            view = await self.capability("context.request_retention")(
                provider=self.provider, retain_contents=retained, token_budget=WINDOW // 2, hard_fit=True
            )
            request = self.request_of(view)
            self.provider.complete(request)
        self.record(input_tokens=self.provider.weigh(request), cache_write_tokens=None)
        return True

    async def turn(self, prompt: str, rounds: int, *, cancel_at: int = -1) -> None:
        await self.remind(f"todo of {prompt}")
        await self.context.add_message({"role": "user", "content": prompt})
        for number in range(rounds):
            if number == rounds // 2:
                await self.remind(f"todo of {prompt}, half done")
            if not await self.send(cancelled=number == cancel_at):
                continue
            self.calls += 1
            call = {"id": f"call_{self.calls}", "tool": "read", "arguments": {"path": f"src/file_{self.calls}.py"}}
            used = {"type": "tool_call", "id": call["id"], "name": "read", "input": call["arguments"]}
            await self.context.add_message(says([used], tool_calls=[call]))
            words = f"file {self.calls}: " + f"line_{self.calls} = value " * 60
            rich = ToolResult(output=words, content=[block(words), IMAGE])  # type: ignore[list-item]
            content: Any = rich.model_dump()["content"] if self.calls % 5 == 0 else words
            await self.context.add_message(result(call["id"], content, name="read"))
        if await self.send():
            await self.context.add_message(says([block(f"{prompt} done.")]))


@pytest.mark.parametrize(
    ("refuse", "uncounted"), [((), 0), ((20, 41), 0), ((), 3)], ids=["counted", "refused", "partly counted"]
)
async def test_every_request_of_a_conversation_of_todays_loop_is_valid(refuse: tuple[int, ...], uncounted: int) -> None:
    plan = mount_plan(CURRENT.entry(token_meter="actual", safety_margin=100), script=["Unused."])
    provider = Provider(refuse, uncounted)
    async with session(plan) as running:
        loop = Loop(running.coordinator, provider)
        for number in range(4):
            await loop.turn(f"Prompt {number}.", 18, cancel_at=5 if number == 1 else -1)
        context = running.coordinator.get("context")
        report = await context.explain()
        history = await context.get_messages()
    assert loop.violations == []
    assert len(provider.requests) >= 75
    assert max(provider.weigh(request) for request in provider.requests) <= WINDOW - 500
    assert report["compactions"] >= 2
    assert {"not_needed", "target_reached"} <= set(loop.outcomes)
    assert ("measurement_unavailable" in loop.outcomes) is bool(uncounted)
    assert sum((message.get("metadata") or {}).get("persisted") is True for message in history) == 8
    images = [message for message in history if "image/png" in json.dumps(message)]
    assert len(images) == loop.calls // 5
