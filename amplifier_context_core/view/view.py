"""A view: a checkpoint and the rendered rounds since, kept up to date as the history grows.

Between two checkpoints a view only grows at its end, at the cost of the new entries only.

Not locked: the `Compactor` lets one task in at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ..compaction.checkpoint import Checkpoint, Draft, Segment, segment_of
from ..compaction.condensing import people_tokens
from ..compaction.digest import with_round
from ..compaction.distant import distant_end, fold_distant
from ..compaction.protected import clip_protected
from ..compaction.strategies.base import with_protection
from ..futures import in_thread_if
from ..messages.parsing import SYSTEM_ROLES
from ..messages.tokens import are_large, count_message_tokens
from ..rendering.recalled import RecalledSize, recalled_size
from ..rendering.renderer import OPENING, RenderedMessage, RenderedRound, Renderer
from ..rendering.rounds import Round, RoundList, round_of
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot
from .prefix import RequestPrefix
from .request_messages import RequestMessages
from .trigger import CompactionBackoff, Growth
from .view_request import ViewRequest

_YIELD_EVERY = 500  # entries added before the event loop gets a turn


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
        # Indexes count from the first entry after the leading instructions.
        self._start = 0  # index of the first round: distant history before it was folded without being rendered
        self._next = self.checkpoint.covered if self.checkpoint else 0  # index of the next entry to add
        self._distant: list[Segment] = []  # the segments of distant history
        self._rounds = RoundList()
        self._indexes: dict[int, int] = {}  # by seq, of the entries since the checkpoint
        self._shown: list[tuple[Round, RenderedRound]] = []  # the rounds as they were rendered last
        self._known: dict[int, tuple[Round, RenderedRound]] = {}  # by identity, rendered rounds without their new index
        self._stale = 0  # index in `_rounds` of the first round that may differ from what was rendered
        self._newest_seq = 0
        self._closed: int | None = None  # what `_closed_prefix` returned; None when entries came since
        self._tokens = 0
        self._responses = 0  # answers of the model since the checkpoint
        self._change_all()
        self._recalled = RecalledSize()  # since the checkpoint
        before = self.checkpoint.segments if self.checkpoint else ()
        self._recalled_before = sum((recalled_size(segment.shown) for segment in before), RecalledSize())
        if self.checkpoint:
            self._renderer.register_shown_calls(self.checkpoint.shown)

    async def update(self, history: Snapshot, unchanged: int, interrupted: frozenset[int]) -> bool:
        """Bring the view up to date; return False if its checkpoint is not of this history any more.

        Args:
            history: what is stored now.
            unchanged: entries after the leading instructions that are as they were at the last update.
            interrupted: turns whose open calls were stopped.
        """
        if self._revision not in (-1, history.revision):
            if self.checkpoint and unchanged < self.checkpoint.covered:
                return False
            if unchanged < self._next:
                self._reset()
        if interrupted != self._interrupted:
            self._interrupted = interrupted
            self._reset()
        self._revision = history.revision
        leading = history.leading_count
        if self._next == 0:
            await self._fold_distant(history, leading)
        while self._next < len(history) - leading:
            start = leading + self._next
            for index, entry in enumerate(history[start : start + _YIELD_EVERY], self._next):
                self._add(entry, index)
            self._next = min(self._next + _YIELD_EVERY, len(history) - leading)
            if self._next < len(history) - leading:
                await asyncio.sleep(0)
        await self._render()
        return True

    async def _fold_distant(self, history: Snapshot, leading: int) -> None:
        """Fold what is many budgets back in an imported history, without rendering it."""
        end = await distant_end(history, leading, self.budget, self._renderer)
        if end > leading:
            self._distant = await fold_distant(history, leading, end, self._keep, self._renderer, self._counter)
            self._change_all()
            self._next = self._start = end - leading

    def recount(self) -> None:
        """Render the rounds since the checkpoint again at the next update, because what they are made of changed."""
        self._reset()

    @property
    def is_provisional(self) -> bool:
        """True if upper bounds of counts decided what is shown, or may have."""
        return self._renderer.is_provisional or bool(self._distant)

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
        return before + self._tokens + opening - self._request.left_out

    @property
    def recalled(self) -> RecalledSize:
        """What the recall tool brought back into the view."""
        return self._recalled_before + self._recalled

    @property
    def lasting_tokens(self) -> int:
        """Tokens of the view but for recalled text, which the next compaction takes out again."""
        return self.tokens - self.recalled.tokens

    @property
    def growth(self) -> Growth | None:
        """What came since the checkpoint; None without a checkpoint, or while nothing came."""
        if self.checkpoint is None or not self._tokens:
            return None
        rewritten = 0
        for segment in reversed(self.checkpoint.segments):
            rewritten += segment.tokens
            if segment.chapter:
                break
        size = self.checkpoint_tokens - self._recalled_before.tokens
        rewritten = min(rewritten, size) if self._request.unsent else rewritten
        return Growth(size, rewritten, max(1, self._tokens - self._recalled.tokens), self._responses)

    @property
    def made_at(self) -> int:
        """Newest seq of the history when the checkpoint was made; 0 without one."""
        return self.checkpoint.made_at if self.checkpoint else 0

    @property
    def newest_seq(self) -> int:
        """Highest seq of the entries that the view took in."""
        return max(self.made_at, self._newest_seq)

    @property
    def checkpoint_tokens(self) -> int:
        """Tokens of the checkpoint that requests are sent; 0 without one."""
        return self.checkpoint.tokens - self._request.unsent if self.checkpoint else 0

    async def bind(self, request: ViewRequest) -> None:
        """Leave out what carriers replace, and the thinking that is not valid any more, in a request to a model."""
        while not self._request.is_for(request.prefix, request.required):  # the view may change while it is hashed
            before = self.checkpoint.shown if self.checkpoint else ()
            await self._request.bind(self._shown_messages(), before, request.prefix, request.required)

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
            self._messages = list(self.checkpoint.shown) if self.checkpoint else []
            self._messages.extend(message for segment in self._distant for message in segment.shown)
            self._messages.extend(message for _, rendered in self._shown for message in rendered.messages)
        return self._messages

    def _change_all(self) -> None:
        """Note that any message may have changed."""
        self._messages: list[RenderedMessage] | None = None
        self._request.change(0)

    def _change_tail(self, removed: Iterable[RenderedRound], added: Iterable[RenderedRound] = ()) -> None:
        """Note that these rounds at the end are gone, and that others came behind the rest."""
        messages, opening = self._all_messages(), self._opening_index()
        kept = len(messages) - sum(len(rendered.messages) for rendered in removed)
        self._request.change(kept + (opening is not None and opening < kept))
        self._messages = [*messages[:kept], *(message for rendered in added for message in rendered.messages)]

    @property
    def covered(self) -> int:
        """Entries after the system prompt that the checkpoint, or chapters of distant history, cover."""
        return self.checkpoint.covered if self.checkpoint else self._start

    @property
    def compactable_count(self) -> int:
        """Entries, counted from the first after the system prompt, that a checkpoint may cover now."""
        return self.covered + sum(len(round_.entries) for round_ in self._rounds.rounds[: self._closed_prefix()])

    async def draft(self, system_tokens: int, capacity: int) -> tuple[Draft, list[Segment], int]:
        """Return the segments that a compaction may change, the open rounds, and the tokens of the former now.

        An open round is no part of a checkpoint, which would keep the placeholders of its missing results.
        What the carrier that is sent replaces is no part of the draft; `whole` adds it again.

        Args:
            system_tokens: of the system prompt.
            capacity: the view's largest size (tokens). Open rounds count for at most half of what people's rules leave
                of it. Beyond that they are clipped when the view is handed out, so that no other round suffers for a
                state of a moment.
        """
        cut = self._closed_prefix()
        old = list(self.checkpoint.segments) if self.checkpoint else self._distant
        fresh = [_segment(round_, rendered) for round_, rendered in self._shown[:cut] if rendered.messages]
        # Whatever a compaction changes comes before nearly all of the thinking.
        before, segments = self._request.carried.parted((*(await self._rerendered(old)), *fresh))
        segments = self._request.without_bound(segments)
        later = [_segment(round_, rendered) for round_, rendered in self._shown[cut:] if rendered.messages]
        opening = self._opening.tokens if self._opening_index() is not None else 0
        waiting = sum(segment.tokens for segment in later)
        if waiting:
            waiting = min(waiting, max(0, capacity - people_tokens(segments, self._counter)) // 2)
        shown = [message for segment in (*old, *fresh) for message in segment.shown]
        fixed = sum(message.tokens for message in self._request.as_sent(m for one in before for m in one.shown))
        cost = sum(message.tokens for message in self._request.as_sent(shown)) - fixed
        return Draft(tuple(segments), system_tokens + opening + waiting + fixed), later, cost

    def whole(self, made: Sequence[Segment]) -> tuple[Segment, ...]:
        """Return the segments of a checkpoint from what a compaction made of the draft."""
        old = self.checkpoint.segments if self.checkpoint else self._distant
        fresh = [_segment(round_, rendered) for round_, rendered in self._shown[: self._closed_prefix()]]
        originals = [*old, *(segment for segment in fresh if segment.shown)]
        carried = self._request.carried
        return tuple(carried.whole(carried.parted(originals)[0], originals, made))

    async def _rerendered(self, segments: Sequence[Segment]) -> list[Segment]:
        """Render segments again that were clipped because protected segments did not fit at another time."""
        clipped = [segment.round for segment in segments if segment.rule == "floor" and segment.round is not None]
        again = {id(round_): shown for round_, shown in zip(clipped, await self._rendered(clipped), strict=True)}
        return [
            _segment(segment.round, again[id(segment.round)])
            if segment.round is not None and id(segment.round) in again
            else segment
            for segment in segments
        ]

    async def clipped_to(self, capacity: int, request: ViewRequest) -> list[RenderedMessage]:
        """Return what a request has of the messages, with rounds that no checkpoint can cover yet clipped to fit.

        The view itself is not changed.

        Args:
            capacity: tokens that the messages may have.
            request: that has the messages.
        """
        cut = self._closed_prefix()
        head = list(self.checkpoint.shown) if self.checkpoint else []
        head.extend(message for segment in self._distant for message in segment.shown)
        head.extend(message for _, rendered in self._shown[:cut] for message in rendered.messages)
        head = self._request.as_sent(head)
        opening = self._opening_index()
        before = sum(shown.tokens for shown in head) + (0 if opening is None else self._opening.tokens)
        rest = Draft(tuple(with_protection(_segment(round_, shown), "open") for round_, shown in self._shown[cut:]))
        # Names and ids cannot be clipped, so the first aim may be missed.
        for aim in (1.0, 0.9, 0.7, 0.5):
            rest = await in_thread_if(
                are_large(rest.messages), clip_protected, rest, int(max(0, capacity - before) * aim), self._counter
            )
            if before + rest.tokens <= capacity:
                break
        fitted = [*head, *(shown for segment in rest.segments for shown in segment.shown)]
        if opening is not None:
            fitted.insert(opening, self._opening)
        return await self._request.clipped(fitted, request.prefix, request.required)

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
        if seq in self._indexes or self.shows(seq):
            return
        # Search only what the checkpoint covers: a late result behind it is in the view already.
        round_ = round_of(seq, history[history.leading_count : history.leading_count + self.covered])
        if round_ is None:
            return
        (fresh,) = await self.verbatim((round_,))
        former = self.checkpoint.segments if self.checkpoint else self._distant
        segments = with_round(former, fresh, round_, self._counter)
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
        return [_segment(*one) for one in zip(rounds, await self._rendered(rounds), strict=True)]

    def replace_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Show another checkpoint of the same entries."""
        self.checkpoint = checkpoint
        self._change_all()

    def segments(self) -> list[Segment]:
        """Return all that the view shows, segment by segment, for reports."""
        segments = list(self.checkpoint.segments) if self.checkpoint else list(self._distant)
        segments.extend(_segment(round_, rendered) for round_, rendered in self._shown if rendered.messages)
        return segments

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
        return {round_.first: rendered.fixes for round_, rendered in self._shown if rendered.fixes}

    # -- updating ----------------------------------------------------------------------------------------------------

    def _add(self, entry: Entry, index: int) -> None:
        self._closed = None
        self._indexes[entry.seq] = index
        self._newest_seq = max(self._newest_seq, entry.seq)
        self._renderer.register_calls(entry)
        self._responses += entry.role == "assistant"
        self._stale = min(self._stale, self._rounds.add(entry))

    async def _render(self) -> None:
        """Render the rounds that are new or changed.

        A round is immutable: an entry that joins it makes a new one, and one that joins two rounds moves all rounds
        behind them. So a rendered round is found by the identity of its round, never by its index. If this is
        cancelled, the next call continues.
        """
        stale = self._shown[self._stale :]
        if stale:
            self._change_tail(rendered for _, rendered in stale)
        for round_, rendered in stale:
            self._known[id(round_)] = (round_, rendered)
            self._tokens -= rendered.tokens
            self._recalled -= recalled_size(rendered.messages)
        del self._shown[self._stale :]
        rounds = self._rounds.rounds
        while self._stale < len(rounds):
            batch = rounds[self._stale : self._stale + _YIELD_EVERY]
            new = [round_ for round_ in batch if id(round_) not in self._known]
            for round_, rendered in zip(new, await self._rendered(new), strict=True):
                self._known[id(round_)] = (round_, rendered)
            shown = [self._known.pop(id(round_)) for round_ in batch]
            self._tokens += sum(rendered.tokens for _, rendered in shown)
            self._recalled = sum((recalled_size(rendered.messages) for _, rendered in shown), self._recalled)
            self._change_tail((), (rendered for _, rendered in shown))
            self._shown.extend(shown)
            self._stale = len(self._shown)
            if self._stale < len(rounds):
                await asyncio.sleep(0)
        self._known.clear()

    async def _rendered(self, rounds: Sequence[Round]) -> list[RenderedRound]:
        """Return rounds as they are shown; large ones are rendered in a thread.

        A renderer only reads while it renders, so nothing is lost if the caller is cancelled meanwhile.
        """

        def render() -> list[RenderedRound]:
            return [self._renderer.render(round_) for round_ in rounds]

        return await in_thread_if(are_large(entry.message for round_ in rounds for entry in round_.entries), render)

    def _closed_prefix(self) -> int:
        """Return how many leading rounds may be covered: all closed, none with an entry behind one of the rest."""
        if self._closed is not None:
            return self._closed
        first = self.covered
        cut = ends = 0
        furthest = first - 1
        for index, round_ in enumerate(self._rounds.rounds[: self._rounds.closed]):
            furthest = max(furthest, *(self._indexes[entry.seq] for entry in round_.entries))
            ends += len(round_.entries)
            if furthest == first + ends - 1:
                cut = index + 1
        self._closed = cut
        return cut

    def _opening_index(self) -> int | None:
        """Return the index in the view of the opening message; None if it needs none.

        It comes right before the first message that is no instruction, unless that is a user's. Instructions that were
        sent before that message came keep their index.
        """
        for index, message in enumerate(self._all_messages()):
            if message.message["role"] not in SYSTEM_ROLES:
                return index if message.message["role"] != "user" else None
        return None


def _segment(round_: Round, rendered: RenderedRound) -> Segment:
    return segment_of(round_, rendered.messages, rendered.fixes)
