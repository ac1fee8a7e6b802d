"""Summaries as recorded: what a view holds after a boundary at which a host once compacted with a model's summary.

A recording of Claude Code has `meta.compact_boundaries` and, at `compact_summary_indices`, the summary that the model
wrote. Here that message is left out of the history. At each boundary `context.compact()` is called, and the recorded
text is what the model answers. The next fifty requests are judged by what the agent needed of what lies before the
boundary, beside the digest's chapter of the same range and beside the recorded summary as Claude Code used it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from amplifier_context_core.view import shared_cache

from ..checks.message_shapes import Message, as_list
from ..replay.answer_policies import Answer
from ..replay.transcripts import read_transcripts
from ..summaries.asked import asked
from ..summaries.extractive import extractive_answer
from .course import Recording, requests_of
from .managers import mount_of
from .paced import UNLIMITED, LabWriter, open_paced
from .recall import RecallProbe
from .request import Request
from .sentences import NONE_KEPT, Kept
from .sessions import HOST, Session
from .shares import NOTHING, Share
from .token_scale import TokenScale

JUDGED = 50  # requests after a boundary
BUDGET = 200_000  # tokens: the window that these sessions had
# The digest and a summary fold the same range: nearly everything, as Claude Code did. Nothing is compacted in between.
CONFIG: Mapping[str, Any] = {"target_usage": 0.1, "compact_threshold": 1.0, "cadence": "fixed", "safety_margin": 0}
# Nothing is summarised ahead, and the money is not looked at: a session here has few requests before its boundary.
BY_HAND: Mapping[str, Any] = {**UNLIMITED, "summarize_at": 1.0, "summary_spend": 1_000.0}
WHOLE: Mapping[str, Any] = {
    **BY_HAND,
    "summary_input": 900_000,
}  # the recorded summary is of the whole range: one piece


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session with its boundaries; the summaries are not among its messages.

    Attributes:
        session: the recording.
        summaries: recorded texts, by the index of the message that comes after the boundary.
    """

    session: Session
    summaries: Mapping[int, str]


def recorded_sessions(paths: Sequence[Path]) -> list[Recorded]:
    """Return the sessions of files that have recorded summaries."""
    found: list[Recorded] = []
    for path in paths:
        for transcript in read_transcripts(path):
            indices = [int(index) for index in as_list(transcript.meta.get("compact_summary_indices")) or ()]
            if not indices:
                continue
            kept = [index for index in range(len(transcript.messages)) if index not in indices]
            place = {index: new for new, index in enumerate(kept)}
            summaries = {
                next(place[later] for later in kept if later > index): str(transcript.messages[index]["content"])
                for index in indices
                if any(later > index for later in kept)
            }
            host = [int(index) for key in HOST for index in as_list(transcript.meta.get(key)) or ()]
            session = Session(
                transcript.id,
                path.name,
                [transcript.messages[index] for index in kept],
                host=frozenset(place[index] for index in host if index in place),
            )
            found.append(Recorded(session, summaries))
    return found


@dataclass(slots=True)
class Outcome:
    """What became of the boundaries, all together.

    Attributes:
        boundaries: compacted.
        requests: judged.
        names: identifiers of a request last mentioned before the boundary, and found in the view.
        words: plain words of the same kind.
        kept: sentences written before the boundary, in the view after it.
        chapter_tokens: of each boundary's chapters in the first view after it.
        view_tokens: of the first view after each boundary.
        calls: of the model, for each boundary.
        written: boundaries whose chapter is the model's.
        failures: reasons why summaries were not taken.
        waits: requests that waited for a summary.
    """

    boundaries: int = 0
    requests: int = 0
    names: Share = NOTHING
    words: Share = NOTHING
    kept: Kept = NONE_KEPT
    chapter_tokens: list[int] = field(default_factory=list[int])
    view_tokens: list[int] = field(default_factory=list[int])
    calls: list[int] = field(default_factory=list[int])
    written: int = 0
    failures: list[str] = field(default_factory=list[str])
    waits: int = 0

    def cells(self) -> list[str]:
        """Return the figures as text, in the order of `HEADS`."""

        def share(value: Share) -> str:
            return "–" if value.value is None else f"{value.value:.3f}"

        kept = self.kept
        return [
            f"{self.boundaries}",
            f"{self.requests}",
            share(self.names),
            share(self.words),
            share(kept.people),
            share(kept.rules),
            share(kept.agent),
            f"{median(self.chapter_tokens):,.0f}" if self.chapter_tokens else "–",
            f"{median(self.view_tokens):,.0f}" if self.view_tokens else "–",
            f"{self.written}",
            f"{median(self.calls):g} / {max(self.calls)}" if self.calls else "–",
            f"{self.waits}",
        ]


HEADS = (
    "boundaries",
    "requests",
    "identifiers",
    "words",
    "people",
    "rules",
    "agent",
    "chapter tokens",
    "view tokens",
    "by the model",
    "calls (median / max)",
    "waits",
)


