"""A request for a view, and a view as that would have it: what is sent of it, and what a compaction of it works on.

A candidate is of one moment: the view may grow later, and other requests may have other messages of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..compaction.checkpoint import Draft, Segment
from ..compaction.condensing import people_tokens
from ..compaction.protected import clip_messages, clip_protected, most_human_tokens, pinned_seqs, whole_human
from ..compaction.recalled import RecalledSize, recalled_size
from ..compaction.strategies import Strategy
from ..compaction.strategies.base import with_protection
from ..economics.meter import Key
from ..economics.trigger import Growth, TokenLimits
from ..futures import in_thread, in_thread_if
from ..messages.carriers import is_carrier
from ..messages.tokens import TokenCounter
from ..outgoing.outgoing import Outgoing, hashes_much, outgoing, tokens_of
from ..outgoing.prefix import RequestPrefix
from ..rendering.renderer import RenderedMessage
from ..transcript.entry import Entry
from .view import View, messages_of

# Of the threshold, less what comes before the rounds: what may stay out of a compaction, for a result that its host may
# replace again. The rest is room for rounds that come.
_LEFT_OPEN = 0.8


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What is known of a request before its view is selected, made once and handed down."""

    limits: TokenLimits
    prefix: RequestPrefix
    system: tuple[RenderedMessage, ...]
    counter: TokenCounter
    required: frozenset[int] = frozenset()  # seqs that must stay verbatim in the view
    # Messages that the history gets with the request; the view ends with them.
    appended: tuple[RenderedMessage, ...] = ()
    # Writes the chapters of the view again if the provider writes the whole prefix again in any case; None for nothing.
    late: Strategy | None = None

    @property
    def system_tokens(self) -> int:
        """Of the system prompt, and of what else is sent beside the view."""
        return sum(shown.tokens for shown in (*self.system, *self.appended))

    @property
    def key(self) -> Key:
        return self.prefix.key

    @property
    def most_human_tokens(self) -> int:
        """Tokens up to which the newest human message is shown whole."""
        return most_human_tokens(self.limits.capacity, self.system_tokens)


@dataclass(frozen=True, slots=True)
class ViewDraft:
    """What the carrier that is sent replaces is no part of the draft; `whole` adds it again."""

    draft: Draft  # the segments that a compaction may change
    # The segments after the draft. A checkpoint of them would keep placeholders for missing results.
    open_rounds: Sequence[Segment]
    cost: int  # tokens of the draft's segments as they are sent now
    covered: int  # entries, counted from the first after the system prompt, that a checkpoint covers
    originals: Sequence[Segment]  # the segments before the open rounds, as the view shows them
    sent: Outgoing

    def whole(self, made: Sequence[Segment]) -> tuple[Segment, ...]:
        """Return the segments of a checkpoint from what a compaction made of the draft."""
        before, _ = _parted(self.originals, self.sent)
        changed = {
            one.first: one for one in self.originals if any(id(shown) in self.sent.changed for shown in one.shown)
        }
        is_held = {one.first for one in made if one.round is not None and is_carrier(one.round.head.message)}
        return (*before, *(changed[one.first] if one.first in is_held & changed.keys() else one for one in made))


