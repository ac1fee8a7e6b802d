"""What the providers of this package share: one model with its limits, and the kernel's events around a request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..checks.message_shapes import as_mapping

_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")  # reported with each response


class OneModelProvider:
    """A provider of one model, which a subclass answers for in `_answer`.

    Args:
        config: `name`, `model`, `priority`, `context_window` and `max_output_tokens` (tokens), and what the subclass
            reads.
        hooks: get `llm:request` and `llm:response`; None for no events.
    """

    module: ClassVar[str]
    display_name: str

    def __init__(self, config: Mapping[str, Any], hooks: Any, *, name: str, model: str) -> None:
        self.config = dict(config)
        self._hooks = hooks
        self.name = str(self.config.get("name") or name)
        self.model = str(self.config.get("model") or model)
        self.priority = self.config.get("priority", 100)
        self.context_window = self._positive("context_window", 200_000)
        self.max_output_tokens = self._positive("max_output_tokens", 8_192)

    def get_info(self) -> Any:
        from amplifier_core.models import ProviderInfo

        defaults = {"model": self.model, **self._limits()}
        return ProviderInfo(id=self.name, display_name=self.display_name, capabilities=["tools"], defaults=defaults)

    async def list_models(self) -> list[Any]:
        from amplifier_core.models import ModelInfo

        return [ModelInfo(id=self.model, display_name=self.model, capabilities=["tools"], **self._limits())]

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        """Answer a `ChatRequest` with a `ChatResponse`.

        Raises:
            Exception: whatever there is in place of a response, mostly an `amplifier_core.llm_errors.LLMError`.
        """
        started = time.monotonic()
        about: dict[str, Any] = {"provider": self.name, "model": request.model or self.model}
        if purpose := (as_mapping(request.metadata) or {}).get("purpose"):
            about["purpose"] = purpose
        await self._emit("llm:request", {**about, "message_count": len(request.messages)})
        try:
            response = await self._answer(request)
        except Exception as problem:
            failed = {"status": "error", "error": str(problem), "error_type": type(problem).__name__}
            await self._respond(started, about | failed)
            raise
        usage = {name: getattr(response.usage, name) for name in _USAGE}
        await self._respond(started, about | {"status": "ok", "usage": usage, "finish_reason": response.finish_reason})
        return response

    async def _respond(self, started: float, about: dict[str, Any]) -> None:
        await self._emit("llm:response", {**about, "duration_ms": round((time.monotonic() - started) * 1_000)})

    async def _answer(self, request: Any) -> Any:
        raise NotImplementedError

    def _limits(self) -> dict[str, Any]:
        return {"context_window": self.context_window, "max_output_tokens": self.max_output_tokens}

    def _positive(self, key: str, default: int) -> int:
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ValueError(f"{self.module}: {key} is {value!r}; it must be a whole number of tokens above 0")
        return value

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, data)


def response_of(
    blocks: Sequence[Mapping[str, Any]],
    finish: str,
    input_tokens: int,
    output_tokens: int,
    *,
    read: int = 0,
    written: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Return a `ChatResponse`; its calls are blocks of the type `tool_call`.

    Args:
        input_tokens: the kernel's figure: with cache reads, without cache writes.
    """
    from amplifier_core.message_models import ChatResponse

    calls = [
        {"id": block["id"], "name": block["name"], "arguments": block["input"]}
        for block in blocks
        if block["type"] == "tool_call"
    ]
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + written + output_tokens,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }
    made = {"content": list(blocks), "tool_calls": calls or None, "finish_reason": finish, "usage": usage}
    return ChatResponse.model_validate({**made, "metadata": dict(metadata) if metadata else None})


def dump(model: Any) -> dict[str, Any]:
    """Return a kernel model as the dict that it was made from, without unset keys."""
    return model.model_dump(exclude_unset=True)
