"""A probe between the loop and the context manager.

`ProbedContext` is mounted in the manager's place and forwards every call. So it sees each message that is added and
each list that is returned, with any loop, any provider and any context module. The checks of a run use only these
observations, not the manager's own reports. Each list is checked against the provider rules. The history is complete
if the hash of the added messages equals the hash of what `get_messages` returns.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from amplifier_context_core.economics.budget import provider_window
from amplifier_context_core.errors import InvalidMessage
from amplifier_context_core.messages.parsing import Call, calls_of, parse_message
from amplifier_context_core.messages.tokens import count_message_tokens

from ..checks.message_shapes import as_mapping

Message = dict[str, Any]


@dataclass(slots=True)
class Request:
    """One list of messages that was returned for a request. Token counts are the provider's, as far as it reports any.

    Attributes:
        number: from 1.
        budget: tokens that the request may have; None if the context does not report a budget.
        trigger: tokens above which the context compacts; None if the context does not report it.
        prefix: tokens of the common prefix with the previous request, which a provider can serve from its cache.
        broken: the provider rules that it breaks, one sentence each.
        answered: True once the answer was added; then its tool calls are known.
    """

    number: int
    tokens: int
    budget: int | None
    trigger: int | None
    prefix: int
    broken: list[str]
    answered: bool = False
    calls: list[Call] = field(default_factory=list[Call])

    @property
    def share(self) -> float:
        """The cacheable prefix as a share of the request."""
        return self.prefix / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True)
class HistoryCheck:
    """The number of messages that were added (with their hash) and that `get_messages` returned.

    Attributes:
        first_difference: index of the first message that differs; None if the history is complete.
    """

    added: int
    kept: int
    sha256: str
    first_difference: int | None

    @property
    def complete(self) -> bool:
        return self.first_difference is None


class Observer(Protocol):
    """Receives the events of a session while it runs."""

    def on_request(self, request: Request) -> None: ...

    def on_compaction(self, report: Mapping[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...


class ContextProbe:
    """Records the requests, messages and compactions of one session; waits `pace` seconds after each request.

    Attributes:
        invalid: sentences of the checks, each with the number of its request.
        sent, cached: tokens of all requests, and of their common prefixes with the request before.
        largest: tokens of the largest request.
        over: number of requests above their budget.
        view: the newest list.
        started: start of the recording, in seconds of the monotonic clock.
    """

    def __init__(
        self, observer: Observer, check: Callable[[Sequence[Mapping[str, Any]]], list[str]], pace: float = 0.0
    ) -> None:
        self._observer = observer
        self._check = check
        self._pace = pace
        self._coordinator: Any = None
        self._inner: Any = None
        self._current: Request | None = None
        self._added: list[bytes] = []
        self.started = time.monotonic()
        self.requests = 0
        self.invalid: list[str] = []
        self.sent = 0
        self.cached = 0
        self.largest = 0
        self.over = 0
        self.compactions: list[dict[str, Any]] = []
        self.view: list[Message] = []

    async def attach(self, coordinator: Any) -> int:
        """Mount the probe around the context and subscribe to events; return the number of stored messages."""
        from amplifier_core import HookResult

        self._coordinator = coordinator
        self._inner = coordinator.get("context")
        self._added = _hashes(await self._inner.get_messages())
        await coordinator.mount("context", ProbedContext(self._inner, self))
        retain = coordinator.get_capability("context.request_retention")
        if retain is not None:  # newer loops request their lists by this capability
            coordinator.register_capability("context.request_retention", self._seen(retain))

        async def observe(event: str, data: dict[str, Any]) -> Any:
            if event == "context:compaction":
                self.compactions.append(dict(data))
                self._observer.on_compaction(data)
            else:
                kind = (as_mapping(data.get("error")) or {}).get("type", data.get("error_type"))
                self._observer.note(f"the provider refused the request: {kind}")
            return HookResult(action="continue")

        for event in ("context:compaction", "provider:error"):
            coordinator.hooks.register(event, observe, -1_000, name=f"amplifier-context-run:{event}")
        return len(self._added)

    def _seen(self, retain: Callable[..., Awaitable[list[Message]]]) -> Callable[..., Awaitable[list[Message]]]:
        async def request_retention(**options: Any) -> list[Message]:
            view = await retain(**options)
            await self.on_view(view, options.get("token_budget"), options.get("provider"))
            return view

        return request_retention

    async def check_history(self) -> HistoryCheck:
        """Compare the added messages with the current history."""
        kept = _hashes(await self._inner.get_messages())
        added = self._added
        at = next((i for i, (mine, theirs) in enumerate(zip(added, kept, strict=False)) if mine != theirs), None)
        if at is None and len(added) != len(kept):
            at = min(len(added), len(kept))
        return HistoryCheck(len(added), len(kept), hashlib.sha256(b"".join(added)).hexdigest(), at)

    def on_added(self, message: Message) -> None:
        """Record an added message. An assistant message is the answer to the newest request."""
        self._added.append(_hash(message))
        if self._current is not None and message.get("role") == "assistant":
            self._current.answered = True
            self._current.calls.extend(calls_of(message) if _is_sound(message) else ())
            self._current = None

    async def on_replaced(self) -> None:
        self._added = _hashes(await self._inner.get_messages())

    async def on_view(self, view: list[Message], token_budget: int | None, provider: Any) -> None:
        """Check, measure and record the list for a request."""
        self.requests += 1
        broken = self._check(view)
        request = await self._measured(view, token_budget, provider, broken)
        self.invalid += [f"request {request.number}: {sentence}" for sentence in broken]
        self.sent += request.tokens
        self.cached += request.prefix
        self.largest = max(self.largest, request.tokens)
        self.over += request.budget is not None and request.tokens > request.budget
        self.view = list(view)  # the loop may add to its own
        self._current = request
        self._observer.on_request(request)
        if self._pace:
            await asyncio.sleep(self._pace)

    async def _measured(
        self, view: list[Message], token_budget: int | None, provider: Any, broken: list[str]
    ) -> Request:
        """Return the figures of a request: from `context.explain` if the context has it, else counted here."""
        explain = self._coordinator.get_capability("context.explain")
        if explain is not None:
            found: Any = (await explain())["view"]
            figures = (found["tokens"], found["budget"], found["trigger"], found["prefix_tokens"])
        else:
            pairs = zip(view, self.view, strict=False)
            same = next((i for i, (mine, before) in enumerate(pairs) if mine != before), min(len(view), len(self.view)))
            budget = token_budget or provider_window(provider, 1.0, 1_000)
            figures = (approx_tokens(view), budget, None, approx_tokens(view[:same]))
        return Request(self.requests, *figures, broken)


class ProbedContext:
    """A context manager that forwards every call to another one and reports it to a `ContextProbe`."""

    def __init__(self, inner: Any, probe: ContextProbe) -> None:
        self._inner = inner
        self._probe = probe

    async def add_message(self, message: Message) -> None:
        await self._inner.add_message(message)
        self._probe.on_added(message)  # it was accepted

    async def get_messages_for_request(self, *given: Any, **options: Any) -> list[Message]:
        view = await self._inner.get_messages_for_request(*given, **options)
        asked = dict(zip(("token_budget", "provider"), given, strict=False)) | options
        await self._probe.on_view(view, asked.get("token_budget"), asked.get("provider"))
        return view

    async def set_messages(self, messages: list[Message]) -> None:
        await self._inner.set_messages(messages)
        await self._probe.on_replaced()

    async def clear(self) -> None:
        await self._inner.clear()
        await self._probe.on_replaced()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def approx_tokens(messages: Sequence[Message]) -> int:
    """Return the approximate number of tokens of messages, valid or not."""
    return sum(count_message_tokens(message) if _is_sound(message) else len(str(message)) // 4 for message in messages)


def _is_sound(message: Message) -> bool:
    """True if the core's functions can read a message; other contexts accept any dict."""
    try:
        parse_message(message)
    except InvalidMessage:
        return False
    return True


def _hashes(messages: Sequence[Mapping[str, Any]]) -> list[bytes]:
    return [_hash(message) for message in messages]


def _hash(message: Mapping[str, Any]) -> bytes:
    """Return the hash of a message without its timestamp, because a context adds a missing one."""
    timeless = {key: value for key, value in message.items() if key not in ("timestamp", "metadata")}
    metadata = as_mapping(message.get("metadata")) or {}
    timeless["metadata"] = {key: value for key, value in metadata.items() if key != "timestamp"}
    return hashlib.sha256(json.dumps(timeless, sort_keys=True, default=str).encode()).digest()
