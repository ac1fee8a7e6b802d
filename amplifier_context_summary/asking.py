"""One question to a model: the limits before it, the events around it, the checks of its answer.

An answer that is no good is asked for once more, with the reason. A call that fails is followed by a back-off.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from amplifier_context_core.economics.meter import MIN_RATIO
from amplifier_context_core.events import emit
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.messages.usage import Usage
from amplifier_context_core.session.session import Session

from .call import CallFailed
from .checks import RejectedAnswer, Reply
from .config import SummaryConfig
from .limits import Limits, Prices
from .text import Text

STARTED = "context:summary_started"
FINISHED = "context:summary_finished"
FAILED = "context:summary_failed"
EVENTS = (STARTED, FINISHED, FAILED)

Status = Literal["idle", "running", "ready", "failed", "refused"]


class Made(NamedTuple):
    """What an answer brings.

    Attributes:
        carrier: the provider's, if it compacted the conversation itself.
        dropped: how many lines of the answer do not count, by reason.
    """

    text: Text
    carrier: Message | None
    dropped: Mapping[str, int]


class Refused(Exception):
    """No model is asked; the text says why."""


class OutOfDate(Exception):
    """What is asked about was edited, erased or taken back; no fault of the provider, so nothing has to wait."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a provider is asked.

    Attributes:
        written: tokens of the answer, about.
        ask: makes the call; returns its answer and what it took.
        read: returns what an answer brings, or raises `RejectedAnswer`.
        outdated: returns why it may no longer be asked; empty if it may.
        again: returns the question for a better answer, given what was wrong with the last one.
    """

    about: dict[str, Any]
    size: int
    written: int
    prices: Prices
    ask: Callable[[], Awaitable[tuple[Any, Usage | None]]]
    read: Callable[[Any], Awaitable[Made]]
    outdated: Callable[[], str]
    again: Callable[[str], Question] | None = None


@dataclass(slots=True)
class Asking:
    """Asks, within the limits of a session.

    Attributes:
        clock: seconds since 1970.
        status: of the last attempt, with the reason; for `explain`.
        upto: mark of the end of the newest range that was summarised.
        dropped: how many lines of its answer do not count, by reason.
    """

    config: SummaryConfig
    session: Session
    limits: Limits
    clock: Callable[[], float] = time.time
    by_hand: bool = False
    status: Status = "idle"
    reason: str = ""
    upto: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])

    async def answer(self, question: Question) -> Made | None:
        """Return what the answer to a question brings; None, with the reason noted, if that is nothing.

        Raises:
            Refused: the limits forbid the call.
            OutOfDate: a handler of the first event edited what it is about.
        """
        size, prices = question.size, question.prices
        if refused := self.limits.refusal(self.config, self.clock(), size):
            raise Refused(refused)
        written = max(question.written, self.limits.answered)
        if prices.of(Usage(size, written)) > self.limits.left(self.config, prices.fresh, by_hand=self.by_hand):
            raise Refused("summary_spend")
        self.note("running")
        await self._emit(STARTED, question.about)
        if why := question.outdated():
            await self._emit(FAILED, {**question.about, "reason": why})
            raise OutOfDate(why)
        try:
            found = await question.read(await self._call(question))
        except CallFailed as problem:
            await self.failed(str(problem), question.about, problem.retry_after)
        except RejectedAnswer as problem:
            if question.again is not None:
                with suppress(Refused):  # the limits forbid a second call: the first one has failed
                    return await self.answer(question.again(str(problem)))
            await self.failed(str(problem), question.about)
        else:
            self.limits.succeeded()
            await self._emit(FINISHED, question.about)
            return found
        return None

    async def _call(self, question: Question) -> Any:
        limits, size = self.limits, question.size
        limits.begin(self.clock(), size)
        try:
            answer, usage = await question.ask()
        except BaseException as problem:  # cancelled, or its loop was closed: the provider may work on it all the same
            if not (isinstance(problem, CallFailed) and problem.is_free):
                limits.summary_cost += question.prices.of(Usage(size))
            raise
        counted = Usage(size, len(answer.text) // 3 if isinstance(answer, Reply) else 0)
        cost, reported = question.prices.of(counted), question.prices.of(usage) if usage else 0.0
        taken = usage if usage and reported >= MIN_RATIO * cost else counted  # a lower report is implausible
        limits.summary_cost += question.prices.of(taken)
        limits.answered = taken.output_tokens
        return answer

    def note(self, status: Status, reason: str = "") -> None:
        """Note what became of the attempt."""
        self.status, self.reason = status, reason

    async def failed(self, reason: str, about: dict[str, Any] | None = None, retry_after: float | None = None) -> None:
        """Note an attempt that brought nothing; the next one waits, in the next process too.

        The session is saved before the event: a handler may hang or end the process.

        Args:
            reason: in words that quote nothing of the answer.
        """
        self.limits.failed(self.clock(), retry_after)
        self.note("failed", reason)
        await self.session.save()
        if about is not None:
            await self._emit(FAILED, {**about, "reason": reason})

    async def _emit(self, event: str, about: dict[str, Any]) -> None:
        session_id = self.session.history.session_id  # a conflict changes it (`on_conflict`)
        await emit(self.session.compactor.hooks, self, event, {"session_id": session_id, **about, **self._spent()})

    def _spent(self) -> dict[str, Any]:
        return {
            "calls": self.limits.calls,
            "session_cost": round(self.limits.session_cost),
            "summary_cost": round(self.limits.summary_cost),
            "waits_seconds": round(self.limits.waits(self.clock())),
        }

    def report(self) -> dict[str, Any]:
        """Return what `explain` says of summaries."""
        return {
            "status": self.status,
            "reason": self.reason,
            "upto": self.upto,
            "dropped": dict(self.dropped),
            **self._spent(),
        }
