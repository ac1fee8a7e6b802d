"""Errors of the client libraries as errors of the kernel. One generator makes both libraries, so names are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOO_LONG = ("prompt is too long", "exceed context limit", "maximum context length")  # words of both vendors


def kernel_error(problem: Exception, provider: str, model: str) -> Exception:
    from amplifier_core import llm_errors

    name, status = type(problem).__name__, getattr(problem, "status_code", None)
    about: dict[str, Any] = {"provider": provider, "model": model}
    if name == "APITimeoutError":
        return llm_errors.LLMTimeoutError(str(problem), **about)
    if name == "APIConnectionError":
        return llm_errors.NetworkError(str(problem), **about)
    if not isinstance(status, int):
        return problem
    about["status_code"] = status
    if status == 429:
        about["retry_after"] = _retry_after(problem)
        quota = getattr(problem, "code", None) == "insufficient_quota"
        return (llm_errors.QuotaExceededError if quota else llm_errors.RateLimitError)(str(problem), **about)
    if status >= 500:
        return llm_errors.ProviderUnavailableError(str(problem), retry_after=_retry_after(problem), **about)
    if status == 413 or any(words in str(problem) for words in TOO_LONG):
        return llm_errors.ContextLengthError(str(problem), **about)
    kinds = {
        401: llm_errors.AuthenticationError,
        403: llm_errors.AccessDeniedError,
        404: llm_errors.NotFoundError,
    }
    return kinds.get(status, llm_errors.InvalidRequestError)(str(problem), **about)


def _retry_after(problem: Exception) -> float | None:
    """Return the seconds of the header `retry-after`; None without one."""
    headers: Mapping[str, str] = getattr(getattr(problem, "response", None), "headers", {})
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
