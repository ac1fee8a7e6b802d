"""A request whose size its provider counts before it is sent: the contract ``context.measured_request_view``.

The loop's callbacks count a view as part of the whole request, tools and reminders included. Such a count is exact, so
while it is given it takes the meter's place. A view that is counted as too large is compacted further and counted
again. Nothing of this changes the session before the loop commits the transaction.

Source of the contract: the tests of loop-streaming and context-simple (docs/kernel.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ..config import Config
from ..economics.meter import MIN_RATIO, Units
from ..economics.trigger import TokenLimits, token_limits
from ..errors import ContextOverflow
from ..events import HookDecision, inside_handler
from .candidate import Candidate, ViewRequest
from .compactor import Compactor
from .figures import overflow
from .plan import CompactionJob, Plan
from .sent_view import SentView

CountView = Callable[[list[dict[str, Any]]], Awaitable[Mapping[str, Any]]]
FitOutput = Callable[[list[dict[str, Any]], Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]

MOST_COMPACTIONS = 3  # of one request; each costs a call of the provider's count
_CERTAIN = 2  # times the capacity: a view that large is not counted before it is compacted; no count is off by that
_MOST_TOKENS = 2**63 - 1  # that loops name, as they do for no limit
_LEAST_STEP = 200  # counted tokens between two counts of which a ratio is read


@dataclass(frozen=True, slots=True)
class Count:
    """What the loop's callback returned for one view."""

    raw: Mapping[str, Any]
    tokens: int | None  # of the whole request, as the provider counted them; None if it did not
    estimated: int | None  # of the whole request, with the provider's reserve; None if unknown
    limit: int | None  # tokens that the provider takes; None if unknown
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # of the view, as they were counted

    @property
    def is_too_large(self) -> bool:
        return self.estimated is not None and self.limit is not None and self.estimated > self.limit

    @property
    def size(self) -> int | None:
        """Tokens of the request: counted, or what the provider holds to be too many; None if unknown."""
        return self.estimated if self.tokens is None and self.is_too_large else self.tokens

    def accepted(self, budget: int) -> int:
        """Return the tokens of `size` that the request may have: the budget, or what the provider's limit leaves."""
        if self.estimated is None or self.limit is None or self.size is None:
            return budget
        return max(1, min(budget, self.limit - (self.estimated - self.size)))


def count_of(raw: object, *, fitted: bool = False) -> Count:
    """Raise `TypeError`, which names the field, if a result has another form; what ``fit_output`` returned needs a
    decision.
    """
    name = "fit_output" if fitted else "count_view"
    fields = _mapping(raw)
    if fields.get("dispatch") is None:
        raise TypeError(f"{name} must return a mapping with a `dispatch`, got {type(raw).__name__}")
    if fitted and not _is_count(fields.get("count_calls")):
        raise TypeError("fit_output must return `count_calls`, the number of counts it made")
    if not fitted and fields.get("budget_decision") is None:
        return Count(fields, None, None, None)
    if not isinstance(fields.get("budget_decision"), Mapping):
        raise TypeError(f"{name}: `budget_decision` must be a mapping")
    decision = _mapping(fields["budget_decision"])
    estimated, limit = decision.get("estimated_input_tokens"), decision.get("input_limit_tokens")
    if not _is_count(estimated) or not _is_count(limit):
        raise TypeError(
            f"{name}: estimated_input_tokens and input_limit_tokens must be whole numbers from 0 to 2**63 - 1"
        )
    measurement = _mapping(decision.get("measurement"))
    tokens = measurement.get("input_tokens")
    is_exact = measurement.get("kind") == "provider_count" and _is_count(tokens)
    return Count(fields, cast("int", tokens) if is_exact else None, cast("int", estimated), cast("int", limit))