@dataclass(frozen=True, slots=True)
class Candidate:
    view: View  # up to date with the history
    request: ViewRequest
    outgoing: Outgoing  # what the request is sent of the view, if it need not be clipped
    newest_seq: int  # highest seq of the entries that the view has

    @classmethod
    async def of(cls, view: View, request: ViewRequest) -> Candidate:
        messages, prefix = view.messages(), request.prefix
        is_long = hashes_much(messages, prefix)
        sent = await in_thread_if(is_long, outgoing, messages, prefix, view.counter, request.required)
        return cls(view, request, sent, view.newest_seq)

    @property
    def tokens(self) -> int:
        return self.request.system_tokens + self.outgoing.tokens

    @property
    def lasting_tokens(self) -> int:
        """Tokens of the request but for recalled text, which the next compaction takes out again."""
        return self.tokens - self._recalled_tokens(self.view.recalled, self.view.messages())

    @property
    def checkpoint_tokens(self) -> int:
        """Tokens of the checkpoint as it is sent; 0 without a checkpoint."""
        checkpoint, sent = self.view.checkpoint, self.outgoing
        if checkpoint is None:
            return 0
        return tokens_of(sent.as_sent(checkpoint.shown)) if sent.changed else checkpoint.tokens

    @property
    def growth(self) -> Growth | None:
        """What came since the checkpoint; None without a checkpoint, or while nothing came."""
        checkpoint, tail = self.view.checkpoint, self.view.tail
        if checkpoint is None or not tail.tokens:
            return None
        rewritten = 0
        for segment in reversed(checkpoint.segments):
            rewritten += segment.tokens
            if segment.chapter:
                break
        sent = self.checkpoint_tokens
        size = sent - self._recalled_tokens(self.view.recalled_before, checkpoint.shown)
        rewritten = rewritten if sent == checkpoint.tokens else min(rewritten, size)
        return Growth(size, rewritten, max(1, tail.tokens - tail.recalled.tokens), tail.responses)

    def _recalled_tokens(self, all_: RecalledSize, messages: Iterable[RenderedMessage]) -> int:
        """Return tokens of recalled text among messages, less what a carrier replaces; `all_` are those before that."""
        sent = self.outgoing
        return recalled_size(sent.as_sent(messages)).tokens if sent.changed else all_.tokens

    @property
    def compactable_count(self) -> int:
        """Entries, counted from the first after the system prompt, that a checkpoint may cover now."""
        return self.view.tail.closed_end(self._open_room)

    @property
    def _open_room(self) -> int:
        return int((self.request.limits.threshold - self.request.system_tokens - self.checkpoint_tokens) * _LEFT_OPEN)

    async def draft(self) -> ViewDraft:
        """Open rounds count for a part of the draft (`_waiting_tokens`). Beyond that they are clipped when the view is
        handed out, so that no other round suffers for a state of a moment.
        """
        return await in_thread(self._draft)

    def _draft(self) -> ViewDraft:
        view, sent, capacity = self.view, self.outgoing, self.request.limits.capacity
        closed, later = view.tail.parted(self._open_room)
        originals = [*view.head, *closed]
        # Whatever a compaction changes comes before nearly all of the thinking.
        before, segments = _parted((*view.rerendered(), *closed), sent)
        segments = _without_bound(segments, self.request.prefix, view.counter)
        waiting = sum(segment.tokens for segment in later)
        if waiting:
            people = people_tokens(segments, view.counter)
            human = whole_human((*segments, *later), self.request.most_human_tokens)
            waiting = _waiting_tokens(later, capacity, people, human)
        fixed = tokens_of(sent.as_sent(messages_of(before)))
        cost = tokens_of(sent.as_sent(messages_of(originals))) - fixed
        draft = Draft(tuple(segments), self.request.system_tokens + view.opening_tokens + waiting + fixed)
        return ViewDraft(draft, later, cost, self.compactable_count, originals, sent)

    async def fitted(self) -> Sequence[RenderedMessage]:
        """Return what the request is sent, as far as it can be made to fit."""
        if self.tokens <= self.request.limits.capacity:
            return self.outgoing.messages
        return await in_thread(self._clipped_to, self.request.limits.capacity - self.request.system_tokens)

    def _clipped_to(self, capacity: int) -> Sequence[RenderedMessage]:
        """Return the messages of the request, with rounds that no checkpoint can cover yet clipped to fit.

        Where that is not enough for the newest human message to stay whole, other messages are clipped before it.
        """
        view, request, counter = self.view, self.request, self.view.counter
        closed, later = view.tail.parted(self._open_room)
        head = self.outgoing.as_sent(messages_of((*view.head, *closed)))
        opening = view.opening_index
        before = tokens_of(head) + view.opening_tokens
        rest = Draft(tuple(with_protection(segment, "open") for segment in later))
        human = whole_human(view.segments(), request.most_human_tokens)
        whole = human.seq if human else 0
        # Names and ids cannot be clipped, so the first aim may be missed.
        for aim in (1.0, 0.9, 0.7, 0.5):
            rest = clip_protected(rest, int(max(0, capacity - before) * aim), counter, whole=whole)
            if before + rest.tokens <= capacity:
                break
        fitted = [*head, *messages_of(rest.segments)]
        if human is not None and before + rest.tokens > capacity:
            room = capacity - (before - tokens_of(head))
            spared = pinned_seqs(view.segments(), (*request.required, *view.beginning.pins))
            fitted = clip_messages(fitted, room, counter, whole=whole, spared=spared)
        if opening is not None:
            fitted.insert(opening, view.opening)
        return outgoing(fitted, request.prefix, counter, request.required).messages

    async def clipped_human(self) -> int:
        """Return the seq of the newest human message if it is clipped and the request has room for it whole; else 0.

        A compaction for a smaller limit clipped it.
        """
        view = self.view
        clipped = [one for one in view.head if one.rule == "floor" and one.is_human]
        if view.tail.has_human or not clipped:
            return 0
        human = whole_human(view.head, self.request.most_human_tokens)
        segment = next((one for one in clipped if human is not None and one.human_entry is human), None)
        if human is None or segment is None or segment.round is None:
            return 0
        (whole,) = await view.verbatim((segment.round,))
        parts = [[shown.message for shown in one.shown if shown.seq == human.seq] for one in (segment, whole)]
        return 0 if parts[0] == parts[1] else human.seq


