"""Running the lab: every session through every manager, request by request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_context_core import kin

from ..replay import Transcript, replay
from ..shapes import SYSTEM_ROLES, Message
from .cost import Ledger
from .evidence import in_search, in_view
from .figures import Figures
from .managers import Manager
from .recall import References, Seer, Target
from .scale import Scale
from .sessions import Session, folded
from .timing import peak_memory
from .validity import Faults, holds_human, newest_human

OnProgress = Callable[[Manager, Session, int], None]
"""Called as a manager has answered so many requests of a session."""

_EXAMPLES = 3  # violations kept of one session


@dataclass(frozen=True, slots=True)
class Size:
    """How large a budget is.

    Attributes:
        budget: tokens; goes before a fraction.
        fraction: else this share of each session's conversation, and its system prompt besides, which nobody can cut.
        whole: the share is of all of the session, system prompt included. Long prompts leave little room then.
    """

    budget: int | None = None
    fraction: float = 0.25
    whole: bool = False

    def of(self, tokens: int, system: int = 0) -> int:
        """The budget for a session of so many tokens, so many of them in system messages."""
        if self.budget is not None:
            return self.budget
        beside = 0 if self.whole else system
        return max(1, beside + int((tokens - beside) * self.fraction))


@dataclass(frozen=True, slots=True)
class Miss:
    """An identifier that was needed and not in the view."""

    session: str
    index: int
    target: Target


@dataclass(slots=True)
class Row:
    """A manager and its figures, all together and by session."""

    manager: Manager
    figures: Figures
    by_session: dict[str, Figures] = field(default_factory=dict[str, Figures])
    misses: list[Miss] = field(default_factory=list[Miss])


@dataclass(slots=True)
class Report:
    """What the lab found.

    Attributes:
        size: the budget.
        rows: a manager each, in the order given.
        sessions: that were replayed.
        skipped: sessions, managers and peers left out, with the reason.
    """

    size: Size
    rows: list[Row]
    sessions: list[Session]
    skipped: list[str] = field(default_factory=list[str])

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "budget": self.size.budget,
            "fraction": None if self.size.budget is not None else self.size.fraction,
            "whole": self.size.whole,
            "sessions": [
                {"id": s.id, "set": s.set, "messages": len(s.messages), "part": s.part} for s in self.sessions
            ],
            "skipped": self.skipped,
            "managers": [
                {
                    "name": row.manager.label,
                    "kind": row.manager.kind,
                    "note": row.manager.note,
                    **row.figures.as_json(),
                    "by_session": {name: figures.as_json() for name, figures in row.by_session.items()},
                }
                for row in self.rows
            ],
        }


class Course:
    """One session with all that can be known before a manager runs it.

    Attributes:
        session: the recording.
        budget: tokens.
        system: tokens of the system prompt and of other system messages.
        before: tokens of the history before each message, and of all of it at the end.
        faults: tells what is wrong with a request.
        targets: what to look for, by index of the message that says it again; only where the history outgrew it.
    """

    def __init__(self, session: Session, size: Size, scale: Scale) -> None:
        self.session = session
        tokens = [scale.tokens(message) for message in session.messages]
        self.system = sum(
            weight
            for weight, message in zip(tokens, session.messages, strict=True)
            if message.get("role") in SYSTEM_ROLES
        )
        self.budget = size.of(sum(tokens), self.system)
        self.before = [0]
        for weight in tokens:
            self.before.append(self.before[-1] + weight)
        self.faults = Faults(session.messages)
        self.requests = frozenset(_requests(session.messages))
        said = References(session.messages, tokens).targets(self.budget)
        self.targets: dict[int, list[Target]] = {
            index: targets for index, targets in said.items() if index in self.requests and self.outgrown(index)
        }
        self.probes = {
            index: [probe for probe in session.probes if probe.used_at == index]
            for index in {probe.used_at for probe in session.probes}
            if index in self.requests and self.outgrown(index)
        }

    def outgrown(self, index: int) -> bool:
        """Is the full history before this message larger than the budget?"""
        return self.before[index] > self.budget


async def measure(
    sessions: Sequence[Session],
    managers: Sequence[Manager],
    size: Size,
    *,
    scale: Scale | None = None,
    progress: OnProgress | None = None,
    memory: bool = False,
    misses: bool = False,
) -> Report:
    """Replay sessions through managers.

    Args:
        sessions: to replay; those whose budget does not even hold the system prompt are skipped, for everybody.
        managers: to replay through, each opened anew for each session.
        size: the budget.
        scale: to weigh with; exact when not given.
        progress: told of each request.
        memory: measure memory too, on the largest session, in a replay of its own.
        misses: keep what was missed.
    """
    scale = scale or Scale()
    courses = [Course(session, size, scale) for session in sessions]
    skipped = [
        f"{course.session.id}: its system prompt has {course.system:,} tokens, the budget {course.budget:,}"
        for course in courses
        if course.budget <= course.system
    ]
    courses = [course for course in courses if course.budget > course.system]
    rows: list[Row] = []
    for manager in managers:
        row = Row(manager, Figures())
        for course in courses:
            row.by_session[course.session.id] = await _run(course, manager, scale, progress, row if misses else None)
        row.figures = Figures.sum(row.by_session.values())
        if memory and courses:
            largest = max(courses, key=lambda course: course.before[-1])
            row.figures.memory = await _memory(largest, manager, scale)
        rows.append(row)
    return Report(size, rows, [course.session for course in courses], skipped)


async def _run(
    course: Course, manager: Manager, scale: Scale, progress: OnProgress | None, kept: Row | None
) -> Figures:
    """One session through one manager."""
    session, messages = course.session, course.session.messages
    figures = Figures(sessions=1)
    ledger, seer = Ledger(scale), Seer(scale)
    known = 0  # messages the seer has learnt
    unlimited = 0
    kin.forget()  # sessions of one process find each other's checkpoints; here each starts from nothing
    opened = await manager.open(scale, course.budget)
    timed = _Timed(opened.context)

    def judge(index: int, view: list[Message]) -> None:
        nonlocal known, unlimited
        for message in messages[known:index]:
            seer.learn(message)
        known = index
        figures.requests += 1
        _judge_validity(figures, course, index, view)
        bill = ledger.bill(view)
        figures.cached += bill.cached
        figures.fresh += bill.tokens - bill.cached
        figures.block_cached += bill.block_cached
        figures.breaks += bill.broken
        figures.over += bill.tokens > course.budget
        figures.unlimited_cached += unlimited
        figures.unlimited_fresh += course.before[index] - unlimited
        unlimited = course.before[index]
        sight = seer.sight(view)
        figures.chapters += sight.chapter_tokens
        if not course.outgrown(index):
            return
        figures.outgrown += 1
        for target in course.targets.get(index, ()):
            held = sight.holds(target.name)
            located = held and sight.locates(target.name, target.origins)
            figures.targets += 1
            figures.hits += held
            figures.located += located
            if target.far:
                figures.far_targets += 1
                figures.far_hits += held
                figures.far_located += located
            if not held and kept is not None:
                kept.misses.append(Miss(session.id, index, target))
        for probe in course.probes.get(index, ()):
            figures.probes += 1
            figures.probes_found += sight.holds(probe.needle)

    def on_request(index: int, view: list[Message]) -> None:
        if index < len(messages):  # after the last message there is no recorded answer to judge by
            judge(index, view)
            if progress is not None:
                progress(manager, session, figures.requests)

    try:
        await replay(
            Transcript(session.id, session.set, messages), timed, on_request, token_budget=course.budget, closing=False
        )
        figures.times = timed.times[:]
        await _ask(figures, course, timed, opened.context, scale)
    finally:
        await opened.close()
    return figures


def _judge_validity(figures: Figures, course: Course, index: int, view: list[Message]) -> None:
    history = course.session.messages[:index]
    broken, added = course.faults.of(view, index)
    human = newest_human(history)
    lost = human is not None and not holds_human(view, human)
    figures.invalid += bool(broken) or lost
    figures.faulty += bool(added) or lost
    figures.empty += not view
    figures.human_lost += lost
    prompt = next((message for message in history[:1] if message.get("role") in SYSTEM_ROLES), None)
    figures.prompt_lost += prompt is not None and all(message.get("content") != prompt["content"] for message in view)
    told = [*added, *(["the newest human message is lost"] if lost else [])]
    room = _EXAMPLES - len(figures.examples)
    figures.examples += [f"{course.session.id} before message {index}: {sentence}" for sentence in told[: max(0, room)]]


async def _ask(figures: Figures, course: Course, context: _Timed, bare: object, scale: Scale) -> None:
    """The questions at the end of a session."""
    if not course.session.questions:
        return
    view = await context.get_messages_for_request(token_budget=course.budget)
    text = folded("\n".join(scale.text(message) for message in view))
    for question in course.session.questions:
        evidence, answer = in_view(question, text)
        figures.questions += 1
        figures.evidence += evidence
        figures.answers += answer
        found = await in_search(question, course.session, bare, scale)
        if found is not None:
            figures.searched += 1
            figures.search_found += found


async def _memory(course: Course, manager: Manager, scale: Scale) -> int:
    async def work() -> None:
        opened = await manager.open(scale, course.budget)
        transcript = Transcript(course.session.id, course.session.set, course.session.messages)
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
        view: list[Message] = await self._context.get_messages_for_request(token_budget=token_budget)
        self.times.append(time.perf_counter() - started)
        return view


def _requests(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where a view is asked for: before each assistant message that is not the first of the conversation."""
    begun = False
    found: list[int] = []
    for index, message in enumerate(messages):
        if begun and message.get("role") == "assistant":
            found.append(index)
        begun = begun or message.get("role") not in SYSTEM_ROLES
    return found
