"""The two services: a request is checked, answered by a policy, billed by a prompt cache, and logged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

from ..caches import Cache
from ..caches.anthropic import Anthropic
from ..caches.bill import Bill
from ..caches.openai import OpenAI
from ..caches.request import Request
from ..caches.token_scale import TokenScale
from ..checks.request_checker import check_request
from ..replay.answer_policies import Answer, Policy, next_answer
from ..replay.one_model import dump
from . import anthropic_api, openai_api

Json = dict[str, Any]

KEY = "test-key"


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a service offers; `context_window` is tokens of input and output together."""

    id: str
    context_window: int = 200_000
    max_output_tokens: int = 8_192


class Fault(Exception):
    """An error that a vendor answers with; `headers` are of the response, such as `retry-after`. A script raises it.

    Attributes:
        code: OpenAI's.
        kind: the vendor's type of the error.
    """

    kind = "api_error"

    def __init__(
        self, status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}


class Refused(Fault):
    """A request that a service does not accept, and why."""

    kind = "invalid_request_error"

    def __init__(self, message: str, code: str | None = None, *, status: int = 400) -> None:
        super().__init__(status, message, code)


def rate_limited(retry_after: float) -> Fault:
    """Return the fault of a rate limit; the client may try again after so many seconds."""
    return Fault(429, "Rate limit reached", "rate_limit_exceeded", {"retry-after": f"{retry_after:g}"})


def unavailable(status: int = 503) -> Fault:
    """Return the fault of a server in trouble: 500, 503, or Anthropic's 529."""
    return Fault(status, "The server is temporarily unable to process your request")


def faults_first(policy: Policy, *faults: Fault) -> Policy:
    """Return a policy that raises the faults, one a request, before another policy answers."""
    rest = iter(faults)

    def faulty(request: Any) -> Any:
        if (fault := next(rest, None)) is not None:
            raise fault
        return policy(request)

    return faulty


Response: TypeAlias = tuple[Json, int, Mapping[str, str]]
"""What goes back over the wire: body, status and headers."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what became of it.

    Attributes:
        refusal: why the service does not accept the request; None if it does.
        bill: what an answered request read, wrote and paid in full; None for others.
    """

    body: Json
    status: int
    refusal: str | None
    bill: Bill | None


class Service:
    """One vendor's API with one model; `api` is the module of its JSON.

    Tokens are counted exactly for OpenAI (o200k_base), and for Anthropic by the same counter in place of its own.

    Attributes:
        exchanges: all requests so far, in the order of their answers.
    """

    path: ClassVar[str]
    api: ClassVar[Any]
    new_cache: ClassVar[Any]  # makes the empty cache of a service

    def __init__(self, policy: Policy, model: Model) -> None:
        self.exchanges: list[Exchange] = []
        self._policy = policy
        self._model = model
        self._cache: Cache = self.new_cache()
        self._scale = TokenScale()

    @property
    def refusals(self) -> list[str]:
        """Return why requests were not accepted; empty if all were valid."""
        return [one.refusal for one in self.exchanges if one.refusal is not None]

    def accept(self, body: Json) -> tuple[Any, Request]:
        """Return what a body asks, as a `ChatRequest`, and as the request that the cache sees.

        Raises:
            Refused: it breaks rules: those that all providers have, and those of this vendor.
        """
        if body.get("model") != self._model.id:
            raise Refused(f"There is no model {body.get('model')!r}.", "model_not_found", status=404)
        if unknown := sorted(set(body) - self.api.ARGUMENTS):
            raise Refused(f"unknown argument: {unknown[0]}")
        try:
            asked = self.api.chat_request(body)
        except (KeyError, TypeError, ValueError) as problem:
            raise Refused(f"the body has not the form of this API: {type(problem).__name__}: {problem}") from None
        messages = [*map(dump, asked.messages)]
        if broken := [*check_request(messages), *self.api.refusals(body)]:
            raise Refused("; ".join(broken))
        answer = asked.max_output_tokens or 0
        if answer > (most := self._model.max_output_tokens):
            raise Refused(f"max_tokens is too large: {answer}. This model supports at most {most}.")
        # Tool definitions are part of every prefix: they come before the messages.
        tools = [{"role": "system", "content": str(body["tools"])}] if body.get("tools") else []
        sent = Request.of([*tools, *messages], self._scale)
        if (wanted := sent.offsets[-1] + answer) > (window := self._model.context_window):
            words = f"This model's maximum context length is {window} tokens. However, you requested {wanted} tokens."
            raise Refused(words, "context_length_exceeded")
        return asked, sent

    async def respond(self, body: Json, headers: Mapping[str, str]) -> Response:
        try:
            # Anthropic's client library sends a bearer token from version 2 on, older ones a header of their own.
            if KEY not in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer ")):
                raise Refused("Incorrect API key provided.", status=401)
            asked, sent = self.accept(body)
            answer = await next_answer(self._policy, asked) or Answer()
        except Fault as fault:
            refusal = str(fault) if isinstance(fault, Refused) else None
            self.exchanges.append(Exchange(body, fault.status, refusal, None))
            return self.api.error(str(fault), fault.kind, fault.code), fault.status, fault.headers
        bill = self._cache.bill(sent, time.monotonic())
        self.exchanges.append(Exchange(body, 200, None, bill))
        return self.api.answer_body(body, answer, bill, self._scale.length, len(self.exchanges)), 200, {}


class OpenAIService(Service):
    """Chat Completions, with the prompt cache of GPT-5.6 and later."""

    path, api, new_cache = "/v1/chat/completions", openai_api, OpenAI


class AnthropicService(Service):
    """Messages, with breakpoints of the prompt cache where provider-anthropic places them."""

    path, api, new_cache = "/v1/messages", anthropic_api, staticmethod(partial(Anthropic, inferring=False))
