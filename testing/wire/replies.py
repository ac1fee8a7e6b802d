"""What a script makes a server answer: a reply, or a fault of the vendor's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ..replay.answer_policies import Answer

Finish = Literal["stop", "length", "refusal"]
"""Why a model stopped: it was done, the output limit cut it off, or it refused."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model.

    Attributes:
        finish: why it ends; calls go before `stop`.
        after: awaited before the answer is sent; a test that holds an event back makes a server slow.
    """

    answer: Answer
    finish: Finish = "stop"
    after: Callable[[], Awaitable[object]] | None = None

    @classmethod
    def of(cls, value: object) -> Reply:
        if isinstance(value, Reply):
            return value
        return cls(Answer.of("" if value is None else cast("Answer | str | Mapping[str, Any]", value)))


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that the vendor answers with.

    Attributes:
        headers: of the response, such as `retry-after`.
        after: awaited before the error is sent.
    """

    status: int
    message: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    after: Callable[[], Awaitable[object]] | None = None


Script = Callable[[Any], Any]
"""From a `ChatRequest` to a `Reply`, a `Fault` or an answer in any spelling; may be a coroutine function."""


def rate_limited(retry_after: float) -> Fault:
    """Return the fault of a rate limit; the client may try again after so many seconds."""
    return Fault(429, "Rate limit reached", code="rate_limit_exceeded", headers={"retry-after": f"{retry_after:g}"})


def unavailable(status: int = 503) -> Fault:
    """Return the fault of a server in trouble: 500, 503, or Anthropic's 529."""
    return Fault(status, "The server is temporarily unable to process your request")


async def reply_of(script: Script, request: Any) -> Reply | Fault:
    found = script(request)
    if inspect.isawaitable(found):
        found = await found
    made = found if isinstance(found, Fault) else Reply.of(found)
    if made.after is not None:
        await made.after()
    return made


def faults_first(script: Script, *faults: Fault) -> Script:
    """Return a script that answers with the faults, one a request, before the script answers."""
    rest = iter(faults)

    def faulty(request: Any) -> Any:
        return next(rest, None) or script(request)

    return faulty
