"""Running the lab: every session through every manager, request by request."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from amplifier_context_core.view import shared_cache

from ..checks.message_shapes import Message
from ..replay.transcripts import Transcript, replay
from .caches import OPENAI, Bill
from .course import Course, Recording, Size
from .figures import Figures
from .judge import BillJudge, FullJudge, Judge, Misses, PlantedJudge
from .managers import Manager
from .planted import plant
from .questions import in_search, in_view
from .reach import Reach
from .session_provider import SessionProvider
from .sessions import Part, Session, folded
from .shares import Share
from .timing import peak_memory
from .token_scale import TokenScale

OnProgress = Callable[[Manager, Session, int], None]
"""Called as a manager has answered so many requests of a session."""
OnReplayed = Callable[["Report"], None]
"""Called with all that was measured so far, as another session was replayed."""

PAUSES = "pauses"  # the seed of the commands' pauses, which are the same in every run
_SESSION = re.compile(r"^session \S+: ")  # an id of the manager's own, which names no recording


@dataclass(frozen=True, slots=True)
class Extras:
    """What is measured beside the recordings as they are.

    Attributes:
        planted: rules planted into a copy of the recordings, replayed apart.
        pauses: a seed for pauses between messages; without one no time is known.
        memory: measure memory too, on the largest session, in a replay of its own.
        misses: keep what was missed.
        reach: measure what one search of the recall tool brings of what a view lacks.
        openai: replay modules once more with OpenAI named as the provider, for its caches.
    """

    planted: int = 0
    pauses: str | None = None
    memory: bool = False
    misses: bool = False
    reach: bool = False
    openai: bool = True


@dataclass(slots=True)
class Row:
    """A manager at a budget and its figures, all together and by session.

    Attributes:
        manager: that was measured.
        size: the budget.
        by_session: figures by the id of the session.
        misses: what was missed; None when it was not kept.
        memory: bytes at the most, on the largest session; 0 when not measured.
        notices: what was logged as a warning: id of the session and text.
    """

    manager: Manager
    size: Size
    by_session: dict[str, Figures] = field(default_factory=dict[str, Figures])
    misses: Misses | None = None
    memory: int = 0
    notices: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def figures(self) -> Figures:
        """Return the figures of all sessions."""
        return self.of(self.by_session)

    def of(self, sessions: Iterable[str]) -> Figures:
        """Return the figures of some sessions."""
        figures = Figures.sum(self.by_session[session] for session in sessions)
        figures.memory = self.memory
        return figures

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "name": self.manager.label,
            "kind": self.manager.kind,
            "note": self.manager.note,
            **self.size.as_json(),
            **self.figures.as_json(),
            "by_session": {name: figures.as_json() for name, figures in self.by_session.items()},
            "notices": [{"session": name, "text": text} for name, text in self.notices],
            **({"missed": self.misses.as_json()} if self.misses is not None else {}),
        }


@dataclass(slots=True)
class Report:
    """What the lab found.

    Attributes:
        sizes: the budgets.
        rows: a manager at a budget each, budget by budget, in the order given.
        sessions: that were replayed at one of the budgets.
        skipped: sessions, managers and peers left out, with the reason.
        extras: what was measured beside.
    """

    sizes: list[Size]
    rows: list[Row]
    sessions: list[Session]
    skipped: list[str] = field(default_factory=list[str])
    extras: Extras = Extras()

    def half(self, part: Part) -> list[tuple[Row, Figures]]:
        """Return the figures of each row over the sessions of one half."""
        chosen = {session.id for session in self.sessions if session.part == part}
        return [(row, row.of(name for name in row.by_session if name in chosen)) for row in self.rows]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "sessions": [
                {"id": s.id, "set": s.set, "messages": len(s.messages), "part": s.part} for s in self.sessions
            ],
            "planted": self.extras.planted,
            "pauses": self.extras.pauses,
            "skipped": self.skipped,
            "managers": [row.as_json() for row in self.rows],
        }


async def measure(
    sessions: Sequence[Session],
    managers: Sequence[Manager],
    *sizes: Size,
    scale: TokenScale | None = None,
    extras: Extras = Extras(),
    progress: OnProgress | None = None,
    replayed: OnReplayed | None = None,
) -> Report:
    """Replay sessions through managers.

    Args:
        sessions: to replay; a session whose system prompt exceeds its budget is skipped for all managers.
        managers: to replay through, each opened again for each session.
        sizes: the budgets.
        scale: to weigh with; exact when not given.
        extras: what is measured beside the recordings as they are.
        progress: called after each request.
        replayed: called after each session of each manager.

    Raises:
        ValueError: more rules are to be planted than there are different ones.
    """
    scale = scale or TokenScale()
    recordings = [Recording(session, scale, pauses=extras.pauses) for session in sessions]
    planted = [
        Recording(session, scale, pauses=extras.pauses, planted=rules)
        for session, rules in (plant(sessions, extras.planted) if extras.planted else ())
    ]
    report = Report([*sizes], [], [], extras=extras)
    measured: set[str] = set()
    for size in sizes:
        courses = [Course(recording, size) for recording in recordings]
        report.skipped += [
            f"{course.session.id}: its system prompt has {course.recording.system:,} tokens, the budget "
            f"{course.budget:,}"
            for course in courses
            if course.budget <= course.recording.system
        ]
        fitting = [course for course in courses if course.budget > course.recording.system]
        measured |= {course.session.id for course in fitting}
        report.sessions = [session for session in sessions if session.id in measured]
        with_rules = {recording.session.id: Course(recording, size) for recording in planted}
        for manager in managers:
            row = Row(manager, size, misses=Misses() if extras.misses else None)
            report.rows.append(row)
            for course in fitting:
                with _notices(row, course.session):
                    judge = FullJudge(course, scale, row.misses)
                    found = [await _run(course, manager, judge, scale, progress, reach=extras.reach)]
                    if extras.openai and manager.kind == "module" and not manager.names_openai:
                        found[0].bills = {**found[0].bills, **await _billed_as_openai(course, manager, scale)}
                    if (rules := with_rules.get(course.session.id)) is not None:
                        found.append(await _run(rules, manager, PlantedJudge(rules, scale), scale, progress))
                row.by_session[course.session.id] = Figures.sum(found)
                if replayed is not None:
                    replayed(report)
            if extras.memory and fitting:
                largest = max(fitting, key=lambda course: course.recording.before[-1])
                row.memory = await _memory(largest, manager, scale)
    return report


@contextmanager
def _notices(row: Row, session: Session) -> Generator[None]:
    """Keep what is logged as a warning while a session is replayed: each text once, with the name of the recording."""

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            notice = (session.id, _SESSION.sub("", record.getMessage()))
            if notice not in row.notices:
                row.notices.append(notice)

    keeper = Keeper(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(keeper)
    try:
        yield
    finally:
        root.removeHandler(keeper)


async def _billed_as_openai(course: Course, manager: Manager, scale: TokenScale) -> Mapping[str, Bill]:
    """Return what a session costs with OpenAI's caches where the manager knows that the provider is OpenAI.

    Every host names the provider. A manager may make its views for it, and then the views of another provider have no
    price there. Baselines and peers do not read the name.
    """
    judge = BillJudge(course, scale, OPENAI)
    return (await _run(course, manager, judge, scale, None, provider=SessionProvider())).bills


async def _run(
    course: Course,
    manager: Manager,
    judge: Judge,
    scale: TokenScale,
    progress: OnProgress | None,
    *,
    reach: bool = False,
    provider: SessionProvider | None = None,
) -> Figures:
    """One session through one manager, with a provider if its requests are to name one."""
    session, messages = course.session, course.recording.messages
    shared_cache.clear()  # sessions of one process find each other's checkpoints; here each starts from nothing
    opened = await manager.open(scale, course.budget)
    timed = _Timed(opened.context)
    reached = Reach(course, opened.context, scale) if reach else None
    requests = 0

    async def on_request(index: int, view: list[Message]) -> None:
        nonlocal requests
        if index < len(messages):  # after the last message there is no recorded answer to judge by
            requests += 1
            judge.take(index, view)
            if reached is not None:
                await reached.take(index, view, judge.figures)
            if progress is not None:
                progress(manager, session, requests)

    try:
        await replay(
            Transcript(session.id, session.set, messages),
            timed,
            on_request,
            token_budget=course.budget,
            provider=provider,
            closing=False,
        )
        if isinstance(judge, FullJudge):
            judge.figures.times = timed.times[:]
            await _ask(judge.figures, course, timed, opened.context, scale)
    finally:
        await opened.close()
    return judge.figures


async def _ask(figures: Figures, course: Course, context: _Timed, bare: object, scale: TokenScale) -> None:
    """The questions at the end of a session."""
    if not course.session.questions:
        return
    view = await context.get_messages_for_request(token_budget=course.budget)
    text = folded("\n".join(scale.text(message) for message in view))
    for question in course.session.questions:
        evidence, answer = in_view(question, text)
        figures.evidence += Share(evidence, 1)
        figures.answers += Share(answer, 1)
        found = await in_search(question, course.session, bare, scale)
        if found is not None:
            figures.search += Share(found, 1)


async def _memory(course: Course, manager: Manager, scale: TokenScale) -> int:
    async def work() -> None:
        opened = await manager.open(scale, course.budget)
        transcript = Transcript(course.session.id, course.session.set, course.recording.messages)
        await replay(transcript, opened.context, token_budget=course.budget, closing=False)
        await opened.close()

    return await peak_memory(work)


class _Timed:
    """A context whose requests are timed."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.times: list[float] = []

    async def add_message(self, message: Message) -> None:
        await self._context.add_message(message)

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        started = time.perf_counter()
        view: list[Message] = await self._context.get_messages_for_request(token_budget=token_budget, provider=provider)
        self.times.append(time.perf_counter() - started)
        return view
