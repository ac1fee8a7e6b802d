"""A witness between the loop and the context manager.

`WatchedContext` is mounted in the manager's place and hands everything on. So it sees what any loop with any provider
does to any context module: each message that goes in, each list that comes out. The checks of the run rest on that, not
on what the manager says of itself: every list is held against the provider rules, and the history is complete when the
hash of what went in is the hash of what `get_messages` returns.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from amplifier_context_core.errors import InvalidMessage
from amplifier_context_core.messages.parsing import Call, calls_of, parse_message
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.view.budget import provider_window

Message = dict[str, Any]


@dataclass(slots=True)
class Request:
    """One list of messages handed out for a request. All tokens are the provider's, as far as its counts are known.

    Attributes:
        number: from 1.
        tokens: of the whole request.
        budget: that it may have; None when the context does not say.
        trigger: above this the context compacts; None when it does not say.
        prefix: tokens at its beginning that were in the request before: cached by a provider.
        broken: provider rules it breaks, a sentence each.
        answered: the answer is in.
        calls: tools called in it.
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
        """Share of it that is cacheable prefix."""
        return self.prefix / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True)
class Proof:
    """Is the history what was added, word for word?

    Attributes:
        added: messages that went in.
        kept: messages that `get_messages` returned.
        sha256: of what went in.
        first_difference: index of the first message that differs; None when the history is complete.
    """

    added: int
    kept: int
    sha256: str
    first_difference: int | None

    @property
    def complete(self) -> bool:
        """Nothing is missing, nothing was changed, nothing was put in."""
        return self.first_difference is None


class Audience(Protocol):
    """Who is told while the session runs."""

    def requested(self, request: Request) -> None:
        """A list was handed out."""

    def answered(self, request: Request) -> None:
        """The newest request was answered; its calls are known."""

    def compacted(self, report: Mapping[str, Any]) -> None:
        """The context compacted; the figures of `context:compaction`."""

    def noted(self, text: str) -> None:
        """Something a reader should know happened."""


class Watch:
    """What was seen of one session.

    Args:
        audience: is told of it as it happens.
        check: provider rules a list breaks, a sentence each.
        pace: seconds to wait after each request, so that people can follow.

    Attributes:
        requests: how many lists were handed out.
        invalid: sentences of the checks, each with the number of its request.
        sent, cached: tokens of all requests, and those of them that were at the beginning of the request before.
        largest: tokens of the largest request.
        over: requests above their budget.
        compactions: the reports of `context:compaction`.
        view: the list handed out last.
        started: when watching began, on the monotonic clock.
    """

    def __init__(
        self, audience: Audience, check: Callable[[Sequence[Mapping[str, Any]]], list[str]], pace: float = 0.0
    ) -> None:
        self._audience = audience
        self._check = check
        self._pace = pace
        self._coordinator: Any = None
        self._inner: Any = None
        self._current: Request | None = None
        self._went_in: list[bytes] = []
        self.started = time.monotonic()
        self.requests = 0
        self.invalid: list[str] = []
        self.sent = 0
        self.cached = 0
        self.largest = 0
        self.over = 0
        self.compactions: list[dict[str, Any]] = []
        self.view: list[Message] = []

    async def begin(self, coordinator: Any) -> int:
        """Step in front of the mounted context, and listen to the session's events; the messages it has already."""
        self._coordinator = coordinator
        self._inner = coordinator.get("context")
        self._went_in = _prints(await self._inner.get_messages())
        await coordinator.mount("context", WatchedContext(self._inner, self))
        retain = coordinator.get_capability("context.request_retention")
        if retain is not None:  # newer loops get their lists this way
            coordinator.register_capability("context.request_retention", self._seen(retain))
        for event, react in {
            "context:compaction": self._compacted,
            "provider:error": self._refused,
        }.items():
            coordinator.hooks.register(event, _quietly(react), -1_000, name=f"amplifier-context-run:{event}")
        return len(self._went_in)

    def _seen(self, retain: Callable[..., Awaitable[list[Message]]]) -> Callable[..., Awaitable[list[Message]]]:
        async def request_retention(**options: Any) -> list[Message]:
            view = await retain(**options)
            await self.handed_out(view, options.get("token_budget"), options.get("provider"))
            return view

        return request_retention

    async def prove(self) -> Proof:
        """Compare what went in with what the history holds now."""
        kept = _prints(await self._inner.get_messages())
        went_in = self._went_in
        at = next((i for i, (mine, theirs) in enumerate(zip(went_in, kept, strict=False)) if mine != theirs), None)
        if at is None and len(went_in) != len(kept):
            at = min(len(went_in), len(kept))
        return Proof(len(went_in), len(kept), hashlib.sha256(b"".join(went_in)).hexdigest(), at)

    # --- what the watched context reports ---------------------------------------------------------------------------

    def added(self, message: Message) -> None:
        """A message was taken in. An assistant's is the answer to the newest request."""
        self._went_in.append(_print(message))
        if self._current is not None and message.get("role") == "assistant":
            self._current.answered = True
            self._current.calls.extend(calls_of(message) if _is_sound(message) else ())
            self._audience.answered(self._current)
            self._current = None

    async def replaced(self) -> None:
        """The host changed the history itself: that is the history now."""
        self._went_in = _prints(await self._inner.get_messages())

    async def handed_out(self, view: list[Message], token_budget: int | None, provider: Any) -> None:
        """A list was made for a request."""
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
        self._audience.requested(request)
        if self._pace:
            await asyncio.sleep(self._pace)

    async def _measured(
        self, view: list[Message], token_budget: int | None, provider: Any, broken: list[str]
    ) -> Request:
        """The figures of a request: the context's own where it explains itself, else counted here."""
        explain = self._coordinator.get_capability("context.explain")
        if explain is not None:
            said: Any = (await explain())["view"]
            return Request(
                self.requests,
                said["tokens"],
                said["budget"],
                said["trigger"],
                said["prefix_tokens"],
                broken,
            )
        same = 0
        while same < min(len(view), len(self.view)) and view[same] == self.view[same]:
            same += 1
        budget = token_budget or provider_window(provider, 1.0, 1_000)
        tokens = weigh(view)
        return Request(self.requests, tokens, budget, None, weigh(view[:same]), broken)

    # --- what the session's events tell -----------------------------------------------------------------------------

    def _compacted(self, data: Mapping[str, Any]) -> None:
        self.compactions.append(dict(data))
        self._audience.compacted(data)

    def _refused(self, data: Mapping[str, Any]) -> None:
        error: Any = data.get("error")
        kind = error.get("type") if isinstance(error, dict) else data.get("error_type")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        self._audience.noted(f"the provider refused the request: {kind}")


