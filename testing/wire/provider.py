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

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from ..replay.one_model import OneModelProvider

__amplifier_module_type__ = "provider"

TIMEOUT = 600.0  # seconds of a request that names none
TOO_LONG = ("prompt is too long", "exceed context limit", "maximum context length")  # words of both vendors
_KEYS = {"api", "base_url", "api_key", "model", "name", "context_window", "max_output_tokens", "priority"}


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount a `WireProvider` at `providers`.

    Returns:
        The cleanup that closes its connections.

    Raises:
        ImportError: the client library is not installed; it comes with the extra `wire`.
        ValueError: a config value cannot be; the sentence names it.
    """
    provider = WireProvider(config or {}, hooks=coordinator.hooks)
    await coordinator.mount("providers", provider, name=provider.name)
    return provider.close


class WireProvider(OneModelProvider):
    module = "provider-wire"

    def __init__(self, config: Mapping[str, Any], *, hooks: Any = None) -> None:
        api, url = config.get("api"), config.get("base_url")
        if unknown := sorted(set(config) - _KEYS):
            raise ValueError(f"provider-wire has no config {', '.join(unknown)}")
        if api not in ("openai", "anthropic"):
            raise ValueError(f"provider-wire: api is {api!r}; it is openai or anthropic")
        if not isinstance(url, str):
            raise ValueError("provider-wire: base_url is missing; it is an address like http://127.0.0.1:8000")
        super().__init__(config, hooks, name=api, model="wire-1")
        self.display_name = f"{api} over the wire"
        self._api = import_module(f".{api}_api", __package__)
        self._client, self._create = self._api.connect(url, config.get("api_key", "test-key"))

    def body(self, request: Any) -> dict[str, Any]:
        """Return the body that a `ChatRequest` is sent as."""
        most = min(request.max_output_tokens or self.max_output_tokens, self.max_output_tokens)
        return self._api.request_body(request, request.model or self.model, most)

    async def _answer(self, request: Any) -> Any:
        body = self.body(request)
        try:
            answer = await self._create(**body, timeout=request.timeout or TIMEOUT)
        except Exception as problem:
            raise kernel_error(problem, self.name, body["model"]) from problem
        return self._api.response(answer)

    async def close(self) -> None:
        await self._client.close()


def kernel_error(problem: Exception, provider: str, model: str) -> Exception:
    """Return an error of a client library as the kernel's. One generator makes both libraries: names are the same."""
    from amplifier_core import llm_errors

    name, status = type(problem).__name__, getattr(problem, "status_code", None)
    about: dict[str, Any] = {"provider": provider, "model": model}
    if name in ("APITimeoutError", "APIConnectionError"):
        unreachable = llm_errors.LLMTimeoutError if name == "APITimeoutError" else llm_errors.NetworkError
        return unreachable(str(problem), **about)
    if not isinstance(status, int):
        return problem
    kind = {
        401: llm_errors.AuthenticationError,
        403: llm_errors.AccessDeniedError,
        404: llm_errors.NotFoundError,
        413: llm_errors.ContextLengthError,
        429: llm_errors.RateLimitError,
    }.get(status, llm_errors.ProviderUnavailableError if status >= 500 else llm_errors.InvalidRequestError)
    if getattr(problem, "code", None) == "insufficient_quota":
        kind = llm_errors.QuotaExceededError
    if any(words in str(problem) for words in TOO_LONG):
        kind = llm_errors.ContextLengthError
    if status == 429 or status >= 500:
        headers: Mapping[str, str] = getattr(getattr(problem, "response", None), "headers", {})
        with suppress(KeyError, ValueError):
            about["retry_after"] = float(headers["retry-after"])  # seconds
    return kind(str(problem), status_code=status, **about)
