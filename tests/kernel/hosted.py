"""The context module that the tests of this folder mount: each runs once for every one it is meant for. And a host that
keeps transcripts itself and the checkpoints of a context beside them.

`Host` makes the calls of `microsoft/amplifier-unified`, `amplifier_web/context_continuity.py`, in their order.
"""

import importlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_context_core import ContextManager
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import check_request, mount_plan, session
from tests.managers import feed
from tests.messages import Message, work


@dataclass
class Mounted:
    """A context module, and what the mount plan says besides."""

    module: str = "context-simple"
    config: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def package(self) -> str:
        return f"amplifier_{self.module.replace('-', '_')}"

    def entry(self, **config: Any) -> dict[str, Any]:
        return {"module": self.module, "config": {**self.config, **config}}

    async def mount(self, coordinator: Any, config: dict[str, Any] | None) -> Any:
        settings = {**self.config, **(config or {})} if self.config else config
        return await importlib.import_module(self.package).mount(coordinator, settings)


CURRENT = Mounted()

IDENTITY = {"provider": "anthropic", "model": "one"}


class Host:
    """The calls of that host for one session and process."""

    def __init__(self, coordinator: Any, folder: Path, identity: dict[str, str | None]) -> None:
        self.coordinator = coordinator
        self.transcript, self.record = folder / "transcript.json", folder / "context-checkpoint.json"
        self.identity: dict[str, str | None] | None = None
        self.provider = identity
        self.loaded = False
        self.awaited: list[int] = []
        self.status: dict[str, Any] = {}
        coordinator.register_capability("context.checkpoint_identity", lambda: self.identity)
        coordinator.register_capability("context.preserve_evidence", self.preserve)

    async def preserve(self, messages: list[Message]) -> list[Message]:
        self.identity = self.provider
        self.awaited.append(len(messages))
        await self.checkpoint()
        if not self.loaded:
            self.loaded = True
            restore = self.coordinator.get_capability("context.checkpoint.restore")
            if restore and self.record.exists():
                self.status.update(restore(json.loads(self.record.read_text()), self.identity))
        return []

    async def checkpoint(self) -> None:
        messages = await self.coordinator.get("context").get_messages()
        self.transcript.write_text(json.dumps(messages))
        export = self.coordinator.get_capability("context.checkpoint.export")
        if export is None or not self.identity or not all(self.identity.values()):
            return
        record = export(self.identity)
        if record is not None:
            self.record.write_text(json.dumps(record))
            self.status = {"status": "saved", "sourceRevision": record["sourceRevision"]}

    def public(self) -> dict[str, Any]:
        if self.status.get("status") == "rejected":
            return self.status
        return {**self.status, **self.coordinator.get_capability("context.checkpoint.status")()}


@asynccontextmanager
async def process(
    folder: Path, identity: dict[str, Any] = IDENTITY, **config: Any
) -> AsyncGenerator[tuple[Host, ContextManager]]:
    """A process of the host: a session of the real kernel that has the saved transcript, if there is one."""
    shared_cache.clear()  # no process has the checkpoints of another in memory
    entry = CURRENT.entry(**{"max_tokens": 3_000, **config})
    plan = mount_plan(entry, script=["Done."] * 50, window=8_000, provider={"check": True})
    async with session(plan, session_id="hosted") as opened:
        host, context = Host(opened.coordinator, folder, identity), opened.coordinator.get("context")
        if host.transcript.exists():
            await context.set_messages(json.loads(host.transcript.read_text()))
        yield host, context


async def view_of(context: ContextManager) -> list[Message]:
    view = await context.get_messages_for_request()
    assert check_request(view) == []
    return view


async def worked(host: Host, context: ContextManager) -> list[Message]:
    """Work until the context has compacted, and let the host save. Return the last view."""
    messages = work(60, task="Schau \u2013 'é'.", output=100)
    for start in range(0, len(messages), 20):
        await view_of(await feed(context, messages[start : start + 20]))
    await host.checkpoint()  # as after a tool
    assert (await context.explain())["compactions"] > 0
    return await view_of(context)
