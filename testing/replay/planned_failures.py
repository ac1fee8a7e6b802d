"""Planned provider errors: the Nth request fails with a given error of the kernel's taxonomy."""

from __future__ import annotations

from typing import Any

from ..checks.message_shapes import as_list, as_mapping


class PlannedFailure:
    """Requests `on` to `on + times - 1`, counted from 1, fail.

    Args:
        plan: `{on, times: 1, error: "ProviderUnavailableError", message, status_code, retryable, retry_after}`.

    Raises:
        ValueError: the plan names no request or no error of `amplifier_core.llm_errors`.
    """

    def __init__(self, plan: Any) -> None:
        entry = as_mapping(plan) or {}
        first, times = entry.get("on"), entry.get("times", 1)
        if not isinstance(first, int) or not isinstance(times, int) or first < 1 or times < 1:
            raise ValueError(f"provider-replay: `fail` needs `on`, the number of the request from 1, in {plan!r}")
        self._requests = range(first, first + times)
        self._class = _error_class(str(entry.get("error", "ProviderUnavailableError")))
        self._message = str(entry.get("message", "as the config asked for"))
        self._details = {key: entry[key] for key in ("status_code", "retryable", "retry_after") if key in entry}

    def due(self, request: int) -> bool:
        """True if the request of this number fails."""
        return request in self._requests

    def error(self, provider: str, model: str) -> Exception:
        """Return the error to raise."""
        return self._class(self._message, provider=provider, model=model, **self._details)


def planned_failures(value: Any) -> list[PlannedFailure]:
    if value is None:
        return []
    plans = as_list(value)
    return [PlannedFailure(plan) for plan in ([value] if plans is None else plans)]


def _error_class(name: str) -> Any:
    from amplifier_core import llm_errors

    found = getattr(llm_errors, name, None)
    if not (isinstance(found, type) and issubclass(found, llm_errors.LLMError)):
        raise ValueError(f"provider-replay: `fail` names {name!r}, no error of amplifier_core.llm_errors")
    return found
