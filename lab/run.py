"""Running the lab: every session through every manager, request by request."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from amplifier_context_cli.streams import warnings_to
from amplifier_context_core.view import shared_cache
from amplifier_context_testing.caches.bill import Bill
from amplifier_context_testing.caches.openai import OpenAI
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.replay.transcripts import OnRequest, Transcript, replay

from .course import Course, Recording, Size
from .figures import Figures
from .judge import Judge
from .managers import Manager
from .sessions import Session

OnReplayed = Callable[["Report"], None]
"""Called with all that was measured so far, as another session was replayed."""

_SESSION = re.compile(r"^session \S+: ")  # an id of the manager's own, which names no recording


@dataclass(slots=True)
class Row:
    """A manager at a budget, its figures by session id, and what was logged as a warning: session id and text."""

    manager: Manager
    size: Size
    by_session: dict[str, Figures] = field(default_factory=dict[str, Figures])
    notices: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def figures(self) -> Figures:
        return Figures.sum(self.by_session.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.manager.label,
            "budget": self.size.label,
            **self.figures.as_json(),
            "by_session": {name: figures.as_json() for name, figures in self.by_session.items()},
            "notices": [{"session": name, "text": text} for name, text in self.notices],
        }


@dataclass(slots=True)
class Report:
    """What the lab found; `rows` hold a manager at a budget each, budget by budget."""

    sizes: list[Size]
    rows: list[Row] = field(default_factory=list[Row])
    sessions: list[Session] = field(default_factory=list[Session])
    skipped: list[str] = field(default_factory=list[str])

    def as_json(self) -> dict[str, Any]:
        sessions = [{"id": s.id, "set": s.set, "messages": len(s.messages), "part": s.part} for s in self.sessions]
        return {"sessions": sessions, "managers": [row.as_json() for row in self.rows]}


async def measure(
    sessions: Sequence[Session],
    managers: Sequence[Manager],
    *sizes: Size,
    scale: TokenScale | None = None,
    replayed: OnReplayed | None = None,
) -> Report:
    """Replay sessions through managers, each opened again for each session; `scale` is exact when not given.

    A session whose system prompt exceeds its budget is skipped for all managers.
    """
    scale = scale or TokenScale()
    recordings = [Recording(session, scale) for session in sessions]
    report = Report([*sizes])
    for size in sizes:
        courses = [Course(recording, size) for recording in recordings]
        report.skipped += [
            f"{course.session.id}: its system prompt has {course.recording.system:,} tokens, the budget "
            f"{course.budget:,}"
            for course in courses
            if course.budget <= course.recording.system
        ]
        fitting = [course for course in courses if course.budget > course.recording.system]
        measured = {course.session.id for course in fitting} | {session.id for session in report.sessions}
        report.sessions = [session for session in sessions if session.id in measured]
        for manager in managers:
            row = Row(manager, size)
            report.rows.append(row)
            for course in fitting:
                with warnings_to(partial(_note, row, course.session.id)):
                    judge = Judge(course, scale)
                    judge.figures.times = await _run(course, manager, judge.take, scale)
                    if manager.reads_provider:
                        bill = await _named(course, manager, scale)
                        judge.figures.bills = {**judge.figures.bills, "openai": bill}
                row.by_session[course.session.id] = judge.figures
                if replayed is not None:
                    replayed(report)
    return report


def _note(row: Row, session_id: str, text: str) -> None:
    """Keep a warning that was logged while a session was replayed: each text once."""
    notice = (session_id, _SESSION.sub("", text))
    if notice not in row.notices:
        row.notices.append(notice)


async def _run(
    course: Course, manager: Manager, judge: OnRequest, scale: TokenScale, provider: SessionProvider | None = None
) -> list[float]:
    """Replay a session, with a judge of the views, and return the seconds of each request."""
    shared_cache.clear()  # sessions of one process find each other's checkpoints; here each starts from nothing
    transcript = Transcript(course.session.id, course.session.set, course.session.messages)
    async with manager.open(scale, course.budget) as context:
        timed = _Timed(context)
        await replay(transcript, timed, judge, token_budget=course.budget, provider=provider)
    return timed.times


async def _named(course: Course, manager: Manager, scale: TokenScale) -> Bill:
    """Return the bill of OpenAI's cache where the requests name the provider, as those of every host do.

    A manager may make its views for it, and then the views of another provider have no price there.
    """
    cache, bills = OpenAI(), list[Bill]()

    def judge(index: int, view: list[Message]) -> None:
        bills.append(cache.bill(Request.of(view, scale), 0.0))

    await _run(course, manager, judge, scale, SessionProvider())
    return sum(bills, Bill())


class SessionProvider:
    """The provider of a session: nothing is asked of it but its name and its prices."""

    name = "openai"  # of a vendor whose tokens are counted exactly
    default_model = ""

    async def list_models(self) -> list[Any]:
        """Return the only model, with the relative prices of Anthropic's and OpenAI's price lists."""
        from amplifier_core.models import ModelInfo, Pricing

        pricing = Pricing(
            input_per_million=1.0, output_per_million=5.0, cache_read_per_million=0.1, cache_write_per_million=1.25
        )
        limits: Any = {"context_window": 1_000_000, "max_output_tokens": 8_192}
        return [ModelInfo(id="lab", display_name="lab", pricing=pricing, **limits)]


class _Timed:
    def __init__(self, context: Any) -> None:
        self._context = context
        self.times: list[float] = []
        self.add_message = context.add_message

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        started = time.perf_counter()
        view: list[Message] = await self._context.get_messages_for_request(token_budget=token_budget, provider=provider)
        self.times.append(time.perf_counter() - started)
        return view