class WatchedContext:
    """A context manager that hands everything on to another one and lets a `Watch` see it."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    async def add_message(self, message: Message) -> None:
        """Hand on; seen once it was taken."""
        await self._inner.add_message(message)
        self._watch.added(message)

    async def get_messages_for_request(self, *given: Any, **options: Any) -> list[Message]:
        """Hand on; the list is checked and measured."""
        view = await self._inner.get_messages_for_request(*given, **options)
        asked = dict(zip(("token_budget", "provider"), given, strict=False)) | options
        await self._watch.handed_out(view, asked.get("token_budget"), asked.get("provider"))
        return view

    async def set_messages(self, messages: list[Message]) -> None:
        """Hand on; the host's word is the history."""
        await self._inner.set_messages(messages)
        await self._watch.replaced()

    async def clear(self) -> None:
        """Hand on."""
        await self._inner.clear()
        await self._watch.replaced()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def weigh(messages: Sequence[Message]) -> int:
    """About how many tokens messages have, sound or not."""
    return sum(count_message_tokens(message) if _is_sound(message) else len(str(message)) // 4 for message in messages)


def _is_sound(message: Message) -> bool:
    """May it be read by the core's functions, which trust what they are given? Other contexts take anything."""
    try:
        parse_message(message)
    except InvalidMessage:
        return False
    return True


def _prints(messages: Sequence[Mapping[str, Any]]) -> list[bytes]:
    return [_print(message) for message in messages]


def _print(message: Mapping[str, Any]) -> bytes:
    """Hash of a message without its time: a context stamps what has none when it comes in."""
    timeless = {key: value for key, value in message.items() if key != "timestamp"}
    metadata: Any = timeless.pop("metadata", None)
    if isinstance(metadata, dict):
        rest = {key: value for key, value in cast("dict[str, Any]", metadata).items() if key != "timestamp"}
        timeless |= {"metadata": rest} if rest else {}
    return hashlib.sha256(json.dumps(timeless, sort_keys=True, default=str).encode()).digest()


def _quietly(react: Callable[[Mapping[str, Any]], None]) -> Callable[[str, dict[str, Any]], Any]:
    async def handler(event: str, data: dict[str, Any]) -> Any:
        from amplifier_core import HookResult

        react(data)
        return HookResult(action="continue")

    return handler
