"""Providers that compact a conversation themselves, as provider-anthropic does: one that does so well, and odd ones.

A carrier is valid for the model that made it, first in a request, and as it was made.
"""

import hashlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from amplifier_core import ChatRequest, ChatResponse

from tests.summary.scripted import Message

METADATA = "anthropic:compaction"
NATIVE = {"summary_writer": "native", "token_meter": "estimate"}
ANSWER = "Twelve files were read."


def carriers(view: list[Message]) -> list[Message]:
    return [message for message in view if METADATA in (message.get("metadata") or {})]


def carrier(model: str = "wire-1", *, text: str = ANSWER, **more: Any) -> Message:
    block = {"type": "compaction", "content": text, "signature": signed(model, text)}
    marks = {"ephemeral": True, "persisted": True, "source": "context-managed"}
    state = {"version": 1, "model": model, "block": block}
    return {"role": "user", "content": "Native compacted conversation.", "metadata": {**marks, METADATA: state, **more}}


def signed(model: str, text: str) -> str:
    return hashlib.sha256(f"{model}\0{text}".encode()).hexdigest()


class NativeProvider:
    """The provider; `compactions` are the messages of each request for one, in order."""

    name = "anthropic"

    def __init__(self, model: str = "wire-1") -> None:
        self.compactions: list[list[Message]] = []
        self._model = model

    def get_info(self) -> Any:
        defaults = {"model": self._model, "context_window": 200_000, "max_output_tokens": 8_192}
        return SimpleNamespace(id=self.name, capabilities=["tools"], defaults=defaults)

    def supports_native_compaction(self) -> bool:
        return True

    def validate_compacted_context(self, message: Mapping[str, Any]) -> bool:
        state = message["metadata"][METADATA]
        block = state["block"]
        return state["model"] == self._model and block["signature"] == signed(self._model, block["content"])

    async def compact_context(self, request: ChatRequest) -> Any:
        self.compactions.append(self._read(request))
        usage = {"input_tokens": 1_000, "output_tokens": len(ANSWER) // 4}
        return {"kind": "native", "message": carrier(self._model), "usage": usage}

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        raise AssertionError("a model was asked for a text")

    async def accept(self, view: list[Message]) -> None:
        """Read a request of the session."""
        self._read(ChatRequest.model_validate({"messages": view}))

    def _read(self, request: ChatRequest) -> list[Message]:
        messages = [message.model_dump(exclude_unset=True) for message in request.messages]
        found = carriers(messages)
        first = next((one for one in messages if one["role"] not in ("system", "developer")), None)
        assert found in ([], [first]), "a carrier must precede the conversation"
        assert all(map(self.validate_compacted_context, found))
        return messages


class Odd(NativeProvider):
    """A provider whose compaction is of no use, in one way: this result, or this exception."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result
        self.asked = 0

    def validate_compacted_context(self, message: Mapping[str, Any]) -> bool:
        return message["metadata"].get("accepted") is not False

    async def compact_context(self, request: ChatRequest) -> Any:
        self.asked += 1
        if isinstance(self._result, Exception):
            raise self._result
        return self._result
