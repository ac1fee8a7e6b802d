"""Strategies on what tools returned: the bulk of every agent's session, and the part least missed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from ...messages.parsing import Message, arguments_text, block_answers, blocks_of, calls_of, results_of, text_of
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


def with_outputs(message: Message, shorten: Callable[[str, str], str]) -> Message:
    """Return the message with `shorten(text, call id)` applied to each tool output; the same object if none changed."""

    def shortened(part: dict[str, Any], key: str, call: str) -> dict[str, Any]:
        text = text_of(part.get(key))
        short = shorten(text, call)
        return part if short == text else {**part, key: short}

    if message.get("role") == "tool" and message.get("tool_call_id"):
        return shortened(message, "content", str(message["tool_call_id"]))
    old = blocks_of(message)
    new = [
        shortened(block, "output" if "output" in block else "content", block_answers(block))
        if block.get("type") == "tool_result"
        else block
        for block in old
    ]
    return message if all(map(operator.is_, old, new)) else {**message, "content": new}


def shorten_outputs(segment: Segment, counter: TokenCounter, state: State, rule: str, shorten: Shorten) -> Segment:
    """Return the same object when that changes or saves nothing."""
    entries = {entry.seq: entry for entry in segment.round.entries} if segment.round else {}

    def shorter(one: RenderedMessage) -> RenderedMessage:
        message = with_outputs(
            one.message, lambda text, call: shorten(text, entries.get(one.seq), one.stored_call_id or call)
        )
        if message is one.message:
            return one
        made = one.with_message(message, counter)
        return made if made.tokens <= one.tokens else one

    shown = [shorter(one) for one in segment.shown]
    same = all(map(operator.is_, shown, segment.shown))
    return segment if same else segment.rendered_as(shown, state, rule)


def holds_outputs(segment: Segment) -> bool:
    return segment.round is not None and any(True for shown in segment.shown for _ in results_of(shown.message))


class _OutputStrategy(Strategy):
    """Goes over tool rounds oldest first, sparing the newest, until the goal is met."""

    state: ClassVar[State] = "clipped"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        segments, tokens = list(draft.segments), draft.tokens
        rounds = [index for index, segment in enumerate(segments) if holds_outputs(segment)]
        summaries = ResultSummaries(goal.summaries)

        def shorten(text: str, entry: Entry | None, call: str) -> str:
            return self.shorten(text, entry, summaries.of(entry, call) if entry else None)

        for index in rounds[: max(0, len(rounds) - self.kept(goal))]:
            segment = segments[index]
            if tokens <= goal.target:
                break
            if goal.may_touch(segment):
                segments[index] = shorten_outputs(segment, goal.counter, self.state, self.name, shorten)
                tokens += segments[index].tokens - segment.tokens
        return draft.with_segments(segments)

    def shorten(self, text: str, entry: Entry | None, summary: str | None) -> str:
        """Return what is shown of an output; `entry` holds it, `summary` is its short form."""
        return text

    def kept(self, goal: Goal) -> int:
        """Return how many of the newest tool rounds are spared."""
        return goal.protected_results


class ClipToolOutputs(_OutputStrategy):
    """Clip older tool outputs to `max_chars` of head and tail, or show the short form that a tool gave."""

    name: ClassVar[str] = "clip"

    def __init__(self, max_chars: int = 250) -> None:
        self.max_chars = at_least(1, max_chars, "max_chars")

    def shorten(self, text: str, entry: Entry | None, summary: str | None) -> str:
        shown = summary if summary is not None and len(summary) < len(text) else text
        return clip_text(shown, self.max_chars, entry.mark if entry else None)


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
    """

    name: ClassVar[str] = "truncate"

    def __init__(self, max_chars: int) -> None:
        self.max_chars = at_least(1, max_chars, "max_chars")

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        def shorten(text: str, entry: Entry | None, call: str) -> str:
            return clip_text(text, self.max_chars, entry.mark if entry else None)

        return draft.with_segments(
            segment
            if segment.protected_because in ("pinned", "task")
            else shorten_outputs(segment, goal.counter, "clipped", self.name, shorten)
            for segment in draft.segments
        )


class SupersedeStaleReads(Strategy):
    """Keep only the latest result of a call that was made again, and the newest version of each state.

    The older result is stale, and so is an older version of a todo list or plan. A round that only wrote such a version
    is left out; of a round that holds more, its output is replaced.
    """

    name: ClassVar[str] = "supersede"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        results, versions = _stale(draft.segments, goal.state_tools)
        segments: list[Segment | None] = list(draft.segments)
        tokens = draft.tokens
        for index in (*sorted(versions), *sorted({index for index, _ in results})):
            segment = segments[index]
            if tokens <= goal.target:
                break
            if segment is None or not goal.may_touch(segment):
                continue

            def shorten(text: str, entry: Entry | None, call: str, index: int = index) -> str:
                later = results.get((index, call))
                return f"{_SUPERSEDED}{later}]" if later and text else text

            shorter = None
            if index not in versions:
                shorter = shorten_outputs(segment, goal.counter, "superseded", self.name, shorten)
            segments[index] = shorter
            tokens += (shorter.tokens if shorter else 0) - segment.tokens
        return draft.with_segments(segment for segment in segments if segment is not None)


def _stale(segments: Sequence[Segment], tools: Collection[str] | None) -> tuple[dict[tuple[int, str], str], set[int]]:
    """Return why results are stale, by index of the segment and id of the call, and which segments are of no more use.

    The latter, by index, hold nothing but older versions of states.
    """
    results: dict[tuple[int, str], str] = {}
    versions: set[int] = set()
    calls: dict[str, tuple[int, str]] = {}  # call -> index and mark of the latest segment that made it
    states: dict[str, str] = {}  # key of a state -> mark of the newest segment that wrote it
    for index in range(len(segments) - 1, -1, -1):
        round_ = segments[index].round
        if round_ is None or not round_.is_tool_round or round_.unanswered:
            continue
        written = written_states(round_, tools)
        newer = [(call, states[key]) for call, key in written if key in states]
        results |= {(index, call.id): f"it was written again at {mark}" for call, mark in newer}
        if len(newer) == len(written) and writes_only_states(round_, tools):
            versions.add(index)
        states = {key: segments[index].mark for _, key in written if key} | states
        for entry in round_.entries:
            for call in calls_of(entry.message):
                key = f"{call.name}\0{arguments_text(call)}"
                later, mark = calls.setdefault(key, (index, entry.mark))
                if later != index:
                    results[index, call.id] = f"the same call was made again at {mark}"
    return results, versions
