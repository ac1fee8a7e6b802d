"""A probe between the loop and the context manager.

`ContextProbe` is mounted in the manager's place and forwards every call. So it sees each message that is added and each
list that is returned, with any loop, any provider and any context module. The checks of a run use only these
observations, not the manager's own reports.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_context_core.economics.budget import provider_window

from ..checks.message_shapes import Message, as_mapping, calls_of
from ..checks.request_checker import check_request
from .progress import ProgressPrinter, Request


@dataclass(slots=True)
class ContextProbe:
    """Forwards every call to a context manager and records what passes; waits `pace` seconds after each request.

    Attributes:
        added: a hash of each message of the history.
        view: the newest list.
    """

    inner: Any
    coordinator: Any
    observer: ProgressPrinter
    pace: float = 0.0
    requests: list[Request] = field(default_factory=list[Request])
    compactions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    added: list[bytes] = field(default_factory=list[bytes])
    view: list[Message] = field(default_factory=list[Message])
    started: float = field(default_factory=time.monotonic)

    @classmethod
    async def mounted(cls, coordinator: Any, observer: ProgressPrinter, pace: float) -> ContextProbe:
        """Mount a probe around the context and subscribe to events."""
        from amplifier_core import HookResult

        probe = cls(coordinator.get("context"), coordinator, observer, pace)
        await probe.read_history()
        await coordinator.mount("context", probe)
        retain = coordinator.get_capability("context.request_retention")
        if retain is not None:  # newer loops request their lists by this capability

            async def request_retention(**options: Any) -> list[Message]:
                return await probe.seen(await retain(**options), options)

            coordinator.register_capability("context.request_retention", request_retention)

        async def observe(event: str, data: dict[str, Any]) -> Any:
            if event == "context:compaction":
                probe.compactions.append(dict(data))
                observer.on_compaction(data)
            else:
                kind = (as_mapping(data.get("error")) or {}).get("type", data.get("error_type"))
                observer.note(f"the provider refused the request: {kind}")
            return HookResult(action="continue")

        for event in ("context:compaction", "provider:error"):
            coordinator.hooks.register(event, observe, -1_000, name=f"amplifier-context-run:{event}")
        return probe

    async def add_message(self, message: Message) -> None:
        await self.inner.add_message(message)
        self.added.append(hash_of(message))  # it was accepted
        if self.requests and self.requests[-1].calls is None and message.get("role") == "assistant":
            self.requests[-1].calls = calls_of(message)

    async def get_messages_for_request(self, *given: Any, **options: Any) -> list[Message]:
        asked = dict(zip(("token_budget", "provider"), given, strict=False)) | options
        return await self.seen(await self.inner.get_messages_for_request(*given, **options), asked)

    async def set_messages(self, messages: list[Message]) -> None:
        await self.inner.set_messages(messages)
        await self.read_history()

    async def clear(self) -> None:
        await self.inner.clear()
        await self.read_history()

    async def read_history(self) -> None:
        self.added = await self.kept()

    async def kept(self) -> list[bytes]:
        """Return a hash of each message that the context returns as its history."""
        return [hash_of(message) for message in await self.inner.get_messages()]

    async def seen(self, view: list[Message], asked: Mapping[str, Any]) -> list[Message]:
        """Check, measure and record the list for a request, and return it."""
        broken = check_request(view)
        explain = self.coordinator.get_capability("context.explain")
        if explain is not None:
            found: Any = (await explain())["view"]
            figures = (found["tokens"], found["budget"], found["trigger"], found["prefix_tokens"])
        else:  # another module: counted here
            pairs = zip(view, self.view, strict=False)
            same = next((i for i, (mine, before) in enumerate(pairs) if mine != before), min(len(view), len(self.view)))
            budget = asked.get("token_budget") or provider_window(asked.get("provider"), 1.0, 1_000)
            figures = (approx_tokens(view), budget, None, approx_tokens(view[:same]))
        self.requests.append(Request(len(self.requests) + 1, *figures, broken))
        self.view = list(view)  # the loop may add to its own
        self.observer.on_request(self.requests[-1])
        if self.pace:
            await asyncio.sleep(self.pace)
        return view

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def approx_tokens(messages: Sequence[Message]) -> int:
    """Return the approximate number of tokens of messages, valid or not: other contexts accept any dict."""
    return sum(len(str(message)) for message in messages) // 4


def hash_of(message: Mapping[str, Any]) -> bytes:
    """Return the hash of a message without its timestamp, because a context adds a missing one."""
    timeless = {key: value for key, value in message.items() if key not in ("timestamp", "metadata")}
    metadata = as_mapping(message.get("metadata")) or {}
    timeless["metadata"] = {key: value for key, value in metadata.items() if key != "timestamp"}
    return hashlib.sha256(json.dumps(timeless, sort_keys=True, default=str).encode()).digest()
