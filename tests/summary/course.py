"""One session with a writer of summaries, request by request, and the same session with the digest alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import HookResult
from amplifier_core.testing import MockCoordinator

import amplifier_context_simple
import amplifier_context_summary
from amplifier_context_core import count_tokens
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import check_request, coding_session
from amplifier_context_testing.summaries.waiting import timers_of
from amplifier_context_testing.summaries.writers import Writer

TASK = "amplifier-context-summary"  # what the manager names its background task
EVENTS = ("context:summary_started", "context:summary_finished", "context:summary_failed")
BUDGET = 4_000  # tokens: the session below outgrows it several times
CONFIG: dict[str, Any] = {"token_counter": "heuristic", "max_tokens": BUDGET}
RICH = {"summary_spend": 100.0}  # a session in so small a window has too little money for a second call


def history(messages: int = 60) -> list[dict[str, Any]]:
    """A coding session whose person states a rule, and whose agent once says that all is done."""
    return [
        {"role": "user", "content": "Rename the module. Never touch the generated files in build/out."},
        {"role": "assistant", "content": "I think that all of it is done."},
        {"role": "user", "content": "It is not. Go on."},
        *list(coding_session(messages, seed=7))[1:],
    ]


@dataclass
class Course:
    """What happened in a session.

    Attributes:
        views: what each request was sent.
        order: `request N`, `sent N`, `compacted`, and the events of summaries, in the order in which they happened.
        events: of summaries, with their data.
        timers: how often each request waited for something with a time limit, such as a handler of an event.
        explained: what `explain` returned at the end, before the session was closed.
    """

    views: list[list[dict[str, Any]]] = field(default_factory=list[Any])
    order: list[str] = field(default_factory=list[str])
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    explained: dict[str, Any] = field(default_factory=dict[str, Any])
    compactions: int = 0
    timers: list[int] = field(default_factory=list[int])

    @property
    def text(self) -> str:
        """The text of all views."""
        return "\n".join(self.bytes)

    @property
    def bytes(self) -> list[str]:
        """Each view as it would go over the wire."""
        return [json.dumps(view, ensure_ascii=False) for view in self.views]

    @property
    def chapters(self) -> list[str]:
        """The chapters of the last view."""
        return [
            str(message["content"])
            for message in self.views[-1]
            if message.get("metadata", {}).get("source") == "context-compaction"
        ]

    @property
    def calls(self) -> list[int]:
        """How many calls were made before each compaction, since the one before."""
        steps = [step for step in self.order if step in ("compacted", "started")]
        return [len(part) for part in _parted(steps)]

    def named(self, event: str) -> list[dict[str, Any]]:
        """The data of all events of a name."""
        return [data for name, data in self.events if name == f"context:summary_{event}"]


def _parted(steps: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for step in steps:
        if step == "compacted":
            parts.append([])
        else:
            parts[-1].append(step)
    return parts[:-1]


async def wait_for_summaries(writer: Writer | None) -> None:
    """Wait for tasks of summaries, unless the writer keeps one of them waiting."""
    while tasks := [task for task in asyncio.all_tasks() if task.get_name() == TASK]:
        if writer is not None and writer.pending and not writer.release.is_set():
            return
        await asyncio.wait(tasks, timeout=0.001)


async def course(
    writer: Writer | None,
    messages: Iterable[dict[str, Any]],
    *,
    release: bool = False,
    reports: bool = False,
    **config: Any,
) -> Course:
    """Replay messages through a session, asking for a view before each answer of the agent.

    Args:
        writer: asked for summaries; without one the session is context-simple's.
        messages: of the session.
        release: a slow writer answers after the last request.
        reports: the writer emits `llm:response` for its calls, as providers do.
        config: of the module.
    """
    shared_cache.clear()
    done = Course()
    coordinator: Any = MockCoordinator()

    async def keep(event: str, data: dict[str, Any]) -> HookResult:
        done.events.append((event, dict(data)))
        done.order.append(event.removeprefix("context:summary_"))
        return HookResult(action="continue")

    async def note(event: str, data: dict[str, Any]) -> HookResult:
        done.order.append("compacted")
        return HookResult(action="continue")

    for event in EVENTS:
        coordinator.hooks.register(event, keep, 0, name=event)
    coordinator.hooks.register("context:compaction", note, 0, name="course")
    module = amplifier_context_simple if writer is None else amplifier_context_summary
    if writer is not None:
        await coordinator.mount("providers", writer, name=writer.name)
        writer.hooks = coordinator.hooks if reports else None
    cleanup = await module.mount(coordinator, {**CONFIG, **({} if writer is None else RICH), **config})
    context = coordinator.get("context")
    for message in messages:
        if message["role"] == "assistant":
            number = len(done.views)
            done.order.append(f"request {number}")
            with timers_of(asyncio.current_task()) as timers:
                done.views.append(await context.get_messages_for_request())
            done.timers.append(len(timers))
            done.order.append(f"sent {number}")
            await wait_for_summaries(writer)
        await context.add_message(message)
    if release and writer is not None:
        writer.release.set()
        await wait_for_summaries(writer)
    done.compactions = context.compactor.compactions
    done.explained = await context.explain()
    await cleanup()
    return done


def assert_valid(done: Course) -> None:
    """Every request is valid and within its budget."""
    for view in done.views:
        assert check_request(view) == []
        assert count_tokens(view) <= BUDGET
