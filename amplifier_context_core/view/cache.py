"""The views in use, one for each budget: a least recently used cache that chooses the view of a request.

A side call with a small window does not disturb the long view, and a request that goes back to the larger budget finds
the old prefix unchanged. Not locked: the `Compactor` lets one task in at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from ..compaction.checkpoint import Checkpoint
from ..config import Config
from ..economics.trigger import CompactionBackoff
from ..errors import NotLoaded
from ..history.history import History
from ..messages.tokens import TokenCounter
from ..rendering.sendable import is_left_out
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot
from . import shared_cache
from .candidate import Candidate, ViewRequest
from .plan import Plan, Revision
from .session_state import SessionState, rehydrate
from .view import View
from .view_factory import MIN_BUDGET_RATIO, ViewFactory

MAX_VIEWS = 4
MAX_BUDGETS = 32  # budgets whose view is remembered


class ViewCache:
    def __init__(self, history: History, config: Config, factory: ViewFactory) -> None:
        self.views: list[View] = []  # least recently used first
        self.by_budget: dict[int, View] = {}  # the view that served a budget last
        self.edits = 0  # of views in place: once it grows, no plan made before is current
        self.changes = 0  # of views, in this process: when it grows, the session state is to be saved
        self._history = history
        self._config = config
        self.factory = factory

    def revision(self, budget: int) -> Revision:
        view = self.by_budget.get(budget)
        return Revision(view, view.checkpoint if view else None, frozenset(self.factory.directions.pins), self.edits)

    def touch(self, budget: int, view: View) -> None:
        if view in self.views:
            self.views.remove(view)
        self.views.append(view)
        if self.by_budget.pop(budget, None) is not view and view.budget != budget:
            self.changes += 1  # without it a resumed session would make one for this budget
        self.by_budget[budget] = view
        if len(self.by_budget) > MAX_BUDGETS:
            del self.by_budget[next(iter(self.by_budget))]
        if len(self.views) > MAX_VIEWS:
            self.drop(self.views[0])

    def put_in(self, budget: int, new: View) -> None:
        """Let a view serve a budget, in place of the others that were made for it.

        A twin stays beside it: requests may alternate between a limit for which the newest human message is clipped,
        and one that has room for it.
        """
        self.changes += 1
        for old in [*self.views] if new.budget == budget else ():
            if old.budget == budget and old is not new and not _is_twin(old, new):
                self.by_budget = {key: new if view is old else view for key, view in self.by_budget.items()}
                self.views.remove(old)
        self.touch(budget, new)

    def drop(self, view: View) -> None:
        if view in self.views:
            self.views.remove(view)
        self.by_budget = {budget: kept for budget, kept in self.by_budget.items() if kept is not view}

    def clear(self) -> None:
        self.edits += 1
        self.factory.beginning = None
        self.views.clear()
        self.by_budget.clear()

    def start_over(self, counter: TokenCounter) -> None:
        """Let each view be made from the history when its budget is asked for, as large as it was."""
        former = dict(self.by_budget)
        self.clear()
        fresh = {view: self.factory.view(None, view.budget, view.output_limit, counter) for view in former.values()}
        for budget, view in former.items():
            self.touch(budget, fresh[view])

    def _eligible(self, budget: int) -> list[View]:
        """Return the views that may serve a budget: the one that served it last, then the largest first.

        With an older checkpoint than that one has, what compactions took out would come back, and the whole prefix
        would be written again.
        """
        last = self.by_budget.get(budget)
        near = [
            view
            for view in self._large_enough(budget)
            if last is None or view.made_at > last.made_at or _is_twin(view, last)
        ]
        near.sort(key=lambda view: view.tokens, reverse=True)
        return [last, *near] if last else near

    def _large_enough(self, budget: int) -> list[View]:
        return [view for view in self.views if view.budget >= MIN_BUDGET_RATIO * budget]

    async def choose(self, request: ViewRequest) -> Plan:
        """Return the plan of a request, neither compacted nor clipped. Nothing that is saved changes."""
        try:
            return await self._chosen(request)
        except NotLoaded:  # by a view that is made from the start of the history
            await self._history.load()
            return await self._chosen(request)

    async def _chosen(self, request: ViewRequest) -> Plan:
        budget = request.limits.budget
        eligible = self._eligible(budget)
        # The history may change while this waits: all of it is of one state, and `is_current` compares with that.
        history, interrupted = self._history.snapshot(), self._history.interrupted
        plans: dict[View, Plan] = {}
        for view in eligible:
            if await self._refresh(view, history, interrupted):
                plan = plans[view] = await self._plan(view, request, history, interrupted)
                if plan.reason is None and not await plan.candidate.clipped_human():
                    return plan
        # A checkpoint for this budget is made from its own view, else from the smallest larger one.
        smallest = min(self._large_enough(budget), key=lambda view: view.budget, default=None)
        base = self.by_budget.get(budget, smallest)
        if base in plans:
            return plans[base].unless_postponed()
        if base is None or not await self._refresh(base, history, interrupted):  # the history it covered was edited
            history, interrupted = self._history.snapshot(), self._history.interrupted
            base = await self.factory.of_history(history, interrupted, request)
            if base.checkpoint:  # of another session, perhaps one with newer ones
                await self._show_newest_human(base, history)
        return (await self._plan(base, request, history, interrupted)).unless_postponed()

    async def _plan(self, view: View, request: ViewRequest, history: Snapshot, interrupted: frozenset[int]) -> Plan:
        candidate, revision = await Candidate.of(view, request), self.revision(request.limits.budget)
        return Plan.of(candidate, history, interrupted, revision, self._config)

    async def all_current(self, history: Snapshot, interrupted: frozenset[int]) -> list[View]:
        """Return the views of the session, up to date with this history, but for one that needs more of the history
        than is loaded: it shows nothing yet.
        """
        current: list[View] = []
        for view in [*self.views]:
            with suppress(NotLoaded):
                if await self._refresh(view, history, interrupted):
                    current.append(view)
        return current

    async def with_verbatim(self, plan: Plan, seqs: Collection[int]) -> Plan:
        """Plan a copy of the view that shows these entries verbatim; the view itself stays as it is."""
        view, counter = plan.view, plan.request.counter
        copy = self.factory.view(view.checkpoint, view.budget, view.output_limit, counter)
        copy.revision, copy.backoff = view.revision, view.backoff
        return await self._with_copy(plan, copy, seqs)

    async def with_checkpoint(self, plan: Plan, checkpoint: Checkpoint) -> Plan:
        """Plan a view that goes on from this checkpoint, with the same back-off; the view itself stays as it is."""
        copy = self.factory.for_limits(checkpoint, plan.request.limits, plan.request.counter)
        copy.backoff = plan.view.backoff
        return await self._with_copy(plan, copy)

    async def _with_copy(self, plan: Plan, copy: View, seqs: Collection[int] = ()) -> Plan:
        await copy.update(plan.history, len(plan.history), plan.interrupted)
        for seq in seqs:
            await copy.show_verbatim(seq, plan.history)
        return replace(plan.judged(await Candidate.of(copy, plan.request), self._config), is_copy=True)

    def render_again(self, seq: int) -> None:
        """Let the views that hold an entry after their checkpoint render it again. The caller holds the lock."""
        for view in self.views:
            if view.made_at < seq <= view.newest_seq:
                self.edits += 1
                view.reset()

    def is_current(self, plan: Plan) -> bool:
        """True if neither the history nor what the session has for the budget changed since the plan was made."""
        then, now = plan.history, self._history.snapshot()  # more of it may be loaded
        is_same = (then.revision, len(then), plan.interrupted) == (now.revision, len(now), self._history.interrupted)
        return is_same and plan.revision == self.revision(plan.request.limits.budget)

    async def _refresh(self, view: View, history: Snapshot, interrupted: frozenset[int]) -> bool:
        """Bring a view up to date; if its checkpoint is not of this history, drop it and return False."""
        unchanged = self._history.unchanged_since(view.revision)
        revised = view.revision not in (-1, history.revision)
        if not await view.update(history, unchanged, interrupted):
            self.drop(view)
            return False
        if revised:
            await self._show_newest_human(view, history)  # newer ones were taken out of the history
        return True

    async def show_newest_human(self) -> None:
        """Newer messages of people were taken out of the history."""
        history = self._history.snapshot()
        for view in await self.all_current(history, self._history.interrupted):
            await self._show_newest_human(view, history)

    async def _show_newest_human(self, view: View, history: Snapshot) -> None:
        """Show the newest message of a person: a checkpoint that was made with a newer one need not show it."""
        newest = _newest_human(history)
        if newest is None or (newest and not view.mentions(newest)):
            await self._history.load()  # also for a message in a chapter: its round is read from all that it covers
            history = self._history.snapshot()
            newest = _newest_human(history)
        if newest and not view.mentions(newest):
            await view.show_verbatim(newest, history)

    async def show_verbatim(self, seqs: Collection[int]) -> None:
        self.edits += 1
        history = self._history.snapshot()
        for view in await self.all_current(history, self._history.interrupted):
            for seq in seqs:
                await view.show_verbatim(seq, history)

    def valid_views(self) -> list[View]:
        return [
            view
            for view in self.views
            if view.checkpoint and self._history.unchanged_since(view.revision) >= view.checkpoint.covered
        ]

    def restore(self, state: SessionState, entries: Mapping[int, Entry], counter: TokenCounter) -> None:
        """Restore the views; one without a checkpoint is filled when its budget is asked for.

        Raises `IndexError`, `KeyError`, `ValueError`: an entry is missing, or the state makes no sense; nothing was
        restored.
        """
        checkpoints = [rehydrate(one, entries) for one in state.views]
        views: list[View] = []
        for saved, checkpoint in zip(state.views, checkpoints, strict=True):
            view = self.factory.view(checkpoint, saved.budget, saved.output_limit, counter)
            view.revision, view.backoff = self._history.revision, saved.backoff
            views.append(view)
            shared_cache.put(state.compatibility_key, checkpoint, saved.backoff)
        self.views.extend(views)
        self.restore_uncompacted(state, counter)
        for budget, number in state.by_budget:
            if 0 <= number < len(views):
                self.touch(budget, views[number])

    def restore_uncompacted(self, state: SessionState, counter: TokenCounter) -> None:
        """Restore the views without a checkpoint, if they are shown as they were made."""
        if state.compatibility_key == self.factory.compatibility_key(counter):
            made: dict[tuple[int, int, CompactionBackoff | None], View] = {}  # one view may serve several budgets
            for saved in state.uncompacted_views:
                key = saved.budget, saved.output_limit, saved.backoff
                view = made.setdefault(key, self.factory.view(None, saved.budget, saved.output_limit, counter))
                view.backoff = saved.backoff
                self.touch(saved.served_budget, view)


def _is_twin(view: View, other: View) -> bool:
    """True if the checkpoints of two views of one budget differ in whether the newest human message is clipped."""
    ours, theirs = view.checkpoint, other.checkpoint
    if view is other or view.budget != other.budget or ours is None or theirs is None:
        return False
    is_same_time = (ours.covered, ours.made_at) == (theirs.covered, theirs.made_at)
    return is_same_time and ours.clips_newest_human != theirs.clips_newest_human


def _newest_human(history: Snapshot) -> int | None:
    """Return the seq of the newest message of a person that is for the model; 0 if there is none.

    None if it may be among the entries that are not loaded.
    """
    for index in range(len(history) - 1, -1, -1):
        if index in history.gap:
            return None
        if history[index].human and not is_left_out(history[index].message):
            return history[index].seq
    return 0
