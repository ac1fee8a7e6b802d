"""Judging the views of one session, request by request."""

from __future__ import annotations

from collections.abc import Sequence

from amplifier_context_testing.caches import Bill, caches
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message

from .compactions import after, is_compacted
from .course import Course
from .figures import Figures
from .recall import RecallProbe, Sight
from .shares import Share
from .validity import holds_human, newest_human

_EXAMPLES = 3  # violations kept of one session


class Judge:
    def __init__(self, course: Course, scale: TokenScale) -> None:
        self.figures = Figures(sessions=1, unlimited=course.recording.unlimited)
        self._scale = scale
        self._caches = caches()
        self._bills = dict.fromkeys(self._caches, Bill())
        self.figures.bills = self._bills
        self._course = course
        self._probe = RecallProbe(scale)
        self._learnt = 0  # messages the probe knows
        self._before: Request | None = None

    def take(self, index: int, view: Sequence[Message]) -> None:
        """Judge the view for the message at this index; all before it are in."""
        figures, course, messages = self.figures, self._course, self._course.session.messages
        for message in messages[self._learnt : index]:
            self._probe.learn(message)
        self._learnt = index
        request = Request.of(view, self._scale)
        sight = self._probe.sight(request)
        figures.requests += 1
        figures.over += request.offsets[-1] > course.budget
        figures.chapters += sight.chapter_tokens
        self._judge_validity(index, view)
        if is_compacted(self._before, request):
            figures.compactions.append(after(messages[:index], request, sight.chapters, course.budget, self._scale))
        for name, cache in self._caches.items():
            self._bills[name] += cache.bill(request, 0.0)
        figures.breaks += self._before is not None and not request.grew_from(self._before)
        self._before = request
        sentences = course.recording.sentences
        figures.last = sentences.before[index].kept_in(sentences.in_view(request))  # until another view comes
        figures.all += figures.last
        if course.outgrown(index):
            figures.outgrown += 1
            self._judge_memory(index, request, sight)

    def _judge_validity(self, index: int, view: Sequence[Message]) -> None:
        figures, session = self.figures, self._course.session
        broken, added = self._course.recording.faults.of(view, index)
        human = newest_human([one for at, one in enumerate(session.messages[:index]) if at not in session.host])
        lost = human is not None and not holds_human(view, human)
        figures.invalid += bool(broken) or lost
        figures.faulty += bool(added) or lost
        figures.empty += not view
        figures.human_lost += lost
        violations = [*added, *(["the newest human message is lost"] if lost else [])]
        room = max(0, _EXAMPLES - len(figures.examples))
        figures.examples += [f"{session.id} before message {index}: {sentence}" for sentence in violations[:room]]

    def _judge_memory(self, index: int, request: Request, sight: Sight) -> None:
        figures, recording = self.figures, self._course.recording
        for target in self._course.targets[index]:
            held = sight.holds(target.name)
            located = held and sight.locates(target.name, target.origins)
            figures.recall += Share(held, 1)
            figures.located += Share(located, 1)
            if target.far:
                figures.far += Share(held, 1)
                figures.far_located += Share(located, 1)
        (words, far), seen = self._course.words[index], recording.words.in_view(request)
        figures.words += Share.of_bits(words, seen)
        figures.far_words += Share.of_bits(far, seen)
        lines, edits, price = recording.working_memory.kept(index, request)
        figures.lines += lines
        figures.edits += edits
        figures.re_reading += price
