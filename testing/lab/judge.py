"""Judging the views of one session, request by request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..checks.message_shapes import SYSTEM_ROLES, Message
from .caches import Bill, caches
from .compactions import after, is_compacted
from .course import Course
from .figures import Figures
from .re_reads import ReReads
from .recall import RecallProbe, Sight, Target
from .request import Request
from .sentences import Kept
from .shares import Share
from .token_scale import TokenScale
from .validity import holds_human, newest_human

_EXAMPLES = 3  # violations kept of one session


class Judge(Protocol):
    """What takes the views of a session and has figures at the end."""

    figures: Figures

    def take(self, index: int, view: Sequence[Message]) -> None:
        """Judge the view for the message at this index; all before it are in."""
        ...


@dataclass(frozen=True, slots=True)
class Miss:
    """An identifier that was needed and not in the view."""

    session: str
    index: int
    target: Target


@dataclass(slots=True)
class Misses:
    """What was missed, for looking into it.

    Attributes:
        names: identifiers, at each request.
        sentences: sentences that are not in the last view, by session and kind.
    """

    names: list[Miss] = field(default_factory=list[Miss])
    sentences: dict[str, dict[str, list[str]]] = field(default_factory=dict[str, dict[str, list[str]]])

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        names = [
            {"session": m.session, "index": m.index, "name": m.target.name, "last": m.target.last, "far": m.target.far}
            for m in self.names
        ]
        return {"names": names, "sentences": self.sentences}


class FullJudge:
    """All that is measured of a recorded session.

    Args:
        course: the session at its budget.
        scale: to weigh with.
        misses: where to keep what was missed, if anywhere.
    """

    def __init__(self, course: Course, scale: TokenScale, misses: Misses | None = None) -> None:
        self.figures = Figures(sessions=1, unlimited=course.recording.unlimited)
        self._course = course
        self._scale = scale
        self._misses = misses
        self._caches = caches()
        self._bills = dict.fromkeys(self._caches, Bill())
        self._probe = RecallProbe(scale)
        self._re_reads = ReReads(course.recording.reads)
        self._learnt = 0  # messages the probe knows
        self._before: Request | None = None

    def take(self, index: int, view: Sequence[Message]) -> None:
        """Judge the view for the message at this index."""
        figures, course = self.figures, self._course
        for message in course.session.messages[self._learnt : index]:
            self._probe.learn(message)
        self._learnt = index
        request = Request.of(view, self._scale)
        sight = self._probe.sight(request)
        figures.requests += 1
        figures.over += request.offsets[-1] > course.budget
        figures.chapters += sight.chapter_tokens
        self._judge_validity(index, view)
        if is_compacted(self._before, request):
            history = course.session.messages[:index]
            figures.compactions.append(after(history, request, sight.chapters, course.budget, self._scale))
        figures.re_reads += self._re_reads.take(index, request)
        self._judge_cost(index, request)
        self._judge_sentences(index, request)
        if course.outgrown(index):
            figures.outgrown += 1
            self._judge_names(index, sight)
            self._judge_words(index, request)
            self._judge_working_memory(index, request)

    def _judge_validity(self, index: int, view: Sequence[Message]) -> None:
        figures, session = self.figures, self._course.session
        history = session.messages[:index]
        broken, added = self._course.recording.faults.of(view, index)
        human = newest_human(history)
        lost = human is not None and not holds_human(view, human)
        figures.invalid += bool(broken) or lost
        figures.faulty += bool(added) or lost
        figures.empty += not view
        figures.human_lost += lost
        prompt = next((message for message in history[:1] if message.get("role") in SYSTEM_ROLES), None)
        figures.prompt_lost += prompt is not None and all(m.get("content") != prompt["content"] for m in view)
        violations = [*added, *(["the newest human message is lost"] if lost else [])]
        room = max(0, _EXAMPLES - len(figures.examples))
        figures.examples += [f"{session.id} before message {index}: {sentence}" for sentence in violations[:room]]

    def _judge_cost(self, index: int, request: Request) -> None:
        at = self._course.recording.time_of(index)
        for name, cache in self._caches.items():
            self._bills[name] += cache.bill(request, at)
        self.figures.bills = self._bills
        self.figures.breaks += self._before is not None and not request.grew_from(self._before)
        self._before = request

    def _judge_sentences(self, index: int, request: Request) -> None:
        sentences = self._course.recording.sentences
        held, written = sentences.in_view(request), sentences.before[index]
        kept = written.kept_in(held)
        self.figures.all += kept
        self.figures.last = kept  # until another view comes
        if self._misses is not None:
            missing = written.missing_in(held)
            self._misses.sentences[self._course.session.id] = {kind: sentences.of(b) for kind, b in missing.items()}

    def _judge_names(self, index: int, sight: Sight) -> None:
        figures = self.figures
        for target in self._course.targets[index]:
            held = sight.holds(target.name)
            located = held and sight.locates(target.name, target.origins)
            figures.recall += Share(held, 1)
            figures.spelled += Share(sight.spells(target.name), 1)
            figures.located += Share(located, 1)
            if target.far:
                figures.far += Share(held, 1)
                figures.far_spelled += Share(sight.spells(target.name), 1)
                figures.far_located += Share(located, 1)
            if not held and self._misses is not None:
                self._misses.names.append(Miss(self._course.session.id, index, target))
        for probe in self._course.probes[index]:
            figures.probes += Share(sight.holds(probe.needle), 1)

    def _judge_words(self, index: int, request: Request) -> None:
        wanted = self._course.words[index]
        held = self._course.recording.words.in_view(request)
        self.figures.words += Share.of_bits(wanted.words, held)
        self.figures.far_words += Share.of_bits(wanted.far, held)

    def _judge_working_memory(self, index: int, request: Request) -> None:
        lines, edits, price = self._course.recording.working_memory.kept(index, request)
        self.figures.lines += lines
        self.figures.edits += edits
        self.figures.re_reading += price


class BillJudge:
    """Only what requests cost under some caches.

    Args:
        course: the session at its budget.
        scale: to weigh with.
        names: of the caches.
    """

    def __init__(self, course: Course, scale: TokenScale, names: Collection[str]) -> None:
        self._recording = course.recording
        self._scale = scale
        self._caches = {name: cache for name, cache in caches().items() if name in names}
        self._bills = dict.fromkeys(self._caches, Bill())
        self.figures = Figures(bills=self._bills)

    def take(self, index: int, view: Sequence[Message]) -> None:
        """Judge the view for the message at this index."""
        request = Request.of(view, self._scale)
        for name, cache in self._caches.items():
            self._bills[name] += cache.bill(request, self._recording.time_of(index))


class PlantedJudge:
    """Only the rules planted into a recording.

    Args:
        course: the recording with its rules, at its budget.
        scale: to weigh with.
    """

    def __init__(self, course: Course, scale: TokenScale) -> None:
        self.figures = Figures()
        self._sentences = course.recording.sentences
        self._scale = scale

    def take(self, index: int, view: Sequence[Message]) -> None:
        """Judge the view for the message at this index."""
        held = self._sentences.in_view(Request.of(view, self._scale))
        kept = Share.of_bits(self._sentences.before[index].planted, held)
        self.figures.all += Kept(planted=kept)
        self.figures.last = Kept(planted=kept)