class _Judged:
    """One session whose views after boundaries are judged."""

    def __init__(self, recorded: Recorded, scale: TokenScale, outcome: Outcome) -> None:
        self.outcome = outcome
        self._scale = scale
        self._recording = Recording(recorded.session, scale)
        self._probe = RecallProbe(scale)
        self.messages = recorded.session.messages
        self._boundary = 0
        self._targets: Mapping[int, Any] = {}
        self._wanted: Mapping[int, Any] = {}

    def begin(self, boundary: int) -> None:
        """A boundary lies before the message of this index: what was last mentioned before it is to be remembered."""
        self._boundary = boundary
        near = [boundary] * len(self.messages)
        self._targets = self._recording.references.targets(near)
        self._wanted = self._recording.words.wanted(near)
        self.outcome.boundaries += 1

    def learn(self, message: Message) -> None:
        """Note a message of the session."""
        self._probe.learn(message)

    def take(self, index: int, view: Sequence[Message], *, first: bool) -> None:
        """Judge the view of the request for the message of this index."""
        request = Request.of(view, self._scale)
        sight = self._probe.sight(request)
        outcome = self.outcome
        outcome.requests += 1
        for target in self._targets[index]:
            if target.far:
                outcome.names += Share(sight.holds(target.name), 1)
        outcome.words += Share.of_bits(self._wanted[index].far, self._recording.words.in_view(request))
        if first:
            outcome.chapter_tokens.append(sight.chapter_tokens)
            outcome.view_tokens.append(request.offsets[-1])
            held = self._recording.sentences.in_view(request)
            outcome.kept += self._recording.sentences.before[self._boundary].kept_in(held)


Model = Callable[[Any, str], "Answer | None"]
"""From a request for a summary and the recorded text to the answer."""


def as_recorded(request: Any, text: str) -> Answer | None:
    """Answer with the recorded summary; it says nothing but prose under headings."""
    return Answer.of(text) if asked(request) is not None else None


def extracting(request: Any, text: str) -> Answer | None:
    """Answer with an extracted patch."""
    return extractive_answer(request)


async def judged(
    sessions: Sequence[Recorded], module: str, model: Model | None, scale: TokenScale, config: Mapping[str, Any]
) -> Outcome:
    """Return what a manager's views hold after the boundaries.

    Args:
        sessions: with their recorded summaries.
        module: id of the manager.
        model: answers its requests for summaries; None for a manager that makes none.
        scale: to weigh with.
        config: of the manager, over `CONFIG`.
    """
    outcome = Outcome()
    for recorded in sessions:
        shared_cache.clear()
        texts = [""]  # recorded so far; the newest is the answer
        writer = LabWriter(scale, answer=partial(_answered, model, texts), late=0)
        opened = await open_paced(mount_of(module), {**CONFIG, "max_tokens": BUDGET, **config}, writer)
        context: Any = opened.context
        judge = _Judged(recorded, scale, outcome)
        requests = set(requests_of(judge.messages))
        left, first = 0, False
        for index, message in enumerate(judge.messages):
            if index in recorded.summaries:
                texts.append(recorded.summaries[index])
                await context.get_messages_for_request(BUDGET)
                before = len(writer.calls)
                report = await context.compact()
                outcome.calls += [len(writer.calls) - before] if model is not None else []
                outcome.written += report.get("author") == "summary"
                judge.begin(index)
                left, first = JUDGED, True
            if left and index in requests:
                judge.take(index, await context.get_messages_for_request(BUDGET), first=first)
                left, first = left - 1, False
            judge.learn(message)
            await context.add_message(message)
        outcome.failures += [data["reason"] for event, data in opened.events if event == "context:summary_failed"]
        outcome.waits += writer.waits
        await opened.close()
    return outcome


def _answered(model: Model | None, texts: list[str], request: Any) -> Answer | None:
    return None if model is None else model(request, texts[-1])


def as_used(sessions: Sequence[Recorded], scale: TokenScale) -> Outcome:
    """Return the same of the recorded summaries as Claude Code used them: the summary, then what came after it."""
    outcome = Outcome()
    for recorded in sessions:
        judge = _Judged(recorded, scale, outcome)
        requests = set(requests_of(judge.messages))
        view: list[Message] = []
        left, first = 0, False
        for index, message in enumerate(judge.messages):
            if index in recorded.summaries:
                system = [one for one in judge.messages[:1] if one.get("role") == "system"]
                view = [*system, {"role": "user", "content": recorded.summaries[index]}]
                judge.begin(index)
                outcome.written += 1
                left, first = JUDGED, True
            if left and index in requests:
                judge.take(index, view, first=first)
                left, first = left - 1, False
            judge.learn(message)
            view.append({**message, "content": "" if message.get("content") is None else message["content"]})
    return outcome
