"""Amplifier module `provider-wire`: calls an OpenAI- or Anthropic-compatible API with the vendor's client library.

It does for a context manager what Amplifier's own providers do, and no more: converts the kernel's request, maps errors
to `amplifier_core.llm_errors`, reports usage on `llm:response`. It does not stream and does not retry. In a mount plan:

    providers:
      - module: provider-wire
        config: {api: anthropic, base_url: "http://127.0.0.1:8000", api_key: ..., model: ...}

| key | meaning |
| --- | --- |
| `api` | `openai` (Chat Completions) or `anthropic` (Messages) |
| `base_url` | address of the service, without a path |
| `api_key`, `model` | sent with each request ("test-key", "wire-1") |
| `name` | what the provider calls itself (as `api`) |
| `context_window`, `max_output_tokens` | of the model, in tokens (200000, 8192) |
| `priority` | lower is preferred by loops (100) |
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ..checks.message_shapes import as_mapping
from .settings import Settings

__amplifier_module_type__ = "provider"


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount a `WireProvider` at `providers`.

    Returns:
        The cleanup that closes its connections.

    Raises:
        ImportError: the client library is not installed; the sentence names the extra.
        ValueError: a config value cannot be; the sentence names it.
    """
    provider = WireProvider(config or {}, hooks=coordinator.hooks)
    await coordinator.mount("providers", provider, name=provider.name)
    return provider.close


class Client(Protocol):
    """The client library of one vendor, with the types and errors of the kernel."""

    async def complete(self, request: Any) -> Any: ...

    async def close(self) -> None: ...


class WireProvider:
    """The provider."""

    def __init__(self, config: Mapping[str, Any], *, hooks: Any = None) -> None:
        self.settings = Settings.of(config)
        self.priority = self.settings.priority
        self._hooks = hooks
        self.client = _client_of(self.settings)

    @property
    def name(self) -> str:
        return self.settings.name

    def get_info(self) -> Any:
        from amplifier_core.models import ProviderInfo

        name = f"{self.settings.api} over the wire"
        defaults = {"model": self.settings.model, **self._limits()}
        return ProviderInfo(id=self.name, display_name=name, capabilities=["tools"], defaults=defaults)

    async def list_models(self) -> list[Any]:
        """Return the only model."""
        from amplifier_core.models import ModelInfo

        model = self.settings.model
        return [ModelInfo(id=model, display_name=model, capabilities=["tools"], **self._limits())]

    def _limits(self) -> dict[str, Any]:
        limits = {"context_window": self.settings.context_window}
        return {**limits, "max_output_tokens": self.settings.max_output_tokens}

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        """Answer a `ChatRequest` with a `ChatResponse`.

        Raises:
            amplifier_core.llm_errors.LLMError: whatever the service answered in place of a response.
        """
        started = time.monotonic()
        about = {"provider": self.name, "model": request.model or self.settings.model}
        purpose: Any = (as_mapping(request.metadata) or {}).get("purpose")
        about |= {"purpose": purpose} if purpose else {}
        await self._emit("llm:request", {**about, "message_count": len(request.messages)})
        try:
            response = await self.client.complete(request)
        except Exception as problem:
            failed = {"status": "error", "error": str(problem), "error_type": type(problem).__name__}
            await self._emit("llm:response", {**about, **failed, "duration_ms": _since(started)})
            raise
        answered = {"status": "ok", "usage": response.usage.model_dump(exclude_none=True)}
        answered["finish_reason"] = response.finish_reason
        await self._emit("llm:response", {**about, **answered, "duration_ms": _since(started)})
        return response

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])

    async def close(self) -> None:
        await self.client.close()

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, data)


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1_000)


def _client_of(settings: Settings) -> Client:
    """Return the client of the vendor's library, which is imported here."""
    if settings.api == "openai":
        from .openai_client import OpenAIClient

        return OpenAIClient(settings)
    from .anthropic_client import AnthropicClient

    return AnthropicClient(settings)
