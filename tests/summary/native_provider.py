"""A provider that compacts a conversation itself, as provider-anthropic does, answered by a script.

A carrier is valid for the model that made it, first in a request, and as it was made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from amplifier_core import ChatRequest
from amplifier_core.llm_errors import LLMError
from amplifier_core.message_models import ChatResponse

from amplifier_context_testing.replay.answer_policies import Answer, Policy, next_answer
from amplifier_context_testing.wire.apis import Fault

METADATA = "anthropic:compaction"


@dataclass(frozen=True)
class Exchange:
    """One request: its messages, whether a compaction was asked for, and whether it was answered."""

    messages: list[dict[str, Any]]
    compacts: bool
    answered: bool


class NativeProvider:
    """The provider; `exchanges` are all requests so far."""

    name = "anthropic"

    def __init__(self, script: Policy, *, compaction: bool = True, model: str = "wire-1") -> None:
        self.exchanges: list[Exchange] = []
        self._script = script
        self._compaction = compaction
        self._model = model

    @property
    def compactions(self) -> list[Exchange]:
        return [one for one in self.exchanges if one.compacts]

    def get_info(self) -> Any:
        limits = {"context_window": 200_000, "max_output_tokens": 8_192}
        return SimpleNamespace(id=self.name, capabilities=["tools"], defaults={"model": self._model, **limits})

    def supports_native_compaction(self) -> bool:
        return self._compaction

    def validate_compacted_context(self, message: Mapping[str, Any]) -> bool:
        state = message["metadata"][METADATA]
        return state["model"] == self._model and state["block"]["signature"] == self._signed(state["block"]["content"])

    async def compact_context(self, request: ChatRequest) -> dict[str, Any]:
        reply = await self._reply(request, compacts=True)
        text = reply.text
        if reply.finish != "stop" or not text:
            raise ValueError("the service returned no whole compaction")
        block = {"type": "compaction", "content": text, "signature": self._signed(text)}
        state = {"version": 1, "model": self._model, "block": block}
        marks = {"ephemeral": True, "persisted": True, "source": "context-managed", METADATA: state}
        message = {"role": "user", "content": "Native compacted conversation.", "metadata": marks}
        return {"kind": "native", "message": message, "usage": {"input_tokens": 1_000, "output_tokens": len(text) // 4}}

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        reply = await self._reply(request, compacts=False)
        content = [{"type": "text", "text": reply.text}]
        usage = {"input_tokens": 1_000, "output_tokens": 10, "total_tokens": 1_010}
        return ChatResponse.model_validate({"content": content, "usage": usage, "finish_reason": reply.finish})

    async def _reply(self, request: ChatRequest, *, compacts: bool) -> Answer:
        messages = [message.model_dump(exclude_unset=True) for message in request.messages]
        carriers = [place for place, one in enumerate(messages) if METADATA in (one.get("metadata") or {})]
        first = next((place for place, one in enumerate(messages) if one["role"] not in ("system", "developer")), 0)
        assert carriers in ([], [first]), "a carrier must precede the conversation"
        assert all(self.validate_compacted_context(messages[place]) for place in carriers)
        asked = request.model_copy(update={"metadata": {"compaction": True} if compacts else None})
        try:
            made = await next_answer(self._script, asked) or Answer()
        except Fault as fault:
            self.exchanges.append(Exchange(messages, compacts, False))
            raise LLMError(str(fault), provider=self.name, status_code=fault.status) from None
        self.exchanges.append(Exchange(messages, compacts, True))
        return made

    def _signed(self, text: str) -> str:
        return hashlib.sha256(f"{self._model}\0{text}".encode()).hexdigest()
