"""The two services: a request is checked, answered by a script, billed by a prompt cache, and logged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..caches import Cache
from ..caches.anthropic import Anthropic
from ..caches.bill import Bill
from ..caches.openai import OpenAI
from ..caches.request import Request
from ..caches.token_scale import TokenScale
from ..checks.request_checker import check_request
from ..replay.one_model import dump
from . import anthropic_api, openai_api
from .replies import Fault, Script, reply_of

Json = dict[str, Any]

KEY = "test-key"


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a service offers; `context_window` is tokens of input and output together."""

    id: str
    context_window: int = 200_000
    max_output_tokens: int = 8_192


class Refused(Exception):
    """A request that a service does not accept: why, OpenAI's code, the HTTP status and the vendor's type."""

    def __init__(
        self, message: str, code: str | None = None, *, status: int = 400, kind: str = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back over the wire."""

    status: int
    body: Json
    headers: Mapping[str, str]


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

    def __init__(self, script: Script, model: Model) -> None:
        self.exchanges: list[Exchange] = []
        self._script = script
        self._model = model
        self._cache = self.new_cache()
        self._scale = TokenScale()

    def new_cache(self) -> Cache:
        raise NotImplementedError

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
                raise Refused("Incorrect API key provided.", status=401, kind="authentication_error")
            asked, sent = self.accept(body)
        except Refused as refusal:
            self.exchanges.append(Exchange(body, refusal.status, refusal.message, None))
            return Response(refusal.status, self.api.error(refusal.message, refusal.kind, refusal.code), {})
        made = await reply_of(self._script, asked)
        if isinstance(made, Fault):
            self.exchanges.append(Exchange(body, made.status, None, None))
            return Response(made.status, self.api.error(made.message, "api_error", made.code), made.headers)
        bill = self._cache.bill(sent, time.monotonic())
        self.exchanges.append(Exchange(body, 200, None, bill))
        return Response(200, self.api.answer_body(body, made, bill, self._scale.length, len(self.exchanges)), {})


class OpenAIService(Service):
    """Chat Completions, with the prompt cache of GPT-5.6 and later."""

    path, api = "/v1/chat/completions", openai_api

    def new_cache(self) -> Cache:
        return OpenAI()


class AnthropicService(Service):
    """Messages, with breakpoints of the prompt cache where provider-anthropic places them."""

    path, api = "/v1/messages", anthropic_api

    def new_cache(self) -> Cache:
        return Anthropic(inferring=False)
