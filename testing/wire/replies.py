"""What a script makes a server answer: an answer of the model, or a fault of the vendor's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..replay.answer_policies import Answer


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that the vendor answers with; `headers` are of the response, such as `retry-after`."""

    status: int
    message: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Script = Callable[[Any], Any]
"""From a `ChatRequest` to a `Fault` or an answer in any spelling; may be a coroutine function."""


def rate_limited(retry_after: float) -> Fault:
    """Return the fault of a rate limit; the client may try again after so many seconds."""
    return Fault(429, "Rate limit reached", code="rate_limit_exceeded", headers={"retry-after": f"{retry_after:g}"})


def unavailable(status: int = 503) -> Fault:
    """Return the fault of a server in trouble: 500, 503, or Anthropic's 529."""
    return Fault(status, "The server is temporarily unable to process your request")


async def reply_of(script: Script, request: Any) -> Answer | Fault:
    found = script(request)
    if inspect.isawaitable(found):
        found = await found
    return found if isinstance(found, Fault) else Answer.of("" if found is None else found)


def faults_first(script: Script, *faults: Fault) -> Script:
    """Return a script that answers with the faults, one a request, before the script answers."""
    rest = iter(faults)

    def faulty(request: Any) -> Any:
        return next(rest, None) or script(request)

    return faulty