def _parted(segments: Sequence[Segment], sent: Outgoing) -> tuple[list[Segment], list[Segment]]:
    """Return the segments before the carrier that is sent, as they are, and the others as they are sent.

    A segment that is not sent at all keeps its place, without messages and without cost.
    """
    places = (index for index, one in enumerate(segments) if any(m.seq == sent.carrier for m in one.shown))
    cut = next(places, 0) if sent.carrier else 0
    cut += sent.carrier < 0  # a chapter with a carrier stays as it is
    return list(segments[:cut]), [_showing(one, sent.as_sent(one.shown)) for one in segments[cut:]]


def carrier_of(segment: Segment) -> RenderedMessage | None:
    last = segment.shown[-1] if segment.chapter and segment.shown else None
    return last if last is not None and is_carrier(last.message) else None


def _without_bound(segments: Sequence[Segment], prefix: RequestPrefix, counter: TokenCounter) -> list[Segment]:
    """Strip thinking whose prefix is about to change."""
    bare = ([one.bare(counter) if prefix.binds(one) else one for one in segment.shown] for segment in segments)
    return [_showing(one, [shown for shown in made if shown]) for one, made in zip(segments, bare, strict=True)]


def _showing(segment: Segment, messages: Sequence[RenderedMessage]) -> Segment:
    """Return the same object if the messages are its own."""
    if len(messages) == len(segment.shown) and all(a is b for a, b in zip(messages, segment.shown, strict=True)):
        return segment
    return replace(segment, shown=tuple(messages), tokens=tokens_of(messages))


def _waiting_tokens(later: Sequence[Segment], capacity: int, people: int, human: Entry | None) -> int:
    """Return the tokens that open rounds may have of a view: half of what people's rules leave them. `human`: the
    newest human message if it stays whole. The open rounds get a quarter of what it leaves, at least.
    """
    waiting = sum(segment.tokens for segment in later)
    if human is None:
        return min(waiting, max(0, capacity - people) // 2)
    own = human.tokens if any(segment.human_entry is human for segment in later) else 0
    room = capacity - human.tokens
    return own + min(max(0, waiting - own), max(room - people, room // 2) // 2)
