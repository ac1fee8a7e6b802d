"""Amplifier module `provider-replay`: a provider without a model.

It answers from a script, or from a policy that sees the request. It declares a context
window and refuses larger requests. It counts tokens as a provider would, cache reads included, and reports them on
`llm:response`. It can check every request by the provider rules. In a mount plan:

    providers:
      - module: provider-replay
        config: {script: ["Hello."], context_window: 8000, check: true}

Config, all optional:

| key | meaning |
| --- | --- |
| `script` | a list of answers (`answer_policies`) and exceptions to raise, or `module:factory` of a policy |
| `name`, `model` | what the provider calls itself ("replay", "replay-1") |
| `context_window`, `max_output_tokens` | what it declares, in tokens (200000, 8192) |
| `real_window` | what it really takes, in tokens; below `context_window` it refuses what it promised to take |
| `check` | hold each request against `checker.check_request` and keep the `violations` (false) |
| `priority` | lower is preferred by loops (100) |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ..caches.any_prefix import AnyPrefix
from ..caches.bill import Bill
from ..caches.request import Request
from ..caches.token_scale import TokenScale
from ..checks.message_shapes import Message, as_list
from ..checks.request_checker import check_request
from ..counters import TokenCounter, wire_tokens
from .answer_policies import Answer, Policy, in_order, next_answer, policy_named

__amplifier_module_type__ = "provider"

CONTEXT_WINDOW = 200_000  # tokens
MAX_OUTPUT_TOKENS = 8_192
AT_THE_END = "(end of the script)"


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
    """Mount a `ReplayProvider` at `providers`.

    Raises:
        ValueError: a config value cannot be; the sentence names it.
    """
    provider = ReplayProvider(config, hooks=coordinator.hooks)
    await coordinator.mount("providers", provider, name=provider.name)


class ReplayProvider:
    """The provider. Usable without a session: `await ReplayProvider({"script": [...]}).complete(request)`.

    Attributes:
        violations: sentences of the checker, each with the number of its request (from 1).
        weights: what each answered request weighed, in tokens.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        hooks: Any = None,
        policy: Policy | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.config = dict(config or {})
        self._hooks = hooks
        self.name = str(self.config.get("name") or "replay")
        self.model = str(self.config.get("model") or "replay-1")
        self.priority = self.config.get("priority", 100)
        self.context_window = self._positive("context_window", CONTEXT_WINDOW)
        self.max_output_tokens = self._positive("max_output_tokens", MAX_OUTPUT_TOKENS)
        self.real_window = self._positive("real_window", self.context_window)
        self._policy = policy or self._configured()
        self._counter = counter
        self._scale: TokenScale | None = None
        self._cache = AnyPrefix()
        self.requests = 0
        self.answered = 0
        self.violations: list[str] = []
        self.last_request: list[Message] = []
        self.weights: list[Bill] = []

    def get_info(self) -> Any:
        from amplifier_core.models import ProviderInfo

        defaults = {"model": self.model, **self._limits()}
        return ProviderInfo(id=self.name, display_name="Replay (no model)", capabilities=["tools"], defaults=defaults)

    async def list_models(self) -> list[Any]:
        """Return the only model."""
        from amplifier_core.models import ModelInfo

        return [ModelInfo(id=self.model, display_name=self.model, capabilities=["tools"], **self._limits())]

    def _limits(self) -> dict[str, Any]:
        return {"context_window": self.context_window, "max_output_tokens": self.max_output_tokens}

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        """Answer a `ChatRequest` with a `ChatResponse`.

        Raises:
            amplifier_core.llm_errors.ContextLengthError: the request weighs more than the window holds.
            Exception: whatever the script raises in place of an answer.
        """
        started = time.monotonic()
        self.requests += 1
        messages = [dump(message) for message in request.messages]
        self.last_request = messages
        if self.config.get("check"):
            self.violations += [f"request {self.requests}: {sentence}" for sentence in check_request(messages)]
        await self._emit("llm:request", {"provider": self.name, "model": self.model, "message_count": len(messages)})
        try:
            if self._scale is None:  # loading a vocabulary takes a moment: not on the event loop
                self._scale = await asyncio.to_thread(TokenScale, self._counter, wire_tokens)
            # Tools come before the messages: with other tools there is no shared prefix.
            tools = (
                [{"role": "system", "content": str([dump(tool) for tool in request.tools])}] if request.tools else []
            )
            sent = Request.of([*tools, *messages], self._scale)
            self._refuse_if_too_long(sent.offsets[-1])
            answer = await next_answer(self._policy, request) or Answer.of(AT_THE_END)
        except Exception as problem:
            await self._emit_response(started, status="error", error=str(problem), error_type=type(problem).__name__)
            raise
        self.weights.append(self._cache.bill(sent, time.monotonic()))
        response = self._response(answer, self.weights[-1], self._scale)
        await self._emit_response(started, status="ok", usage=_usage(response.usage))
        return response

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])

    def _response(self, answer: Answer, weight: Bill, scale: TokenScale) -> Any:
        from amplifier_core.message_models import ChatResponse, ToolCall, Usage

        self.answered += 1
        calls = [
            {"id": call.id or f"call_{self.answered}_{place}", "name": call.name, "arguments": call.arguments}
            for place, call in enumerate(answer.calls)
        ]
        blocks = [
            *answer.blocks,
            *({"type": "tool_call", "id": c["id"], "name": c["name"], "input": c["arguments"]} for c in calls),
        ]
        output = scale.tokens({"role": "assistant", "content": blocks})
        return ChatResponse.model_validate(
            {
                "content": blocks,
                "tool_calls": [ToolCall.model_validate(call) for call in calls] or None,
                "usage": Usage(
                    input_tokens=weight.tokens,
                    output_tokens=output,
                    total_tokens=weight.tokens + output,
                    cache_read_tokens=weight.read,
                    cache_write_tokens=0,
                ),
                "finish_reason": "tool_calls" if calls else "stop",
                "metadata": dict(answer.metadata) if answer.metadata else None,
            }
        )

    def _refuse_if_too_long(self, tokens: int) -> None:
        if tokens > self.real_window:
            from amplifier_core.llm_errors import ContextLengthError

            raise ContextLengthError(
                f"the request weighs {tokens} tokens, the window of {self.model} holds {self.real_window}",
                provider=self.name,
                model=self.model,
                status_code=400,
            )

    def _configured(self) -> Policy:
        script = self.config.get("script")
        if isinstance(script, str):
            return policy_named(script, self.config)
        answers = as_list([] if script is None else script)
        if answers is None:
            raise ValueError("provider-replay: `script` is a list of answers or 'module:factory'")
        return in_order(answers)

    def _positive(self, key: str, default: int) -> int:
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ValueError(f"provider-replay: {key} is {value!r}; it must be a whole number of tokens above 0")
        return value

    async def _emit_response(self, started: float, **data: Any) -> None:
        duration = round((time.monotonic() - started) * 1000)
        await self._emit("llm:response", {"provider": self.name, "model": self.model, "duration_ms": duration, **data})

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, data)


def dump(model: Any) -> dict[str, Any]:
    """Return a kernel model as the dict that it was made from, without unset keys."""
    return model.model_dump(exclude_unset=True)


def _usage(usage: Any) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
