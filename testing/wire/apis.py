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
from ..replay.one_model import dump
from . import anthropic_api, anthropic_rules, openai_api, openai_rules
from .problems import Model, Refused
from .replies import Fault, Script, reply_of

Json = dict[str, Any]

KEY = "test-key"


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
        refusal: why the vendor does not accept the request; None if it does.
        bill: what an answered request read, wrote and paid in full; None for others.
    """

    body: Json
    status: int
    refusal: str | None
    bill: Bill | None


class Service:
    """One vendor's API with one model; `rules` and `api` are the modules of what it refuses, and of its JSON.

    Tokens are counted exactly for OpenAI (o200k_base), and for Anthropic by the same counter in place of its own.

    Attributes:
        exchanges: all requests so far, in the order of their answers.
    """

    path: ClassVar[str]
    rules: ClassVar[Any]
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
        """Return why requests were not accepted, in the vendor's words; empty if all were valid."""
        return [one.refusal for one in self.exchanges if one.refusal is not None]

    async def respond(self, body: Json, headers: Mapping[str, str]) -> Response:
        try:
            # Anthropic's client library sends a bearer token from version 2 on, older ones a header of their own.
            if KEY not in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer ")):
                raise Refused("Incorrect API key provided.", status=401, kind="authentication_error")
            if body.get("model") != self._model.id:
                raise Refused(f"There is no model {body.get('model')!r}.", "model_not_found", status=404)
            self.rules.check(body, self._model)
            asked = self.api.chat_request(body)
            # Tool definitions are part of every prefix: they come before the messages.
            tools = [{"role": "system", "content": str(body["tools"])}] if body.get("tools") else []
            sent = Request.of([*tools, *map(dump, asked.messages)], self._scale)
            self.rules.refuse_long(body, sent.offsets[-1], self._model)
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

    path, rules, api = "/v1/chat/completions", openai_rules, openai_api

    def new_cache(self) -> Cache:
        return OpenAI()


class AnthropicService(Service):
    """Messages, with breakpoints of the prompt cache where provider-anthropic places them."""

    path, rules, api = "/v1/messages", anthropic_rules, anthropic_api

    def new_cache(self) -> Cache:
        return Anthropic(inferring=False)