@dataclass(slots=True)
class MeasuredRequest:
    compactor: Compactor
    request: ViewRequest  # that the views are for; each step gives it limits
    config: Config
    messages_of: Callable[[SentView], list[dict[str, Any]]]  # returns the messages of a view as its provider takes them
    count_view: CountView
    fit_output: FitOutput | None  # the loop's callback that asks for a shorter answer; may be None
    count_calls: int = 0
    _asked: tuple[CompactionJob, HookDecision] | None = None  # what the handlers were asked, and their answer
    _counted: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # here, and by its provider
    _selected_for: int = 0  # `TokenLimits.accepted` of the last selection

    async def run(self) -> tuple[Plan, dict[str, Any]]:
        """Return the view to be sent, and the result of the contract but for its transaction, in the provider's tokens.
        Raises `ContextLengthError`: what must be kept does not fit what the provider takes; `ContextOverflow`: under
        `strict`, when it does not fit the budget; `TypeError`: a callback returned something of another form.
        """
        limits = self._likely_limits()
        self._selected_for = limits.accepted
        base = plan = await self._as_it_is(limits)
        first = attempt = last_resort = None
        if plan.counted <= _CERTAIN * self.request.limits.capacity:
            first = attempt = await self._count(plan)
            limits = self._limits(attempt, limits)
        for _ in range(MOST_COMPACTIONS):
            base, plan = base.under(limits, self.config), plan.under(limits, self.config)
            is_over = plan.counted > limits.capacity or (attempt is not None and attempt.is_too_large)
            is_due = plan.result is None and plan.reason is not None
            may_change = plan.result is None and (is_over or is_due or limits.accepted > self._selected_for)
            if may_change and (other := await self._other(plan, limits)) is not None:
                base = plan = other
                attempt = await self._count(other)
                limits = self._limits(attempt, limits)
                continue
            if not is_over and not is_due:
                break
            smaller = await self._compacted(base, limits)
            if smaller.result is None and smaller.postponed is None:
                base = smaller  # the session changed meanwhile: another view serves the budget
            ladder = smaller.result.ladder if smaller.result else None
            is_clipped = ladder is not None and bool(ladder.clipped_protected)
            if self.fit_output is not None and attempt is not None and attempt.is_too_large and is_clipped:
                last_resort = smaller  # rather a shorter answer than less of what must stay
                break
            if smaller.messages == plan.messages:
                plan = smaller if plan.result is None else plan
                break
            plan, attempt = smaller, await self._count(smaller)
            if attempt.size is None:
                break
            limits = self._limits(attempt, limits)
        attempt = attempt or await self._count(plan)
        outcome = _outcome(plan, attempt, limits)
        if attempt.is_too_large and self.fit_output is not None:
            if (fitted := await self._fitted(attempt)) is not None:
                known = fitted if fitted.size is not None else replace(fitted, tokens=fitted.estimated)
                attempt, limits, outcome = fitted, self._limits(known, limits), "reduced_output"
            elif last_resort is not None:
                plan, attempt = last_resort, await self._count(last_resort)
                outcome = _outcome(plan, attempt, limits)
        if attempt.is_too_large or plan.counted > limits.capacity:
            plan, attempt = await self._clipped(plan, attempt, limits)
            outcome = "measurement_unavailable" if attempt.tokens is None else outcome
        # The session goes on with the limits that the last count shows.
        plan = replace(plan, candidate=replace(plan.candidate, request=replace(self.request, limits=limits)))
        job = plan.result.job if plan.result else plan.postponed
        return plan, {
            "base_view": attempt.messages,
            "final_attempt": attempt.raw,
            "outcome": outcome,
            "measured_before": first.tokens if first else None,  # None too if it was too large to ask about
            "measured_after": attempt.tokens,
            "policy_budget": limits.budget,
            "trigger": limits.reported(plan.threshold),
            "target": limits.reported(job.target if job else limits.target),
            "count_calls": self.count_calls,
        }

    async def _as_it_is(self, limits: TokenLimits) -> Plan:
        """Plan the view of this budget neither compacted nor clipped."""
        async with self.compactor.lock.hold():
            return await self._chosen(limits)

    async def _chosen(self, limits: TokenLimits) -> Plan:
        """The caller holds the lock."""
        plan = await self.compactor.choose(replace(self.request, limits=limits))
        missing = [seq for seq in self.request.required if not plan.view.shows(seq)]
        return await self.compactor.cache.with_verbatim(plan, missing) if missing else plan

    async def _compacted(self, plan: Plan, limits: TokenLimits) -> Plan:
        """Plan a view that is compacted for its reason, or the same one with the attempt noted.

        Handlers are asked once for a request, whatever number of attempts it takes.
        """
        compactor = self.compactor
        if inside_handler(compactor):
            return plan  # a handler of a compaction asks: there would be no end to it
        async with compactor.in_flight.hold():
            job = CompactionJob(plan, focus_drops=compactor.directions.focus_drops)
            if self._asked is None:
                self._asked = job, await compactor.ask_handlers(job)
            asked, decision = self._asked
            if decision.denied and plan.candidate.tokens <= limits.capacity:
                return replace(plan, postponed=job)
            async with compactor.lock.hold():
                if not compactor.cache.is_current(plan):
                    plan = await self._chosen(limits)
                    if plan.reason is None:
                        return plan
                return await compactor.compact(replace(asked, plan=plan, injected=decision.injected))

    async def _count(self, plan: Plan) -> Count:
        messages = self.messages_of(plan.sent)
        self.count_calls += 1
        attempt = replace(count_of(await self.count_view(messages)), messages=messages)
        if attempt.tokens is not None and attempt.tokens < MIN_RATIO * plan.counted:
            attempt = replace(attempt, tokens=None)  # not of this view, or of a part of it
        if attempt.size is not None and plan.counted:
            self._counted.append((plan.counted, attempt.size))
        return attempt

    async def _other(self, plan: Plan, limits: TokenLimits) -> Plan | None:
        """Return another view of the session that is within these limits as it is."""
        if limits.accepted == self._selected_for:
            return None  # it was selected for them
        self._selected_for = limits.accepted
        other = await self._as_it_is(limits)
        is_within = other.counted <= limits.capacity
        return other if is_within and other.messages != plan.messages else None

    async def _fitted(self, attempt: Count) -> Count | None:
        """Ask for a shorter answer, which leaves the input more room; return None if that does not help."""
        raw = await self.fit_output(attempt.messages, attempt.raw) if self.fit_output else None
        if raw is None:
            return None
        fitted = replace(count_of(raw, fitted=True), messages=attempt.messages)
        self.count_calls += int(raw["count_calls"])
        return None if fitted.is_too_large else fitted

    async def _clipped(self, plan: Plan, attempt: Count, limits: TokenLimits) -> tuple[Plan, Count]:
        async with self.compactor.lock.hold():
            request = replace(self.request, limits=limits)
            clipped = await replace(plan, candidate=await Candidate.of(plan.view, request), clipped=None).fitted()
        if clipped.counted > limits.capacity and self.config.strict:
            raise ContextOverflow(overflow(clipped.sent)[0])
        if clipped.messages == plan.messages:
            again = attempt
        else:
            plan, again = clipped, await self._count(clipped)
        unknown = again.size is None and clipped.counted > limits.capacity
        if again.is_too_large or (unknown and attempt.is_too_large):
            from amplifier_core.llm_errors import ContextLengthError

            raise ContextLengthError("cannot fit protected content into what the provider takes")
        return plan, again

    def _likely_limits(self) -> TokenLimits:
        """Return the limits of the request, with what its provider took at most when it was sent the last view: where
        it takes the same again, the first view that is counted is the one that is sent.
        """
        limits, sent = self.request.limits, self.compactor.sent.by_key.get(self.request.key)
        if sent is None or sent.limits.budget != limits.budget or sent.limits.accepted >= limits.accepted:
            return limits
        return self._exact(limits, sent.limits.accepted, limits.units)

    def _limits(self, attempt: Count, limits: TokenLimits) -> TokenLimits:
        if attempt.size is None or not self._counted:
            return limits
        key, meter = self.request.key, self.compactor.meter
        counted, size = self._counted[-1]
        ratio = meter.known(key).ratio
        if len(self._counted) > 1 and abs(step := self._counted[0][0] - counted) >= _LEAST_STEP:
            seen = (self._counted[0][1] - size) / step
            ratio = seen if seen > 0 else ratio
        accepted = attempt.accepted(meter.accepted(limits.budget, key))
        return self._exact(limits, accepted, Units.exact(counted, size, ratio))

    def _exact(self, limits: TokenLimits, accepted: int, units: Units) -> TokenLimits:
        key, meter = self.request.key, self.compactor.meter
        return token_limits(self.config, meter, limits.budget, key, accepted=accepted, units=units)


