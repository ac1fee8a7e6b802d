"""A view: a checkpoint and, after it, the rounds since (its tail), kept up to date as the history grows.

Between two checkpoints a view only grows at its end, at the cost of the new entries only.

Not locked: the `Compactor` lets one task in at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ..compaction.checkpoint import Checkpoint, Draft, Segment
from ..compaction.condensing import people_tokens
from ..compaction.digest import with_round
from ..compaction.distant import distant_end, fold_distant
from ..compaction.protected import clip_messages, clip_protected, most_human_tokens, pinned_seqs, whole_human
from ..compaction.strategies.base import with_protection
from ..futures import YIELD_EVERY, in_thread, in_thread_if
from ..messages.parsing import SYSTEM_ROLES
from ..messages.tokens import are_large, count_message_tokens
from ..rendering.recalled import RecalledSize, recalled_size
from ..rendering.renderer import OPENING, RenderedMessage, Renderer
from ..rendering.rounds import Round, round_of
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot
from .prefix import RequestPrefix
from .request_messages import RequestMessages
from .tail import ViewTail, rendered_rounds, segment_for
from .trigger import CompactionBackoff, Growth
from .view_draft import ViewDraft
from .view_request import ViewRequest

# Of the threshold, less what comes before the rounds: what may stay out of a compaction, for a result that its host may
# replace again. The rest is room for rounds that come.
_LEFT_OPEN = 0.8


class View:
    """One checkpoint, or none, and the rendered rounds since.

    Attributes:
        checkpoint: covers the beginning of the history; None when all of it is shown.
        budget: tokens of the requests it was made for.
        backoff: the last attempt to compact it; None before any.

    Args:
        checkpoint: covers the beginning of the history; None to show all of it.
        budget: tokens of the requests it is made for.
        renderer: of the same settings that the view is to have.
        keep: seqs of entries that distant history must show.
        revision: of the history that the checkpoint is of; -1 for that of the first update.
        backoff: the last attempt to compact it; None before any.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        budget: int,
        renderer: Renderer,
        *,
        keep: Collection[int],
        revision: int = -1,
        backoff: CompactionBackoff | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.budget = budget
        self.backoff = backoff
        self._renderer = renderer
        self._counter = renderer.counter
        self._keep = keep
        self._revision = revision
        self._interrupted: frozenset[int] = frozenset()
        self._request = RequestMessages(renderer.counter)
        self._reset()

    def _reset(self) -> None:
        """Drop the rounds since the checkpoint; the next update adds them again."""
        self._renderer = self._renderer.without_calls(self._interrupted, self.made_at)
        self._counted_opening: RenderedMessage | None = None
        self._distant: list[Segment] = []  # chapters of distant history, which is before the tail
        self._tail = ViewTail(self._renderer, self.checkpoint.covered if self.checkpoint else 0)
        self._change_all()
        before = self.checkpoint.segments if self.checkpoint else ()
        self._recalled_before = sum((recalled_size(segment.shown) for segment in before), RecalledSize())
        if self.checkpoint:
            self._renderer.register_shown_calls(self.checkpoint.shown)

    async def update(self, history: Snapshot, unchanged: int, interrupted: frozenset[int]) -> bool:
        """Bring the view up to date; return False if its checkpoint is not of this history any more.

        Args:
            unchanged: entries after the leading instructions that are as they were at the last update.
            interrupted: turns whose open calls were stopped.
        """
        if self._revision not in (-1, history.revision):
            if self.checkpoint and unchanged < self.checkpoint.covered:
                return False
            if unchanged < self._tail.end:
                self._reset()
        if interrupted != self._interrupted:
            self._interrupted = interrupted
            self._reset()
        self._revision = history.revision
        leading = history.leading_count
        if self._tail.end == 0:
            await self._fold_distant(history, leading)
        while (start := leading + self._tail.end) < len(history):
            for entry in history[start : start + YIELD_EVERY]:
                self._tail.add(entry)
            if leading + self._tail.end < len(history):
                await asyncio.sleep(0)
        async for removed, added in self._tail.render():
            self._change_tail(removed, added)
        return True

    async def _fold_distant(self, history: Snapshot, leading: int) -> None:
        """Fold what is many budgets back in an imported history, without rendering it."""
        are_many = len(history) - leading > YIELD_EVERY
        end = await in_thread_if(are_many, distant_end, history, leading, self.budget, self._renderer)
        if end > leading:
            self._distant = await in_thread(
                fold_distant, history, leading, end, self._keep, self._renderer, self._counter
            )
            self._tail = ViewTail(self._renderer, end - leading)
            self._change_all()

    def render_again(self) -> None:
        """Render the rounds since the checkpoint again at the next update, because what they are made of changed."""
        self._reset()

    @property
    def _opening(self) -> RenderedMessage:
        if self._counted_opening is None:
            self._counted_opening = RenderedMessage(OPENING, count_message_tokens(OPENING, self._counter))
        return self._counted_opening

    @property
    def tokens(self) -> int:
        """Tokens of the view without the system prompt."""
        before = self.checkpoint.tokens if self.checkpoint else sum(segment.tokens for segment in self._distant)
        opening = self._opening.tokens if self._opening_index() is not None else 0
        return before + self._tail.tokens + opening - self._request.left_out

    @property
    def recalled(self) -> RecalledSize:
        """What the recall tool brought back into the view."""
        return self._recalled_before + self._tail.recalled

    @property
    def lasting_tokens(self) -> int:
        """Tokens of the view but for recalled text, which the next compaction takes out again."""
        return self.tokens - self.recalled.tokens

    @property
    def growth(self) -> Growth | None:
        """What came since the checkpoint; None without a checkpoint, or while nothing came."""
        if self.checkpoint is None or not self._tail.tokens:
            return None
        rewritten = 0
        for segment in reversed(self.checkpoint.segments):
            rewritten += segment.tokens
            if segment.chapter:
                break
        size = self.checkpoint_tokens - self._recalled_before.tokens
        rewritten = min(rewritten, size) if self._request.unsent else rewritten
        tail = self._tail
        return Growth(size, rewritten, max(1, tail.tokens - tail.recalled.tokens), tail.responses)

    @property
    def made_at(self) -> int:
        """Newest seq of the history when the checkpoint was made; 0 without one."""
        return self.checkpoint.made_at if self.checkpoint else 0

    @property
    def newest_seq(self) -> int:
        """Highest seq of the entries that the view took in."""
        return max(self.made_at, self._tail.newest_seq)

    @property
    def checkpoint_tokens(self) -> int:
        """Tokens of the checkpoint that requests are sent; 0 without one."""
        return self.checkpoint.tokens - self._request.unsent if self.checkpoint else 0

    async def bind(self, request: ViewRequest) -> None:
        """Leave out what carriers replace, and the thinking that is not valid any more, in a request to a model.

        Rounds stay open as far as the request has room for them.
        """
        while not self._request.is_for(request.prefix, request.required):  # the view may change while it is hashed
            before = self.checkpoint.shown if self.checkpoint else ()
            await self._request.bind(self._shown_messages(), before, request.prefix, request.required)
        room = request.limits.threshold - request.system_tokens - self.checkpoint_tokens
        self._tail.leave_open(int(room * _LEFT_OPEN))

    async def prefix_digest(self, messages: Sequence[RenderedMessage], prefix: RequestPrefix) -> str:
        """Return the hash of a request that sent these messages of the view."""
        return await self._request.digest(messages, prefix)

    def view(self) -> list[RenderedMessage]:
        """Return the messages of the view without the system prompt. Do not mutate them."""
        sent = self._request.sent
        return self._shown_messages() if sent is None else sent

    def _shown_messages(self) -> list[RenderedMessage]:
        """Return the messages of the view with thinking that is bound to another prefix. Do not mutate them."""
        if (opening := self._opening_index()) is None:
            return self._all_messages()
        messages = self._all_messages()
        return [*messages[:opening], self._opening, *messages[opening:]]

    def _all_messages(self) -> list[RenderedMessage]:
        """Return the messages of checkpoint and rounds: a list that is replaced, never mutated."""
        if self._messages is None:
            self._messages = [*_messages_of(self._head), *self._tail.messages()]
        return self._messages

    def _change_all(self) -> None:
        """Note that any message may have changed."""
        self._messages: list[RenderedMessage] | None = None
        self._request.change(0)

    def _change_tail(self, removed: int, added: Sequence[RenderedMessage]) -> None:
        """Note that so many messages at the end are gone, and that others came after the rest."""
        if self._messages is None:
            return  # all of them may have changed, and none was read since
        kept, opening = len(self._messages) - removed, self._opening_index()
        self._request.change(kept + (opening is not None and opening < kept))
        self._messages = [*self._messages[:kept], *added]

    @property
    def _head(self) -> Sequence[Segment]:
        """The segments before the tail."""
        return self.checkpoint.segments if self.checkpoint else self._distant

    @property
    def covered(self) -> int:
        """Entries after the system prompt that the checkpoint, or chapters of distant history, cover."""
        return self._tail.start

    @property
    def compactable_count(self) -> int:
        """Entries, counted from the first after the system prompt, that a checkpoint may cover now."""
        return self._tail.closed_end

    async def draft(self, system_tokens: int, capacity: int) -> ViewDraft:
        """Return what a compaction of the view works on.

        Args:
            capacity: the view's largest size (tokens). Open rounds count for a part of it (`_waiting_tokens`). Beyond
                that they are clipped when the view is handed out, so that no other round suffers for a state of a
                moment.
        """
        request, covered = self._request, self.compactable_count
        head, closed, later = self._head, await self._tail.closed_segments_off_loop(), self._tail.open_segments()
        originals = [*head, *closed]
        # Whatever a compaction changes comes before nearly all of the thinking.
        before, segments = request.carried.parted((*(await self._rerendered(head)), *closed))
        segments = request.without_bound(segments)
        opening = self._opening.tokens if self._opening_index() is not None else 0
        waiting = sum(segment.tokens for segment in later)
        if waiting:
            people = await in_thread_if(len(segments) > YIELD_EVERY, people_tokens, segments, self._counter)
            human = whole_human((*segments, *later), most_human_tokens(capacity, system_tokens))
            waiting = _waiting_tokens(later, capacity, people, human)
        fixed = sum(message.tokens for message in request.as_sent(_messages_of(before)))
        cost = sum(message.tokens for message in request.as_sent(_messages_of(originals))) - fixed
        draft = Draft(tuple(segments), system_tokens + opening + waiting + fixed)
        return ViewDraft(draft, later, cost, covered, originals, request.carried)

    async def _rerendered(self, segments: Sequence[Segment]) -> list[Segment]:
        """Render segments again that were clipped because protected segments did not fit at another time."""
        clipped = [segment.round for segment in segments if segment.rule == "floor" and segment.round is not None]
        rendered = await rendered_rounds(self._renderer, clipped)
        again = iter([segment_for(*one) for one in zip(clipped, rendered, strict=True)])
        return [next(again) if one.rule == "floor" and one.round is not None else one for one in segments]

    async def clipped_to(self, capacity: int, request: ViewRequest) -> list[RenderedMessage]:
        """Return what a request has of the messages, with rounds that no checkpoint can cover yet clipped to fit.

        Where that is not enough for the newest human message to stay whole, other messages are clipped before it. The
        view itself is not changed.

        Args:
            capacity: tokens that the messages may have.
        """
        head = self._request.as_sent(_messages_of((*self._head, *self._tail.closed_segments())))
        opening = self._opening_index()
        before = sum(shown.tokens for shown in head) + (0 if opening is None else self._opening.tokens)
        rest = Draft(tuple(with_protection(segment, "open") for segment in self._tail.open_segments()))
        human = whole_human(self.segments(), request.most_human_tokens)
        whole, large = human.seq if human else 0, are_large(message.message for message in self._all_messages())
        # Names and ids cannot be clipped, so the first aim may be missed.
        for aim in (1.0, 0.9, 0.7, 0.5):
            room = int(max(0, capacity - before) * aim)
            rest = await in_thread_if(large, clip_protected, rest, room, self._counter, whole=whole)
            if before + rest.tokens <= capacity:
                break
        fitted = [*head, *_messages_of(rest.segments)]
        if human is not None and before + rest.tokens > capacity:
            room = capacity - (before - sum(shown.tokens for shown in head))
            spared = pinned_seqs(self.segments(), (*request.required, *self._keep))
            fitted = await in_thread_if(large, clip_messages, fitted, room, self._counter, whole=whole, spared=spared)
        if opening is not None:
            fitted.insert(opening, self._opening)
        return await self._request.clipped(fitted, request.prefix, request.required)

    async def clipped_human(self, request: ViewRequest) -> int:
        """Return the seq of the newest human message if it is clipped and a request has room for it whole; else 0.

        A compaction for a smaller limit clipped it.
        """
        clipped = [one for one in self._head if one.rule == "floor" and one.is_human]
        if self._tail.has_human or not clipped:
            return 0
        human = whole_human(self._head, request.most_human_tokens)
        segment = next((one for one in clipped if human is not None and one.human_entry is human), None)
        if human is None or segment is None or segment.round is None:
            return 0
        (whole,) = await self.verbatim((segment.round,))
        parts = [[shown.message for shown in one.shown if shown.seq == human.seq] for one in (segment, whole)]
        return 0 if parts[0] == parts[1] else human.seq

    def mentions(self, seq: int) -> bool:
        """True if the view shows this entry, clipped or as it was stored, or a carrier that replaces it."""
        return any(message.seq == seq for message in self._shown_messages())

    def shows(self, seq: int) -> bool:
        """True if the view shows this entry as it was stored, or a carrier that replaces it.

        Where a carrier replaces it, requests that require it show it all the same.
        """
        for segment in self.checkpoint.segments if self.checkpoint else ():
            if segment.state != "kept" and any(shown.seq == seq for shown in segment.shown):
                return False
        return self.mentions(seq)

    async def show_verbatim(self, seq: int, history: Snapshot) -> None:
        """Show the round of an entry verbatim again, in its place, if the checkpoint folded or shortened it.

        The round is taken out of its chapter: no two segments begin with the same entry.
        """
        if seq in self._tail or self.shows(seq):
            return
        # Search only what the checkpoint covers: a late result after it is in the view already.
        round_ = round_of(seq, history[history.leading_count : history.leading_count + self.covered])
        if round_ is None:
            return
        (fresh,) = await self.verbatim((round_,))
        segments = with_round(self._head, fresh, round_, self._counter)
        self._change_all()
        if self.checkpoint is None:
            self._distant = segments
            return
        tokens = sum(segment.tokens for segment in segments)
        self.replace_checkpoint(replace(self.checkpoint, segments=tuple(segments), tokens=tokens, from_content=False))

    async def verbatim(self, rounds: Sequence[Round]) -> list[Segment]:
        """Return rounds of the history as segments that show them verbatim; the view stays as it is."""
        for entry in (entry for round_ in rounds for entry in round_.entries):
            self._renderer.register_calls(entry)
        rendered = await rendered_rounds(self._renderer, rounds)
        return [segment_for(*one) for one in zip(rounds, rendered, strict=True)]

    def replace_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Show another checkpoint of the same entries."""
        self.checkpoint = checkpoint
        self._change_all()

    def segments(self) -> list[Segment]:
        """Return all that the view shows, segment by segment, for reports."""
        return [*self._head, *self._tail.closed_segments(), *self._tail.open_segments()]

    @property
    def output_limit(self) -> int:
        """Tokens above which a single tool output is clipped."""
        return self._renderer.output_limit

    @property
    def revision(self) -> int:
        """Revision of the history at the last update."""
        return self._revision

    @property
    def fixes(self) -> dict[int, tuple[str, ...]]:
        """What was fixed, by the lowest seq of the round."""
        return self._tail.fixes

    def _opening_index(self) -> int | None:
        """Return the index in the view of the opening message; None if it needs none.

        It comes right before the first message that is no instruction, unless that is a user's. Instructions that were
        sent before that message came keep their index.
        """
        for index, message in enumerate(self._all_messages()):
            if message.message["role"] not in SYSTEM_ROLES:
                return index if message.message["role"] != "user" else None
        return None


def _waiting_tokens(later: Sequence[Segment], capacity: int, people: int, human: Entry | None) -> int:
    """Return the tokens that open rounds may have of a view: half of what people's rules leave them.

    Args:
        later: the open rounds.
        capacity: the view's largest size (tokens).
        people: tokens of what people stated.
        human: the newest human message if it stays whole. The open rounds get a quarter of what it leaves, at least.
    """
    waiting = sum(segment.tokens for segment in later)
    if human is None:
        return min(waiting, max(0, capacity - people) // 2)
    own = human.tokens if any(segment.human_entry is human for segment in later) else 0
    room = capacity - human.tokens
    return own + min(max(0, waiting - own), max(room - people, room // 2) // 2)


def _messages_of(segments: Iterable[Segment]) -> list[RenderedMessage]:
    return [message for segment in segments for message in segment.shown]
