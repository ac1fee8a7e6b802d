"""A view that a request may be sent, before it is known whether it will be: a value beside the session.

Staging selects a view and compacts it if need be. All of that is kept in the `StagedView`. The session changes when it
is accepted, at once and under the compactor's lock, or never. So giving a request up needs no undo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..compaction.checkpoint import Checkpoint
from ..events import PRE_COMPACT, emit, inside_handler
from ..outgoing.outgoing import tokens_of
from ..rendering.renderer import RenderedMessage
from .candidate import Candidate
from .compaction_job import CompactionJob, CompactionResult
from .compactor import Compactor
from .selection import Selection
from .sent_view import SentView, sent_view
from .trigger import TokenLimits
from .view import View
from .view_request import ViewRequest


@dataclass(frozen=True, slots=True)
class Basis:
    """What a compaction for a budget is made from; if it is another one now, the compaction is out of date.

    Attributes:
        view: that serves the budget; None if there is none.
        checkpoint: of that view. A command that changes what a view shows of it replaces it.
        pins: seqs pinned by command.
        focus_drops: of the compactor.
    """

    view: View | None
    checkpoint: Checkpoint | None
    pins: frozenset[int]
    focus_drops: int

    @classmethod
    def of(cls, compactor: Compactor, budget: int) -> Basis:
        """Return what the session has for a budget now."""
        view = compactor.cache.by_budget.get(budget)
        checkpoint = view.checkpoint if view else None
        return cls(view, checkpoint, frozenset(compactor.pins), compactor.focus_drops)


@dataclass(frozen=True, slots=True)
class StagedView:
    """What a request would be sent.

    Attributes:
        selection: the view before any compaction, and the state of the history that it shows.
        sent: what the request is sent.
        basis: what the session had for the budget when this was staged.
        is_copy: the selected view is a copy of one of the session's.
        result: of the compaction that was made for it; None without one.
        postponed: the compaction that a handler postponed; None without one.
    """

    selection: Selection
    sent: SentView
    basis: Basis
    is_copy: bool = False
    result: CompactionResult | None = None
    postponed: CompactionJob | None = None


class Staging:
    """Stages the views of one request and lets one of them become the session's.

    Args:
        compactor: of the session.
        request: that the views are for; each step gives it limits.
    """

    def __init__(self, compactor: Compactor, request: ViewRequest) -> None:
        self._compactor = compactor
        self.request = request
        self._announced: str | None = None  # what handlers want a summary to dwell on, once they were asked
        self._focus_drops = 0  # of the compactor before they were asked
        self._denied = False

    async def as_it_is(self, limits: TokenLimits) -> StagedView:
        """Return the view of this budget as it is, neither compacted nor clipped."""
        async with self._compactor.lock.hold():
            return await self._selected(limits)

    def last_accepted(self) -> int | None:
        """Return what of this budget the provider took when it was sent the last view; None if it was sent none."""
        sent = self._compactor.sent.last_to(self.request.key)
        return sent.limits.accepted if sent and sent.limits.budget == self.request.limits.budget else None

    def judged(self, staged: StagedView, limits: TokenLimits) -> StagedView:
        """Return the same messages under other limits, and why the view must be compacted first."""
        candidate = Candidate(staged.sent.view, replace(self.request, limits=limits), staged.sent.outgoing)
        selection = self._compactor.cache.judged(replace(staged.selection, candidate=candidate))
        limits = replace(limits, threshold=selection.threshold)
        return replace(staged, selection=selection, sent=replace(staged.sent, limits=limits))

    async def compacted(self, staged: StagedView, limits: TokenLimits) -> StagedView:
        """Return a view that is compacted for its reason, or the same one with the attempt noted.

        Handlers are asked once for a request, whatever number of attempts it takes.
        """
        compactor = self._compactor
        if inside_handler(compactor):
            return staged  # a handler of a compaction asks: there would be no end to it
        job = CompactionJob(staged.selection)
        async with compactor.alone():
            if self._announced is None:
                self._focus_drops = compactor.focus_drops
                decision = await emit(compactor.hooks, compactor, PRE_COMPACT, dict(job.announcement))
                self._announced, self._denied = decision.injected or "", decision.denied
            if self._denied and job.tokens <= limits.capacity:
                return replace(staged, postponed=job)
            async with compactor.lock.hold():
                if not compactor.cache.is_current(staged.selection):
                    staged = await self._selected(limits)
                    if staged.selection.reason is None:
                        return staged
                job = CompactionJob(staged.selection, injected=self._announced or None, focus_drops=self._focus_drops)
                result = await compactor.compact(job)
                sent = self._sent(result.candidate, result.candidate.outgoing.messages, staged.selection.threshold)
                return replace(staged, result=result, sent=sent)

    async def clipped(self, staged: StagedView, limits: TokenLimits) -> StagedView:
        """Return the same view with what no checkpoint can cover clipped to fit."""
        async with self._compactor.lock.hold():
            candidate = await Candidate.of(staged.sent.view, replace(self.request, limits=limits))
            messages, _ = await candidate.fitted()
            return replace(staged, sent=self._sent(candidate, messages, staged.selection.threshold))

    async def accept(self, staged: StagedView, agree: Callable[[], bool]) -> SentView | None:
        """Let a staged view be what the session sent last, and its compaction the session's.

        Args:
            staged: the view.
            agree: called right before the session changes, with nothing in between; false to change nothing.

        Returns:
            What was sent; None if the history that the view shows was edited meanwhile, or if `agree` returned False.
        """
        compactor, selection = self._compactor, staged.selection
        async with compactor.lock.hold():
            if not compactor.shows_current_history(selection) or not agree():
                return None
            budget = staged.sent.limits.budget
            is_superseded = Basis.of(compactor, budget) != staged.basis
            if not is_superseded:
                if staged.is_copy:
                    candidate = Candidate(staged.sent.view, selection.request, staged.sent.outgoing)
                    compactor.put_in(replace(selection, candidate=candidate))
                if staged.postponed is not None:
                    compactor.postpone(staged.postponed)
                elif staged.result is not None:
                    compactor.accept(staged.result)
            return compactor.finish_request(staged.sent, selection.pause, serves=not is_superseded)

    async def _selected(self, limits: TokenLimits) -> StagedView:
        """Select the view for these limits; the caller holds the lock."""
        cache = self._compactor.cache
        selection, is_copy = await self._compactor.selected(replace(self.request, limits=limits))
        basis = Basis.of(self._compactor, limits.budget)
        missing = [seq for seq in self.request.required if not selection.view.shows(seq)]
        if missing:
            selection = await cache.with_verbatim(selection, missing)
        sent = self._sent(selection.candidate, selection.candidate.outgoing.messages, selection.threshold)
        return StagedView(selection, sent, basis, is_copy or bool(missing))

    def _sent(self, candidate: Candidate, messages: Sequence[RenderedMessage], threshold: int) -> SentView:
        counted = self.request.system_tokens + tokens_of(messages)
        return sent_view(candidate, [*messages, *self.request.appended], counted, threshold)
