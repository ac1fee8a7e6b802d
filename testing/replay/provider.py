"""Amplifier module `provider-replay`: a provider without a model.

It answers from a script, or from a policy that sees the request. It declares a context
window and refuses larger requests. It counts tokens as the core does, cache reads included, and reports them on
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

from ..caches.bill import Bill
from ..caches.openai import AnyPrefix
from ..caches.request import Request
from ..caches.token_scale import TokenScale
from ..checks.message_shapes import Message, as_list
from ..checks.request_checker import check_request
from ..counters import TokenCounter
from .answer_policies import Answer, Policy, in_order, next_answer, policy_named
from .one_model import OneModelProvider, dump, response_of

__amplifier_module_type__ = "provider"

AT_THE_END = "(end of the script)"


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
    """Mount a `ReplayProvider` at `providers`.

    Raises:
        ValueError: a config value cannot be; the sentence names it.
    """
    provider = ReplayProvider(config, hooks=coordinator.hooks)
    await coordinator.mount("providers", provider, name=provider.name)


class ReplayProvider(OneModelProvider):
    """The provider. Usable without a session: `await ReplayProvider({"script": [...]}).complete(request)`.

    Attributes:
        violations: sentences of the checker, each with the number of its request (from 1).
        weights: what each answered request weighed, in tokens.
    """

    module = "provider-replay"
    display_name = "Replay (no model)"

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        hooks: Any = None,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(config or {}, hooks, name="replay", model="replay-1")
        self.real_window = self._positive("real_window", self.context_window)
        self._policy = self._configured()
        self._counter = counter
        self._scale: TokenScale | None = None
        self._cache = AnyPrefix()
        self.requests = 0
        self.violations: list[str] = []
        self.last_request: list[Message] = []
        self.weights: list[Bill] = []

    async def _answer(self, request: Any) -> Any:
        self.requests += 1
        self.last_request = [dump(message) for message in request.messages]
        if self.config.get("check"):
            broken = check_request(self.last_request)
            self.violations += [f"request {self.requests}: {sentence}" for sentence in broken]
        if self._scale is None:  # loading a vocabulary takes a moment: not on the event loop
            self._scale = await asyncio.to_thread(TokenScale, self._counter)
        # Tools come before the messages: with other tools there is no shared prefix.
        tools = [{"role": "system", "content": str([dump(tool) for tool in request.tools])}] if request.tools else []
        sent = Request.of([*tools, *self.last_request], self._scale)
        self._refuse_if_too_long(sent.offsets[-1])
        answer = await next_answer(self._policy, request) or Answer.of(AT_THE_END)
        bill = self._cache.bill(sent, time.monotonic())
        self.weights.append(bill)
        number = len(self.weights)
        calls = [
            {"type": "tool_call", "id": call.id or f"call_{number}_{place}", "name": call.name, "input": call.arguments}
            for place, call in enumerate(answer.calls)
        ]
        blocks = [*answer.blocks, *calls]
        written = self._scale.tokens({"role": "assistant", "content": blocks})
        finish = "tool_calls" if calls else answer.finish
        return response_of(blocks, finish, bill.tokens, written, read=bill.read, metadata=answer.metadata)

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
