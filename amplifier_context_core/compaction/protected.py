"""Protected segments: what no strategy may remove, found before any strategy runs.

- the task, also where a second message states it again, the newest human message with the command that it is the text
  of, the newest round, pins;
- rounds that carry loaded-tool state or a provider's own compaction, and rounds with a result from after the latter;
- the newest notice of each hook and of each source of reminders;
- the newest version of each tool state: a todo list, a plan, an approval.

If together they leave no room to work in, the largest are clipped, pins last: head and tail stay. So the request still
fits, and not every request compacts. The newest human message is not clipped where it fits beside the system prompt
(`most_human_tokens`).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..messages.media import MEDIA_BLOCKS
from ..messages.parsing import Message, arguments_of, is_signed, json_text, listed_call, metadata_of, text_of
from ..messages.reminders import is_command, is_native_context, lineages_of
from ..messages.tokens import TokenCounter
from ..rendering.quoting import clip_quoted
from ..rendering.renderer import RenderedMessage
from ..rendering.thinking import without_wire_content
from ..transcript.entry import Entry
from .checkpoint import Draft, Segment
from .states import states_of
from .strategies.base import task_of, with_protection

_TRIES = 6  # clippings until a message is small enough; each aims a little lower
_LEAST = 24  # tokens a clipped message keeps
_COMMAND = 300  # tokens of a command that stays with its text; a larger one would take the room to work in
# Reasons for which a segment stays as it is, as long as anything else can give.
VERBATIM = ("pinned", "asked for", "native context")
_FOLLOWING_SHARE = 1 / 8  # of the budget: left for what follows the newest human message
_SMALL = 60  # tokens below which a message is not clipped: the mark would cost nearly what it saves


@dataclass(frozen=True, slots=True)
class Protection:
    """What a compaction must keep besides what every compaction keeps."""

    pins: Collection[int] = ()  # seqs pinned by command (``metadata.pinned`` is seen beside them)
    pin_tokens: int = 0  # that all pins together may fill, the oldest first; pins beyond it are not protected
    required: Collection[int] = ()  # seqs that the caller of this request asked for; they stay whatever they cost
    later: Sequence[Segment] = ()  # segments of the view after those that are compacted: rounds that are still open
    human_tokens: int = 0  # the newest human message stays whole if it has at most so many tokens (`most_human_tokens`)


def most_human_tokens(capacity: int, system_tokens: int) -> int:
    """Return the tokens up to which the newest human message is shown whole: all but an eighth for what follows it."""
    return capacity - int(capacity * _FOLLOWING_SHARE) - system_tokens


def whole_human(segments: Iterable[Segment], most: int, *, later: Iterable[Segment] = ()) -> Entry | None:
    """Return the newest human message of segments; None if it exceeds `most` tokens or `later` shows a newer one."""
    shown = (entry for segment in segments if (entry := segment.human_entry) is not None)
    newest = max(shown, key=lambda entry: entry.turn, default=None)
    if newest is None or newest.tokens > most or any(segment.newest_human > newest.turn for segment in later):
        return None
    return newest


def mark_protected(
    segments: Sequence[Segment],
    protection: Protection,
    *,
    state_tokens: int = 0,
    state_tools: Collection[str] | None = None,
) -> tuple[list[Segment], list[str]]:
    """Return the segments, each with the reason why it must stay, and the marks of pins that had no room.

    Args:
        state_tokens: that the newest versions of all states may fill, the newest first.
        state_tools: tools whose calls write a state; None to recognize them.
    """
    later, turns = protection.later, [segment.newest_human for segment in segments]
    notices = newest_notices((*segments, *later))
    carriers = [one.first for one in (*segments, *later) if one.round is not None and one.round.is_native_context]
    # By index. A reason takes the place of the reasons before it.
    reasons = dict.fromkeys(_newest_states(segments, later, state_tokens, state_tools), "newest state")
    for index, segment in enumerate(segments):
        if segment.first in notices:
            reasons[index] = "newest notice of its hook"
        if segment.round is not None and segment.round.holds_loaded_tools:
            reasons[index] = "loaded tools"
        if segment.round is not None and segment.round.has_result_after(carriers):
            reasons[index] = "result after native context"
    if not later:
        reasons[len(segments) - 1] = "newest round"
    if any(turns):
        if not any(segment.is_human for segment in later):
            newest = max(range(len(turns)), key=lambda index: (turns[index], index))
            reasons |= dict.fromkeys(_with_command(segments, newest), "newest human message")
        reasons |= dict.fromkeys(task_of(segments), "task")
    wanted, refused = _wanted(segments, protection)
    reasons |= wanted
    marked = [
        with_protection(segment, reasons.get(index, "") if segment.round is not None else "")
        for index, segment in enumerate(segments)
    ]
    return marked, refused


def _with_command(segments: Sequence[Segment], newest: int) -> Iterator[int]:
    """Yield the index, and before it that of the command of the host whose text the message is."""
    before = segments[newest - 1].human_entry if newest else None
    if before is not None and before.tokens <= _COMMAND and is_command(text_of(before.message.get("content"))):
        yield newest - 1
    yield newest


def _wanted(segments: Sequence[Segment], protection: Protection) -> tuple[dict[int, str], list[str]]:
    """Return why segments stay verbatim, by index, and the marks of pins that had no room."""
    reasons: dict[int, str] = {}
    refused: list[str] = []
    room = protection.pin_tokens
    for index, segment in enumerate(segments):
        if segment.round is None:
            continue
        seqs = {entry.seq for entry in segment.round.entries}
        if not seqs.isdisjoint(protection.required):
            reasons[index] = "asked for"
        elif segment.round.is_native_context:
            reasons[index] = "native context"
        elif segment.round.is_pinned or not seqs.isdisjoint(protection.pins):
            if segment.tokens <= room:
                room -= segment.tokens
                reasons[index] = "pinned"
            else:
                refused.append(segment.mark)
    return reasons, refused


def _newest_states(
    segments: Sequence[Segment], later: Sequence[Segment], room: int, tools: Collection[str] | None
) -> set[int]:
    """Return the indices of segments that hold the newest version of a state and together fit into `room` tokens."""
    seen = {key for segment in later if segment.round for key in states_of(segment.round, tools)}
    newest: set[int] = set()
    for index in range(len(segments) - 1, -1, -1):
        segment = segments[index]
        keys = states_of(segment.round, tools) if segment.round else ()
        if not seen.issuperset(keys) and segment.tokens <= room:
            room -= segment.tokens
            newest.add(index)
        seen.update(keys)
    return newest


def notice_of(segment: Segment) -> frozenset[str]:
    """Return what a newer notice must repeat to replace this one; empty for a segment that is no notice."""
    if segment.round is None or len(segment.round.entries) > 1:
        return frozenset()
    message = segment.round.head.message
    return lineages_of(message["role"], metadata_of(message), text_of(message.get("content")))


def newest_notices(segments: Iterable[Segment]) -> frozenset[int]:
    """Return the lowest seqs of the newest notice of each hook, and of each source of reminders."""
    newest: dict[str, int] = {}
    for segment in segments:
        newest.update(dict.fromkeys(notice_of(segment), segment.first))
    return frozenset(newest.values())


def protected_tokens(draft: Draft) -> int:
    """The fixed part of the view included."""
    return draft.fixed + sum(segment.tokens for segment in draft.segments if segment.protected_because)


def clip_protected(draft: Draft, limit: int, counter: TokenCounter, *, whole: int = 0) -> Draft:
    """Clip the largest protected segments until they and the fixed part fit `limit` tokens; pins if need be.

    The message `whole` is not clipped.
    """
    for spared in (("", *VERBATIM), ("",)):
        over = protected_tokens(draft) - limit
        if over <= 0:
            break
        members = [segment for segment in draft.segments if segment.protected_because not in spared]
        sizes = {id(p): sum(shown.tokens for shown in p.shown if shown.seq != whole) for p in members}
        cap = _cap(sizes.values(), sum(sizes.values()) - over)
        draft = draft.with_segments(
            clip_segment(p, cap, counter, whole=whole) if sizes.get(id(p), 0) > cap else p for p in draft.segments
        )
    return draft


def clip_segment(segment: Segment, max_tokens: int, counter: TokenCounter, *, whole: int = 0) -> Segment:
    """Clip the largest messages, but for the message `whole`: head and tail stay."""
    shown = _clipped(segment.shown, max_tokens, counter, {whole})
    same = all(map(operator.is_, shown, segment.shown))
    return segment if same else segment.rendered_as(shown, "clipped", "floor")


def pinned_seqs(segments: Iterable[Segment], pins: Collection[int]) -> set[int]:
    """Return the seqs of all entries of rounds that have a pinned message, or one of `pins`."""
    wanted = frozenset(pins)
    seqs = [(one.round.is_pinned, {entry.seq for entry in one.round.entries}) for one in segments if one.round]
    return {seq for is_pinned, of_round in seqs if is_pinned or not wanted.isdisjoint(of_round) for seq in of_round}


def clip_messages(
    messages: Sequence[RenderedMessage], limit: int, counter: TokenCounter, *, whole: int, spared: Collection[int]
) -> list[RenderedMessage]:
    """Clip the largest messages until all fit `limit` tokens; the message `whole` only when that is not enough.

    Chapters and the messages whose seqs are `spared` stay as they are.
    """
    clipped = list(messages)
    kept = {0, *spared}
    for untouched in ({whole} | kept, kept):
        over = sum(shown.tokens for shown in clipped) - limit
        if over <= 0:
            break
        room = sum(shown.tokens for shown in clipped if shown.seq not in untouched) - over
        clipped = _clipped(clipped, room, counter, untouched)
    return clipped


def _clipped(
    messages: Sequence[RenderedMessage], room: int, counter: TokenCounter, untouched: Collection[int]
) -> list[RenderedMessage]:
    cap = _cap([shown.tokens for shown in messages if shown.seq not in untouched], room)
    return [
        clip_rendered(shown, cap, counter) if shown.tokens > cap and shown.seq not in untouched else shown
        for shown in messages
    ]


def clip_rendered(shown: RenderedMessage, max_tokens: int, counter: TokenCounter) -> RenderedMessage:
    """Return the message in at most about `max_tokens`; the same object when nothing of it can be clipped."""
    max_tokens = max(max_tokens, _LEAST)
    if shown.tokens < _SMALL:
        return shown
    ratio = max_tokens / shown.tokens
    best = shown
    for _ in range(_TRIES):
        message = _clip_message(shown.message, ratio, f"m{shown.seq}" if shown.seq else None)
        clipped = shown.with_message(message, counter)
        if clipped.tokens < best.tokens:
            best = clipped
        if clipped.tokens <= max_tokens or ratio < 1e-4:
            break
        ratio *= 0.8 * max_tokens / clipped.tokens
    return best


def _cap(sizes: Collection[int], total: int) -> int:
    """Return the size that the largest must shrink to so that all together are at most `total`."""
    left = max(total, 0)
    ordered = sorted(sizes)
    for index, size in enumerate(ordered):
        share = left // (len(ordered) - index)
        if size > share:
            return max(share, _LEAST)
        left -= size
    return max(sizes, default=0)


def _clip_message(message: Message, ratio: float, mark: str | None) -> Message:
    if is_signed(message) or is_native_context(metadata_of(message)):
        return message  # byte-exact, or folded whole

    def clip(value: Any) -> Any:
        """Clip all texts in JSON data."""
        if isinstance(value, str):
            return clip_quoted(value, max(16, int(len(value) * ratio)), mark)
        if isinstance(value, dict):
            return {key: clip(item) for key, item in cast("dict[str, Any]", value).items()}
        return [clip(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value

    def clip_block(block: dict[str, Any]) -> dict[str, Any]:
        kind = block.get("type")
        if kind in MEDIA_BLOCKS and ratio < 0.5:
            return {"type": "text", "text": f"[{kind} left out for want of room{f': {mark}' if mark else ''}]"}
        key = {"text": "text", "tool_call": "input"}.get(str(kind))
        return {**block, key: clip(block[key])} if key else block

    def clip_call(call: dict[str, Any]) -> dict[str, Any]:
        function = call.get("function")
        if not isinstance(function, dict):
            return {**call, "arguments": clip(call.get("arguments"))}
        arguments = clip(arguments_of(listed_call(call)))  # a list that no renderer made may hold any text
        return {**call, "function": {**cast("dict[str, Any]", function), "arguments": json_text(arguments)}}

    clipped: Message = dict(message)
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, str):
        clipped["content"] = clip(content)
    elif isinstance(content, list):
        clipped["content"] = [clip_block(block) for block in cast("list[dict[str, Any]]", content)]
    if isinstance(calls, list):
        clipped["tool_calls"] = [clip_call(call) for call in cast("list[dict[str, Any]]", calls)]
    return without_wire_content(clipped)
