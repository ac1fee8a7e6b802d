"""The writer: a background task that asks a model for the next chapter before it is needed.

It looks at each view that is handed out. Near the trigger it previews the next compaction and asks for a patch of the
range that will be folded. It checks the answer, applies it to the state and keeps the record. The compaction takes what
is ready.
Whatever fails here, the digest is there: nothing waits, nothing is raised, and nothing unchecked is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.events import Hooks, emit
from amplifier_context_core.futures import in_thread
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.messages.tokens import TokenCounter, count_message_tokens
from amplifier_context_core.messages.usage import Usage
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_core.view.budget import context_window
from amplifier_context_core.view.compactor import Compactor
from amplifier_context_core.view.meter import Key
from amplifier_context_core.view.preview import Preview, ViewRequest, preview
from amplifier_context_core.view.sent_view import SentView
from amplifier_context_core.view.trigger import TokenLimits

from .call import TIMEOUT, Caller, CallFailed, provider_prices
from .checks import RejectedAnswer, Reply, checked, patch_in
from .config import SummaryConfig
from .files import files_of
from .limits import Limits, Prices
from .patch import Patch
from .prompt import REPAIR, prompt_text
from .records import Record, Records, digest_of
from .request import Range, fork_text, pieces_of, request_text
from .state import State, applied

log = logging.getLogger(__name__)

STARTED = "context:summary_started"
FINISHED = "context:summary_finished"
FAILED = "context:summary_failed"
EVENTS = (STARTED, FINISHED, FAILED)

_LEAST_TOKENS = 200  # of a range: a shorter one is not worth a call
_MOST_PIECES = 6  # of one range; of a longer one the newest
_WINDOW_SHARE = 0.6  # of the summariser's window: what the history in one call may take
_REGROWN = 0.15  # of the threshold: growth after which a view without a new range is looked at once more
_GRACE = 5.0  # seconds that closing waits for a cancelled task


@dataclass(frozen=True, slots=True)
class Moment:
    """The view that was handed out last, as far as the writer needs it.

    Attributes:
        limits: of its request.
        key: provider and model.
        system: the system prompt.
        tokens: of the whole view, counted.
        provider: that the request went to; None if the loop did not say.
    """

    limits: TokenLimits
    key: Key
    system: Sequence[RenderedMessage]
    tokens: int
    provider: Any = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A range that is to be summarised.

    Attributes:
        range: its rounds.
        start: index of its first entry, from the first after the leading instructions.
        state: before it.
        revision: of the history that it was read from.
        counter: text to tokens.
        focus: what a person asked to dwell on.
    """

    range: Range
    start: int
    state: State
    revision: int
    counter: TokenCounter
    focus: str | None = None


@dataclass(slots=True)
class Outcome:
    """What became of the last attempt, for `explain`.

    Attributes:
        status: ``idle``, ``running``, ``ready``, ``failed`` or ``refused``.
        reason: why it failed or was refused.
        upto: mark of the end of the newest range that was summarised.
    """

    status: Literal["idle", "running", "ready", "failed", "refused"] = "idle"
    reason: str = ""
    upto: str = ""


