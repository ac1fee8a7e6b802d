"""One question to a model: the limits before it, the events around it, the checks of its answer.

An answer that is no good is asked for once more, with the reason. A call that fails is followed by a back-off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

from amplifier_context_core.economics.meter import MIN_RATIO
from amplifier_context_core.events import Hooks, emit
from amplifier_context_core.futures import in_thread
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.messages.tokens import TokenCounter
from amplifier_context_core.messages.usage import Usage, measured

from .call import TIMEOUT, Caller, CallFailed
from .checks import RejectedAnswer, Reply, Shown, checked, lines_in
from .config import SummaryConfig
from .files import files_of
from .limits import Limits, Prices
from .request import REPAIR, Range
from .text import Text

STARTED = "context:summary_started"
FINISHED = "context:summary_finished"
FAILED = "context:summary_failed"
EVENTS = (STARTED, FINISHED, FAILED)

Outdated = Callable[[], str]
"""Returns why what is asked about does not hold any more; empty while it does."""

Status = Literal["idle", "running", "ready", "failed", "refused"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the last attempt, for `explain`.

    Attributes:
        upto: mark of the end of the newest range that was summarised.
        may_pass: true if a call had no answer, for a reason that may be gone after the back-off.
        about: what the event of a failure says of the question, while that event is not emitted.
    """

    status: Status = "idle"
    reason: str = ""
    upto: str = ""
    may_pass: bool = False
    about: Mapping[str, Any] | None = None


class OutOfDate(Exception):
    """What was to be asked about was edited, erased or taken back: no request shows it any more."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked.

    Attributes:
        former: the text before the range.
        most: tokens that the text may have.
        size: tokens of the request.
        outdated: returns why it may no longer be asked; empty if it may.
    """

    messages: list[Message]
    range: Range
    former: Text
    most: int
    size: int
    prices: Prices
    counter: TokenCounter
    outdated: Outdated

    @property
    def about(self) -> dict[str, Any]:
        """What events say of it."""
        return {"first": f"m{self.range.first}", "last": f"m{self.range.last}", "input_tokens": self.size}

    def again(self, reason: str) -> Question:
        """Return the question for a better answer than the last one."""
        text = REPAIR.format(reason=reason)
        messages = [*self.messages, {"role": "user", "content": text}]
        return replace(self, messages=messages, size=self.size + self.counter(text))

    def read(self, answer: Reply) -> Text:
        """Return the text of an answer, checked and within its size.

        Raises:
            RejectedAnswer: it cannot be used.
        """
        entries = self.range.entries
        text = checked(lines_in(answer), Shown(entries, self.former), self.former)
        return text.fitted(self.counter, self.most).with_files(files_of(entries))


