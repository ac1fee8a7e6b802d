"""The two services: a request is checked, answered by a script, billed by a prompt cache, and logged."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_context_core import TokenCounter, exact_token_counter

from ..caches import Cache
from ..caches.bill import Bill
from ..caches.openai import OpenAI
from ..caches.request import Request
from ..caches.token_scale import TokenScale
from . import anthropic_compaction, anthropic_forms, anthropic_rules, openai_forms, openai_rules
from .block_cache import BlockCache
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
        models: what can be asked for; one model of the usual size when not given.
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
        key: str = "test-key",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.exchanges: list[Exchange] = []
        self._script = script
        self._models = {model.id: model for model in models}
        self._key = key
        self._clock = clock

    @property
    def refusals(self) -> list[str]:
        """Return why requests were not accepted, in the vendor's words; empty if all were valid."""
        return [one.refusal for one in self.exchanges if one.refusal is not None]

    @property
    def bill(self) -> Bill:
        return sum((one.bill for one in self.exchanges if one.bill is not None), Bill())

    async def respond(self, body: Json, headers: Mapping[str, str]) -> Response:
        try:
            if self._given_key(headers) != self._key:
                raise self._wrong_key()
            model = self._models.get(str(body.get("model")))
            self._check(body, headers, model)
            assert model is not None  # else it was refused
            self._fits(body, model)
        except Refused as refusal:
            self.exchanges.append(Exchange(body, refusal.status, refusal.message, None))
            return Response(refusal.status, self._error(refusal), {})
        made = await reply_of(self._script, self._as_kernel(body))
        if isinstance(made, Fault):
            self.exchanges.append(Exchange(body, made.status, None, None))
            return Response(made.status, self._fault(made), made.headers)
        bill = self._billed(body)
        answer = self._answer(body, made, bill)
        self.exchanges.append(Exchange(body, 200, None, bill))
        return Response(200, answer, {})

    @abstractmethod
    def _given_key(self, headers: Mapping[str, str]) -> str | None: ...

    @abstractmethod
    def _wrong_key(self) -> Refused: ...

    @abstractmethod
    def _check(self, body: Json, headers: Mapping[str, str], model: Model | None) -> None: ...

    @abstractmethod
    def _fits(self, body: Json, model: Model) -> None: ...

    @abstractmethod
    def _error(self, refusal: Refused) -> Json: ...

    @abstractmethod
    def _fault(self, fault: Fault) -> Json: ...

    @abstractmethod
    def _as_kernel(self, body: Json) -> Any: ...

    @abstractmethod
    def _billed(self, body: Json) -> Bill: ...

    @abstractmethod
    def _answer(self, body: Json, reply: Reply, bill: Bill) -> Json: ...


class OpenAIService(Service):
    """Chat Completions.

    Args:
        cache: the prompt cache; by default the one of GPT-5.6 and later.
    """

    path = "/v1/chat/completions"

    def __init__(self, script: Script, models: Iterable[Model], *, cache: Cache | None = None, **options: Any) -> None:
        super().__init__(script, models, **options)
        self._cache = cache or OpenAI()
        self._scale = TokenScale()

    def _given_key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("authorization", "").removeprefix("Bearer ")

    def _wrong_key(self) -> Refused:
        return Refused("Incorrect API key provided.", status=401, code="invalid_api_key")

    def _check(self, body: Json, headers: Mapping[str, str], model: Model | None) -> None:
        openai_rules.check(body, model)

    def _fits(self, body: Json, model: Model) -> None:
        tokens = self._request(body).offsets[-1]
        if tokens + int(body.get("max_completion_tokens") or 0) > model.context_window:
            raise Refused(
                f"This model's maximum context length is {model.context_window} tokens. However, you requested "
                f"{tokens + int(body.get('max_completion_tokens') or 0)} tokens. Please reduce the length of the "
                "messages or completion.",
                param="messages",
                code="context_length_exceeded",
            )

    def _error(self, refusal: Refused) -> Json:
        return openai_forms.error(refusal.message, refusal.kind, refusal.param, refusal.code)

    def _fault(self, fault: Fault) -> Json:
        usual = "requests" if fault.status == 429 else "server_error"
        return openai_forms.error(fault.message, fault.kind or usual, None, fault.code)

    def _as_kernel(self, body: Json) -> Any:
        return openai_forms.chat_request(body)

    def _billed(self, body: Json) -> Bill:
        return self._cache.bill(self._request(body), self._clock())

    def _answer(self, body: Json, reply: Reply, bill: Bill) -> Json:
        return openai_forms.completion(body, reply, bill, self._scale.length, len(self.exchanges) + 1)

    def _request(self, body: Json) -> Request:
        """Return the request as the cache reads it: tool definitions go before the messages."""
        tools = [{"role": "system", "content": str(body["tools"])}] if body.get("tools") else []
        return Request.of([*tools, *body["messages"]], self._scale)


class AnthropicService(Service):
    """Messages.

    Args:
        counter: text to tokens; by default exact (o200k_base), in place of Anthropic's own.
        minimum: tokens that a prefix needs to be cached.
    """

    path = "/v1/messages"

    def __init__(
        self,
        script: Script,
        models: Iterable[Model],
        *,
        counter: TokenCounter | None = None,
        minimum: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(script, models, **options)
        self._cache = BlockCache(counter or exact_token_counter(), minimum)

    def _given_key(self, headers: Mapping[str, str]) -> str | None:
        # The client library sends a bearer token from version 2 on (`_api_key_auth`), older ones the header of its own.
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")

    def _wrong_key(self) -> Refused:
        return Refused("invalid x-api-key", status=401, kind="authentication_error")

    def _check(self, body: Json, headers: Mapping[str, str], model: Model | None) -> None:
        if "anthropic-version" not in headers:
            raise Refused("anthropic-version: header is required")
        anthropic_compaction.check(body, headers)
        anthropic_rules.check(anthropic_compaction.plain(body), model)

    def _fits(self, body: Json, model: Model) -> None:
        tokens = self._cache.size(body)
        if tokens > model.context_window:
            raise Refused(f"prompt is too long: {tokens} tokens > {model.context_window} maximum")
        if tokens + body["max_tokens"] > model.context_window:
            raise Refused(
                f"input length and `max_tokens` exceed context limit: {tokens} + {body['max_tokens']} > "
                f"{model.context_window}, decrease input length or `max_tokens` and try again"
            )

    def _error(self, refusal: Refused) -> Json:
        return anthropic_forms.error(refusal.message, refusal.kind)

    def _fault(self, fault: Fault) -> Json:
        usual = {429: "rate_limit_error", 529: "overloaded_error"}.get(fault.status, "api_error")
        return anthropic_forms.error(fault.message, fault.kind or usual)

    def _as_kernel(self, body: Json) -> Any:
        request = anthropic_forms.chat_request(anthropic_compaction.plain(body))
        return request.model_copy(update={"metadata": {"compaction": True}}) if "compaction" in body else request

    def _billed(self, body: Json) -> Bill:
        return self._cache.bill(body, self._clock())

    def _answer(self, body: Json, reply: Reply, bill: Bill) -> Json:
        form = anthropic_compaction if "compaction" in body else anthropic_forms
        return form.message(body, reply, bill, self._cache.tokens, len(self.exchanges) + 1)
