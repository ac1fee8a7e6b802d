"""Strategies on what tools returned: the bulk of every agent's session, and the part least missed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from ...messages.parsing import Message, arguments_text, block_answers, calls_of, text_of
from ...messages.tokens import TokenCounter
from ...rendering.renderer import RenderedMessage
from ...rendering.summaries import ResultSummaries
from ...rendering.truncate import clip_text
from ...transcript.entry import Entry
from ..checkpoint import Draft, Segment, State
from ..states import writes_only_states, written_states
from .base import Goal, Strategy, at_least

_CLEARED = "[output cleared, "
_SUPERSEDED = "[superseded: "
_REPLACED = (_CLEARED, _SUPERSEDED)  # texts that replaced an output already

Shorten = Callable[[str, Entry | None, str], str]  # (text, the entry that it is of, call id) -> text


def output_texts(message: Message) -> Iterator[tuple[str, str]]:
    """Return the call id and text of each tool output in a message."""
    if message.get("role") == "tool" and message.get("tool_call_id"):
        yield str(message.get("tool_call_id") or ""), text_of(message.get("content"))
        return
    content = message.get("content")
    for block in cast("list[dict[str, Any]]", content) if isinstance(content, list) else []:
        if block.get("type") == "tool_result":
            yield block_answers(block), text_of(block.get("output", block.get("content")))


def with_outputs(message: Message, shorten: Callable[[str, str], str]) -> Message:
    """Return the message with `shorten(text, call id)` applied to each tool output; the same object if none changed."""
    if message.get("role") == "tool" and message.get("tool_call_id"):
        text = text_of(message.get("content"))
        short = shorten(text, str(message.get("tool_call_id") or ""))
        return message if short == text else {**message, "content": short}
    content = message.get("content")
    if not isinstance(content, list):
        return message
    changed = False
    blocks: list[dict[str, Any]] = []
    for block in cast("list[dict[str, Any]]", content):
        if block.get("type") == "tool_result":
            key = "output" if "output" in block else "content"
            text = text_of(block.get(key))
            short = shorten(text, block_answers(block))
            if short != text:
                block, changed = {**block, key: short}, True
        blocks.append(block)
    return {**message, "content": blocks} if changed else message


def shorten_outputs(segment: Segment, counter: TokenCounter, state: State, rule: str, shorten: Shorten) -> Segment:
    """Return the segment with its tool outputs shortened; the same object when that changes or saves nothing."""
    entries = {entry.seq: entry for entry in segment.round.entries} if segment.round else {}
    shown: list[RenderedMessage] = []
    changed = False
    for rendered in segment.shown:
        entry = entries.get(rendered.seq)
        stored = rendered.stored_call_id

        def shortened(text: str, call: str, entry: Entry | None = entry, stored: str = stored) -> str:
            return shorten(text, entry, stored or call)

        message = with_outputs(rendered.message, shortened)
        if message is not rendered.message:
            shorter = rendered.with_message(message, counter)
            if shorter.tokens <= rendered.tokens:
                rendered, changed = shorter, True
        shown.append(rendered)
    return segment.rendered_as(shown, state, rule) if changed else segment


def holds_outputs(segment: Segment) -> bool:
    """True for a tool round that still shows output of its tools."""
    return segment.round is not None and any(True for shown in segment.shown for _ in output_texts(shown.message))


class _OutputStrategy(Strategy):
    """Goes over tool rounds oldest first, sparing the newest, until the goal is met."""

    state: ClassVar[State] = "clipped"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        spared = self._spared(draft.segments, goal)
        segments = list(draft.segments)
        tokens = draft.tokens

        summaries = ResultSummaries(goal.summaries)

        def shorten(text: str, entry: Entry | None, call: str) -> str:
            return self.shorten(text, entry, summaries.of(entry, call) if entry else None)

        for index, segment in enumerate(segments):
            if tokens <= goal.target:
                break
            if index in spared or not goal.may_touch(segment) or not holds_outputs(segment):
                continue
            shorter = shorten_outputs(segment, goal.counter, self.state, self.name, shorten)
            tokens += shorter.tokens - segment.tokens
            segments[index] = shorter
        return draft.with_segments(segments)

    def shorten(self, text: str, entry: Entry | None, summary: str | None) -> str:
        """Return what is shown of an output; `entry` holds it, `summary` is its short form."""
        return text

    def _spared(self, segments: Sequence[Segment], goal: Goal) -> set[int]:
        keep = self.kept(goal)
        rounds = [index for index, segment in enumerate(segments) if holds_outputs(segment)]
        return set(rounds[len(rounds) - keep :]) if keep else set()

    def kept(self, goal: Goal) -> int:
        """Return how many of the newest tool rounds are spared."""
        return goal.protected_results


class ClipToolOutputs(_OutputStrategy):
    """Clip older tool outputs to `max_chars` of head and tail, or show the short form that a tool gave.

    Args:
        max_chars: characters an output keeps.
    """

    name: ClassVar[str] = "clip"

    def __init__(self, max_chars: int = 250) -> None:
        self.max_chars = at_least(1, max_chars, "max_chars")

    def shorten(self, text: str, entry: Entry | None, summary: str | None) -> str:
        if summary is not None and len(summary) < len(text):
            return clip_text(summary, self.max_chars, entry.mark if entry else None)
        return clip_text(text, self.max_chars, entry.mark if entry else None)


class ClearToolOutputs(_OutputStrategy):
    """Replace older tool outputs by a line that says where they are.

    Args:
        keep_last: newest tool rounds whose outputs stay; None leaves that to the goal (``protected_tool_results``).
    """

    name: ClassVar[str] = "clear"
    state: ClassVar[State] = "cleared"

    def __init__(self, keep_last: int | None = None) -> None:
        self.keep_last = None if keep_last is None else at_least(0, keep_last, "keep_last")

    def kept(self, goal: Goal) -> int:
        return goal.protected_results if self.keep_last is None else self.keep_last

    def shorten(self, text: str, entry: Entry | None, summary: str | None) -> str:
        if summary is not None:
            return summary if len(summary) < len(text) else text
        if not text or text.startswith(_REPLACED):
            return text
        return f"{_CLEARED}{len(text):,} characters{f': {entry.mark}' if entry else ''}]"


class TruncateToolOutputs(Strategy):
    """Clip every tool output longer than `max_chars`, at any age, whether or not the goal is met.

    Idempotent. Pinned rounds and the round of the task stay as they are.

    Args:
        max_chars: characters, at least 1.
    """

    name: ClassVar[str] = "truncate"

    def __init__(self, max_chars: int) -> None:
        self.max_chars = at_least(1, max_chars, "max_chars")

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        def shorten(text: str, entry: Entry | None, call: str) -> str:
            return clip_text(text, self.max_chars, entry.mark if entry else None)

        segments = [
            segment
            if segment.protected_because in ("pinned", "task")
            else shorten_outputs(segment, goal.counter, "clipped", self.name, shorten)
            for segment in draft.segments
        ]
        return draft.with_segments(segments)


class SupersedeStaleReads(Strategy):
    """Keep only the latest result of a call that was made again, and the newest version of each state.

    The older result is stale, and so is an older version of a todo list or plan. A round that only wrote such a version
    is left out; of a round that holds more, its output is replaced.
    """

    name: ClassVar[str] = "supersede"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        found = _Stale.of(draft.segments, goal.state_tools)
        segments: list[Segment | None] = list(draft.segments)
        tokens = draft.tokens
        for index in sorted(found.versions):
            segment = draft.segments[index]
            if tokens <= goal.target:
                break
            if goal.may_touch(segment):
                segments[index] = None
                tokens -= segment.tokens
        for index in sorted({index for index, _ in found.results}):
            segment = segments[index]
            if tokens <= goal.target:
                break
            if segment is None or not goal.may_touch(segment):
                continue

            def shorten(text: str, entry: Entry | None, call: str, index: int = index) -> str:
                later = found.results.get((index, call))
                return f"{_SUPERSEDED}{later}]" if later and text else text

            shorter = shorten_outputs(segment, goal.counter, "superseded", self.name, shorten)
            segments[index] = shorter
            tokens += shorter.tokens - segment.tokens
        return draft.with_segments(segment for segment in segments if segment is not None)


@dataclass(slots=True)
class _Stale:
    """What of a draft a later call replaces.

    Attributes:
        results: by index of the segment and id of the call, why its result is stale.
        versions: indices of segments that hold nothing but older versions of states.
    """

    results: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    versions: set[int] = field(default_factory=set[int])

    @classmethod
    def of(cls, segments: Sequence[Segment], tools: Collection[str] | None) -> _Stale:
        """Return what is stale in the segments of a draft."""
        stale = cls()
        calls: dict[str, tuple[int, str]] = {}  # call -> index and mark of the latest segment that made it
        states: dict[str, str] = {}  # key of a state -> mark of the newest segment that wrote it
        for index in range(len(segments) - 1, -1, -1):
            round_ = segments[index].round
            if round_ is None or not round_.is_tool_round or round_.unanswered:
                continue
            written = written_states(round_, tools)
            newer = [(call, states[key]) for call, key in written if key in states]
            stale.results |= {(index, call.id): f"it was written again at {mark}" for call, mark in newer}
            if len(newer) == len(written) and writes_only_states(round_, tools):
                stale.versions.add(index)
            states = {key: segments[index].mark for _, key in written if key} | states
            for entry in round_.entries:
                for call in calls_of(entry.message):
                    key = f"{call.name}\0{arguments_text(call)}"
                    later, mark = calls.setdefault(key, (index, entry.mark))
                    if later != index:
                        stale.results[index, call.id] = f"the same call was made again at {mark}"
        return stale