@dataclass(slots=True)
class Asking:
    """Asks, within the limits of a session. It saves nothing: by `changes`, its caller decides whether to.

    Attributes:
        session_id: returns that of the session; a conflict changes it (`on_conflict`).
        changes: the number of answers kept and of failures. The session is saved after each, before it is announced.
        by_hand: the question is about a compaction that was asked for.
        may_ask_again: the model may be asked once more after an answer that is no good.
    """

    config: SummaryConfig
    session_id: Callable[[], str]
    limits: Limits
    hooks: Hooks | None
    clock: Callable[[], float]
    outcome: Outcome = field(default_factory=Outcome)
    changes: int = 0
    may_ask_again: bool = True
    by_hand: bool = False

    async def text(self, caller: Caller, question: Question) -> Text | None:
        """Return the checked text that answers a question; None, with the reason noted, if there is none."""
        is_again = False
        while True:
            about = question.about | {"again": is_again}
            if refused := self.refusal(question.size, question.prices, question.most):
                self.note("refused", refused)
                return None
            answer: Reply | None = None
            failed: CallFailed | None = None
            try:
                ask = partial(caller.ask, question.messages)
                answer = await self.call(ask, question.size, question.prices, about, question.outdated)
                text = await in_thread(question.read, answer)
            except OutOfDate as problem:
                await self.given_up(about, str(problem))
                return None
            except CallFailed as problem:
                reason, failed = problem.reason, problem
            except RejectedAnswer as problem:
                reason = problem.reason
                if self.may_ask_again:
                    self.may_ask_again, is_again = False, True
                    question = question.again(reason)
                    continue
            else:
                await self.succeeded(about)
                return text
            self.failed(about, reason, failed)
            return None

    def refusal(self, size: int, prices: Prices, written: int) -> str:
        """Return why a request of `size` tokens with an answer of `written` may not be made now; empty if it may."""
        cost = size * prices.fresh + written * prices.output
        return self.limits.refusal(self.clock(), size + self.config.summary_output, cost, by_hand=self.by_hand)

    async def call(
        self,
        ask: Callable[[], Awaitable[tuple[T, Usage | None]]],
        size: int,
        prices: Prices,
        about: dict[str, Any],
        outdated: Outdated,
    ) -> T:
        """Return what a call brings, and note what it took.

        Args:
            ask: makes the call; returns what it brings and what it took.
            size: tokens of the request.
            outdated: returns why it may no longer be made, after the handlers of its event; empty if it may.

        Raises:
            OutOfDate: it may not.
            CallFailed: the provider raised an error, took too long, or answered nothing that can be read.
        """
        self.note("running")
        await self.emit(STARTED, about)
        if why := outdated():
            raise OutOfDate(why)
        self.limits.begin(self.clock(), size)
        try:
            answer, usage = await ask()
        except BaseException as problem:  # cancelled, or its loop was closed: the provider may work on it all the same
            self.limits.paid(prices.of(self._usage_without_answer(problem, size), with_output=True))
            raise
        written = len(answer.text) // 3 if isinstance(answer, Reply) else 0
        self.limits.paid(prices.of(_counted_usage(usage, size, written), with_output=True))
        return answer

    def _usage_without_answer(self, problem: BaseException, size: int) -> Usage:
        """Return the most that a call without an answer is counted with."""
        if not isinstance(problem, CallFailed) or problem.reason == TIMEOUT:
            return Usage(size, self.config.summary_output)
        return Usage(0 if problem.is_free else size)

    async def succeeded(self, about: dict[str, Any]) -> None:
        """Note an answer that counts."""
        self.limits.succeeded()
        await self.emit(FINISHED, about)

    def note(self, status: Status, reason: str = "", upto: str | None = None) -> None:
        """Note what became of the attempt; `Outcome` says what is what."""
        self.outcome = Outcome(status, reason, self.outcome.upto if upto is None else upto)

    def kept(self, upto: str) -> None:
        """Note that an answer is kept; arguments are those of `note`."""
        self.note("ready", upto=upto)
        self.changes += 1

    def failed(self, about: dict[str, Any], reason: str, call: CallFailed | None = None) -> None:
        """Note an attempt that brought nothing; the next one waits, in the next process too.

        Args:
            about: what its event says, once the session is saved (`announce`); nothing if there was no question.
            reason: in words that quote nothing of the answer.
            call: the call that failed; None if there was an answer.
        """
        self.limits.failed(self.clock(), call.retry_after if call else None)
        may_pass = call is not None and call.may_pass
        self.outcome = Outcome("failed", reason, self.outcome.upto, may_pass, about or None)
        self.changes += 1

    async def announce(self) -> None:
        """Emit the event of a failure. The session is saved first: a handler may hang or end the process."""
        outcome = self.outcome
        if outcome.about is not None:
            self.outcome = replace(outcome, about=None)
            await self.emit(FAILED, {**outcome.about, "reason": outcome.reason})

    async def given_up(self, about: dict[str, Any], reason: str) -> None:
        """Report an attempt that was given up for a reason that is no fault of the provider: nothing has to wait."""
        self.note("failed", reason)
        await self.emit(FAILED, about | {"reason": reason})

    async def emit(self, event: str, about: dict[str, Any]) -> None:
        """Emit an event, with what was spent so far."""
        await emit(self.hooks, self, event, {"session_id": self.session_id(), **about, **self.spent()})

    def spent(self) -> dict[str, Any]:
        """Return what events and `explain` say of costs."""
        return {
            "calls": self.limits.calls,
            "session_cost": round(self.limits.session_cost),
            "summary_cost": round(self.limits.summary_cost),
            "waits_seconds": round(self.limits.waits(self.clock())),
        }

    def report(self) -> dict[str, Any]:
        """Return what `explain` says of summaries."""
        outcome = self.outcome
        return {"status": outcome.status, "reason": outcome.reason, "upto": outcome.upto, **self.spent()}


def _counted_usage(usage: Usage | None, size: int, written: int) -> Usage:
    """Return what a call took: as its provider reported it, and as counted here where the report is implausible.

    `size` and `written` are the tokens of the request and, about, of the answer's text.
    """
    if usage is None or measured(usage) < MIN_RATIO * size:
        return Usage(size, max(written, usage.output_tokens if usage else 0))
    if usage.output_tokens < MIN_RATIO * written:
        usage = replace(usage, output_tokens=written)
    return usage if usage.cache_read_tokens <= usage.input_tokens else replace(usage, cache_read_tokens=0)