class RequestTransaction:
    """Decides once whether a measured request is sent. Both methods may be called again, in any order. `accept`:
    changes the session if a function, called right before that, says yes; false if it did not change.
    """

    def __init__(self, accept: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
        self._accept = accept
        self._state = "open"

    async def commit(self, is_cancelled: Callable[[], bool] | None = None) -> bool:
        """Let the session go on from the counted request; call it right before the request is sent. `is_cancelled` is
        asked right before the session changes; true rolls the request back.

        Return true if the request may be sent; false if it was rolled back, was cancelled, or shows a history that was
        edited, or a session that was closed and opened again, since. A commit that is interrupted has either happened
        or changed nothing; then it may be rolled back. Raises `ContextError`: another live event loop makes a request
        or an edit; nothing was changed.
        """
        if self._state == "open" and not await self._accept(lambda: self._agreed(is_cancelled)):
            self.rollback()
        return self._state == "committed"

    def rollback(self) -> None:
        """Give the request up. The session is as if it had never been begun."""
        if self._state == "open":
            self._state = "rolled back"

    def _agreed(self, is_cancelled: Callable[[], bool] | None) -> bool:
        if self._state != "open" or (is_cancelled is not None and is_cancelled()):
            return False
        self._state = "committed"
        return True


def _outcome(plan: Plan, attempt: Count, limits: TokenLimits) -> str:
    """Return the contract's word. ``protected_floor``: what is left must stay, or is too little to free."""
    if attempt.tokens is None:
        return "measurement_unavailable"
    if plan.postponed is not None:
        return "postponed"
    if plan.result is None:
        return "protected_floor" if attempt.is_too_large else "not_needed"
    reached = attempt.tokens <= limits.reported(plan.result.job.target)
    return "target_reached" if plan.result.has_gain and reached else "protected_floor"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