@dataclass(slots=True)
class Writer:
    """Asks a model for chapters ahead of time.

    Args:
        config: the session's settings.
        history: of the session.
        compactor: of the session.
        records: of the session.
        limits: what may be spent.
        hooks: for events; may be None.
        counter: returns the token counter.
        providers: returns the mounted providers by name.
        tools: returns the mounted tools by name.
        last_request: returns the messages of the last request.
        save: saves the session's state.
        clock: seconds, monotonic.
    """

    config: SummaryConfig
    history: History
    compactor: Compactor
    records: Records
    limits: Limits
    hooks: Hooks | None
    counter: Callable[[], Awaitable[TokenCounter]]
    providers: Callable[[], Mapping[str, Any]]
    tools: Callable[[], Mapping[str, Any]]
    last_request: Callable[[], list[Message]]
    save: Callable[[], Awaitable[None]]
    clock: Callable[[], float] = time.monotonic
    outcome: Outcome = field(default_factory=Outcome)
    session_prices: Prices = field(default_factory=Prices)
    _task: asyncio.Task[None] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _looked_at: tuple[int, int] = (-1, 0)  # compactions then, and tokens of the view from which it is looked at again
    _attempted: int = -1  # compactions when a model was asked last
    _fork_pays: bool = True  # until a forked call cost more than one that stands alone
    _may_repair: bool = True  # an answer that is no good may be asked for once more
    _warned: set[str] = field(default_factory=set[str])

    # -- when -------------------------------------------------------------------------------------------------------

    def after_request(self, sent: SentView, moment: Moment) -> None:
        """Look at a view that was handed out, and start a task if the next compaction is near. Waits for nothing."""
        if self.is_running or not self.config.max_summary_calls:
            return
        if moment.tokens < self.config.summarize_at * sent.limits.threshold:
            return
        compactions, again_at = self._looked_at
        if compactions == self.compactor.compactions and moment.tokens < again_at:
            return
        if self._attempted == self.compactor.compactions:
            return  # one attempt for each compaction, whatever came of it
        checkpoint = sent.view.checkpoint
        folded = max((one.last for one in checkpoint.segments if one.chapter), default=0) if checkpoint else 0
        if any(record.upto > folded for record in self.records.valid(self.history)):
            return  # what the next compaction folds is summarised
        if self.limits.waits(self.clock()):
            return
        self._looked_at = (self.compactor.compactions, moment.tokens + int(_REGROWN * sent.limits.threshold))
        self._start(self._write_ahead("trigger", moment, None))

    async def prepare(
        self, reason: Literal["trigger", "manual"], moment: Moment, focus: str | None, wait: float
    ) -> None:
        """Have the next compaction's range summarised, and wait for that at most `wait` seconds."""
        if not self.config.max_summary_calls:
            return
        if not self.is_running:
            self._start(self._write_ahead(reason, moment, focus))
        await self.wait(wait)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the task in flight, at most so long. It goes on afterwards."""
        task = self._task
        if task is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait({task}, timeout=seconds)

    @property
    def is_running(self) -> bool:
        """True if a model is being asked."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """Cancel the task in flight, and wait a little for its end."""
        task, loop = self._task, self._loop
        self._task = None
        if task is None or task.done() or loop is None:
            return
        if loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    def _start(self, work: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(work, name="amplifier-context-summary")

    # -- what -------------------------------------------------------------------------------------------------------

    async def _write_ahead(self, reason: Literal["trigger", "manual"], moment: Moment, focus: str | None) -> None:
        try:
            counter = await self.counter()
            request = ViewRequest(moment.limits, moment.key, moment.system, counter)
            found = await preview(self.compactor, request, reason)
            plan = await self._plan(found, counter, focus or self.compactor.focus)
            if plan is not None:
                self._attempted = self.compactor.compactions
                await self._write(plan, moment)
        except asyncio.CancelledError:
            self.outcome.status = "idle"
            raise
        except Exception as problem:  # noqa: BLE001 - a fault here must not reach a request; the digest is there
            self.outcome.status, self.outcome.reason = "failed", type(problem).__name__
            self.limits.failed(self.clock())
            log.warning("session %s: a summary failed (%s)", self.history.session_id, type(problem).__name__)

    async def _plan(self, found: Preview, counter: TokenCounter, focus: str | None) -> Plan | None:
        """Return what the next compaction folds and no record covers; None if that is too little."""
        history, upto = found.history, found.folded_upto
        # A manual compaction may fold less than was summarised ahead; its range is then asked for by itself.
        records = [record for record in await self.records.verified(self.history) if record.upto <= upto]
        leading = history.leading_count
        newest = records[-1] if records else None
        start = leading + (newest.covered if newest else 0)
        if start < history.gap.stop:
            start = max(start, history.gap.stop)
        end = next((i + 1 for i in range(len(history) - 1, start - 1, -1) if history[i].seq <= upto), start)
        entries = history[start:end]
        shown = [entry for entry in entries if not is_left_out(entry.message)]
        if sum(entry.tokens for entry in shown) < _LEAST_TOKENS:
            return None
        rounds = tuple(rounds_of(shown))
        whole = Range(rounds, found.digest, end - leading)
        return Plan(whole, start - leading, newest.state if newest else State(), history.revision, counter, focus)

    def _caller(self, moment: Moment) -> Caller | None:
        """Return the provider that is asked; None, with one warning, if there is none."""
        mounted = self.providers()
        name = self.config.summary_provider
        provider = mounted.get(name) if name else moment.provider or next(iter(mounted.values()), None)
        if not callable(getattr(provider, "complete", None)):
            what = f"no provider is mounted as {name!r} (summary_provider)" if name else "no provider is mounted"
            if what not in self._warned:
                self._warned.add(what)
                log.warning("session %s: %s; chapters are the digest's", self.history.session_id, what)
            return None
        return Caller(provider, self.config.summary_model, self.config.summary_output, self.config.summary_timeout)

    # -- asking -----------------------------------------------------------------------------------------------------

    async def _write(self, plan: Plan, moment: Moment) -> None:
        """Ask for the patches of a range, piece by piece; each that holds is kept at once."""
        self._may_repair = True
        caller = self._caller(moment)
        if caller is None:
            self.outcome.status, self.outcome.reason = "refused", "no provider"
            return
        window = context_window(caller.provider) or self.config.max_tokens
        free = max(window // 4, int(window * _WINDOW_SHARE) - self.config.summary_output)
        room = max(_LEAST_TOKENS, min(self.config.summary_input, free))
        pieces = (await in_thread(pieces_of, plan.range, plan.counter, room))[-_MOST_PIECES:]
        prices = await self._prices(caller, moment)
        prompt = await in_thread(self._prompt)
        if self.config.summary_call == "fork" and self._fork_pays and len(pieces) == 1:
            await self._write_forked(plan, caller, prompt, prices, plan.counter(prompt) + plan.counter(pieces[0][1]))
            return
        state, start = plan.state, plan.start
        for piece, quotation in pieces:
            text = request_text(piece, quotation, state, plan.focus)
            messages: list[Message] = [
                {"role": "system", "content": prompt},
                {"role": "user", "content": text},
            ]
            size = plan.counter(prompt) + plan.counter(text)
            patch = await self._patch(caller, messages, piece, state, size, prices, plan.counter)
            if patch is None:
                return
            state = self._applied(plan, piece, state, patch)
            if not await self._keep(plan, piece, start, state):
                return
            start = piece.covered

    async def _write_forked(self, plan: Plan, caller: Caller, prompt: str, prices: Prices, alone: int) -> None:
        """Ask behind the session's last request, which the provider has cached; later not again if that did not pay.

        Args:
            plan: the range, which the last request shows.
            caller: the provider.
            prompt: put before the question.
            prices: of the provider.
            alone: tokens of a request that stands alone.
        """
        text = fork_text(prompt, plan.range, plan.state, plan.focus)
        messages: list[Message] = [*self.last_request(), {"role": "user", "content": text}]
        size = sum(count_message_tokens(message, plan.counter) for message in messages)
        before = self.limits.summary_cost
        patch = await self._patch(caller, messages, plan.range, plan.state, size, prices, plan.counter, self.tools())
        paid = self.limits.summary_cost - before
        if paid > alone * prices.fresh + self.config.summary_output * prices.output:
            self._fork_pays = False
            log.info("session %s: summary_call fork does not pay; calls stand alone", self.history.session_id)
        if patch is not None:
            await self._keep(plan, plan.range, plan.start, self._applied(plan, plan.range, plan.state, patch))

    def _applied(self, plan: Plan, piece: Range, state: State, patch: Patch) -> State:
        files = files_of(piece.rounds)
        return applied(state, patch, piece.last, plan.counter, max_tokens=self.config.summary_tokens, files=files)

    async def _keep(self, plan: Plan, piece: Range, start: int, state: State) -> bool:
        """Keep the record of a piece, unless the history was edited meanwhile."""
        if self.history.unchanged_since(plan.revision) < piece.covered:
            self.outcome.status, self.outcome.reason = "failed", "the history was edited meanwhile"
            return False
        snapshot = self.history.snapshot()
        leading = snapshot.leading_count
        digest = await in_thread(digest_of, snapshot[leading + start : leading + piece.covered])
        if self.history.unchanged_since(plan.revision) < piece.covered:
            return False
        self.records.add(Record(start, piece.covered, piece.last, digest, state), self.history)
        self.outcome.status, self.outcome.reason, self.outcome.upto = "ready", "", f"m{piece.last}"
        await self.save()
        return True

    async def _patch(
        self,
        caller: Caller,
        messages: list[Message],
        piece: Range,
        state: State,
        size: int,
        prices: Prices,
        counter: TokenCounter,
        tools: Mapping[str, Any] | None = None,
    ) -> Patch | None:
        """Return the checked patch of one piece, None if there is none.

        An answer that is no good is asked for once more, with the reason, but once for each range only. Where that
        brings nothing better, or may not be asked for, the first answer is read as plain sections.
        """
        entries = {entry.mark: entry for entry in piece.entries}
        paths = frozenset(use.path for use in files_of(piece.rounds)) | {item.text for item in state.of("file")}

        def read(answer: Reply, *, plain: bool) -> Patch:
            return checked(patch_in(answer, plain=plain), entries, state, paths)

        first: Reply | None = None
        while True:
            cost = size * prices.fresh + self.config.summary_output // 2 * prices.output
            about = {"first": f"m{piece.first}", "last": f"m{piece.last}", "input_tokens": size, "again": bool(first)}
            refused = self.limits.refusal(self.clock(), size + self.config.summary_output, cost)
            wait: float | None = None
            answer: Reply | None = None
            try:
                if refused:
                    raise RejectedAnswer(refused, can_repair=False)
                answer = await self._ask(caller, messages, size, prices, about, tools)
                patch = read(answer, plain=first is not None or not self._may_repair)
            except (CallFailed, RejectedAnswer) as problem:
                reason = str(problem)
                if isinstance(problem, CallFailed):
                    wait = problem.retry_after
                elif problem.can_repair and self._may_repair:
                    self._may_repair = False
                    first = answer
                    again = REPAIR.format(reason=reason)
                    messages = [*messages, {"role": "user", "content": again}]
                    size += counter(again)
                    continue
                try:
                    patch = read(first or Reply(""), plain=True)
                except RejectedAnswer:
                    if refused:
                        self.outcome.status, self.outcome.reason = "refused", refused
                    else:
                        await self._failed(about, reason, wait)
                    return None
            self.limits.succeeded()
            await self._emit(FINISHED, about | self._spent())
            return patch

    async def _ask(
        self,
        caller: Caller,
        messages: list[Message],
        size: int,
        prices: Prices,
        about: dict[str, Any],
        tools: Mapping[str, Any] | None,
    ) -> Reply:
        self.outcome.status, self.outcome.reason = "running", ""
        await self._emit(STARTED, about | self._spent())
        self.limits.begin(self.clock(), size)
        try:
            answer, usage = await caller.ask(messages, tools)
        except CallFailed as problem:
            if problem.reason == TIMEOUT:  # the provider may have done the work
                self.limits.paid(prices.of(Usage(size, self.config.summary_output), with_output=True))
            raise
        self.limits.paid(prices.of(usage or Usage(size, len(answer.text) // 3), with_output=True))
        return answer

    async def _failed(self, about: dict[str, Any], reason: str, retry_after: float | None) -> None:
        self.limits.failed(self.clock(), retry_after)
        self.outcome.status, self.outcome.reason = "failed", reason
        await self._emit(FAILED, about | {"reason": reason} | self._spent())

    def _prompt(self) -> str:
        """Return the prompt; the shipped one, with a warning, if the file that the config names cannot be used."""
        try:
            return prompt_text(self.config.summary_prompt)
        except ConfigError as problem:
            if str(problem) not in self._warned:
                self._warned.add(str(problem))
                log.warning("session %s: %s; the shipped prompt is used", self.history.session_id, problem)
            return prompt_text(None)

    async def _prices(self, caller: Caller, moment: Moment) -> Prices:
        """Return the prices of the summariser, in the unit that the session's input is counted in."""
        self.session_prices = await provider_prices(moment.provider, None)
        theirs = await provider_prices(caller.provider, caller.model)
        if not (self.session_prices.known and theirs.known):
            return Prices()
        rates = (theirs.fresh, theirs.read, theirs.write, theirs.output)
        fresh, read, write, output = (rate / self.session_prices.fresh for rate in rates)
        return Prices(fresh, read, write, output, known=True)

    def _spent(self) -> dict[str, Any]:
        return {
            "calls": self.limits.calls,
            "session_cost": round(self.limits.session_cost),
            "summary_cost": round(self.limits.summary_cost),
            "waits_seconds": round(self.limits.waits(self.clock())),
        }

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        await emit(self.hooks, self, event, {"session_id": self.history.session_id, **data})

    def report(self) -> dict[str, Any]:
        """Return what `explain` says of summaries."""
        return {
            "status": self.outcome.status,
            "reason": self.outcome.reason,
            "upto": self.outcome.upto,
            **self._spent(),
        }
