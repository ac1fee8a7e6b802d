"""The two services: a request is checked, answered by a script, billed by a prompt cache, and logged."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_context_core import TokenCounter

from ..caches import Cache
from ..caches.anthropic import Anthropic
from ..caches.bill import Bill
from ..caches.openai import OpenAI
from ..caches.request import Request
from ..caches.token_scale import TokenScale
from ..caches.wire import Wires
from ..replay.provider import dump
from . import anthropic_forms, anthropic_rules, openai_forms, openai_rules
from .problems import Model, Refused
from .replies import Fault, Reply, Script, reply_of

Json = dict[str, Any]


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


class Service(ABC):
    """One vendor's API.

    Args:
        cache: the prompt cache.
        counter: text to tokens; by default exact (o200k_base), for Anthropic in place of its own.
        clock: seconds, for the lifetimes of the cache.

    Attributes:
        exchanges: all requests so far, in the order of their answers.
    """

    path: str

    def __init__(
        self,
        script: Script,
        models: Iterable[Model],
        *,
        cache: Cache,
        counter: TokenCounter | None = None,
        key: str = "test-key",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.exchanges: list[Exchange] = []
        self._script = script
        self._models = {model.id: model for model in models}
        self._cache = cache
        self._scale = TokenScale(counter)
        self._key = key
        self._clock = clock

    @property
    def refusals(self) -> list[str]:
        """Return why requests were not accepted, in the vendor's words; empty if all were valid."""
        return [one.refusal for one in self.exchanges if one.refusal is not None]

    async def respond(self, body: Json, headers: Mapping[str, str]) -> Response:
        try:
            # Anthropic's client library sends a bearer token from version 2 on, older ones a header of their own.
            if self._key not in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer ")):
                raise Refused("Incorrect API key provided.", status=401, kind="authentication_error")
            self._check(body, headers)
            asked = self._as_kernel(body)
            # Tool definitions are part of every prefix: they come before the messages.
            tools = [{"role": "system", "content": str(body["tools"])}] if body.get("tools") else []
            sent = Request.of([*tools, *map(dump, asked.messages)], self._scale)
            self._check_window(body, sent.offsets[-1])
        except Refused as refusal:
            self.exchanges.append(Exchange(body, refusal.status, refusal.message, None))
            return Response(refusal.status, self._error(refusal.message, refusal.kind, refusal.code), {})
        made = await reply_of(self._script, asked)
        if isinstance(made, Fault):
            self.exchanges.append(Exchange(body, made.status, None, None))
            return Response(made.status, self._error(made.message, "api_error", made.code), made.headers)
        bill = self._cache.bill(sent, self._clock())
        self.exchanges.append(Exchange(body, 200, None, bill))
        return Response(200, self._answer(body, made, bill), {})

    def _model(self, body: Json) -> Model:
        model = self._models.get(str(body.get("model")))
        if model is None:
            raise Refused(f"There is no model {body.get('model')!r}.", "model_not_found", status=404)
        return model

    @abstractmethod
    def _check(self, body: Json, headers: Mapping[str, str]) -> None: ...

    @abstractmethod
    def _check_window(self, body: Json, tokens: int) -> None: ...

    @abstractmethod
    def _error(self, message: str, kind: str, code: str | None) -> Json: ...

    @abstractmethod
    def _as_kernel(self, body: Json) -> Any: ...

    @abstractmethod
    def _answer(self, body: Json, reply: Reply, bill: Bill) -> Json: ...


class OpenAIService(Service):
    """Chat Completions, with the prompt cache of GPT-5.6 and later."""

    path = "/v1/chat/completions"

    def __init__(self, script: Script, models: Iterable[Model], **options: Any) -> None:
        super().__init__(script, models, **{"cache": OpenAI(), **options})

    def _check(self, body: Json, headers: Mapping[str, str]) -> None:
        openai_rules.check(body, self._model(body))

    def _check_window(self, body: Json, tokens: int) -> None:
        window, tokens = self._model(body).context_window, tokens + int(body.get("max_completion_tokens") or 0)
        if tokens > window:
            words = f"However, you requested {tokens} tokens. Please reduce the length of the messages or completion."
            raise Refused(f"This model's maximum context length is {window} tokens. {words}", "context_length_exceeded")

    def _error(self, message: str, kind: str, code: str | None) -> Json:
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def _as_kernel(self, body: Json) -> Any:
        return openai_forms.chat_request(body)

    def _answer(self, body: Json, reply: Reply, bill: Bill) -> Json:
        return openai_forms.completion(body, reply, bill, self._scale.length, len(self.exchanges))


class AnthropicService(Service):
    """Messages, with breakpoints of the prompt cache where provider-anthropic places them."""

    path = "/v1/messages"

    def __init__(self, script: Script, models: Iterable[Model], **options: Any) -> None:
        super().__init__(script, models, **{"cache": Anthropic(Wires(), inferring=False), **options})

    def _check(self, body: Json, headers: Mapping[str, str]) -> None:
        model = self._model(body)
        if "anthropic-version" not in headers:
            raise Refused("anthropic-version: header is required")
        anthropic_rules.check(body, model)

    def _check_window(self, body: Json, tokens: int) -> None:
        window = self._model(body).context_window
        if tokens > window:
            raise Refused(f"prompt is too long: {tokens} tokens > {window} maximum")
        if tokens + body["max_tokens"] > window:
            words = f"{tokens} + {body['max_tokens']} > {window}, decrease input length or `max_tokens` and try again"
            raise Refused(f"input length and `max_tokens` exceed context limit: {words}")

    def _error(self, message: str, kind: str, code: str | None) -> Json:
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}

    def _as_kernel(self, body: Json) -> Any:
        return anthropic_forms.chat_request(body)

    def _answer(self, body: Json, reply: Reply, bill: Bill) -> Json:
        return anthropic_forms.message(body, reply, bill, self._scale.length, len(self.exchanges))
