"""The summary writer: a background task that asks a model for the next chapter before it is needed.

It looks at each view that is handed out. Near the trigger it previews the next compaction. If the range that will be
folded is large enough, and reading it costs no more than its digest saves, it asks once for the whole text anew, and
keeps the checked answer as a record. The compaction takes what is ready.
It saves nothing: the manager runs the task, and saves the session after the question (`Asking.changes`).
Whatever fails here, the digest is there: nothing waits, and nothing unchecked is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from amplifier_context_core.economics.budget import context_window, model_of, name_of
from amplifier_context_core.economics.trigger import TokenLimits
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.events import Hooks
from amplifier_context_core.futures import in_thread
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.messages.tokens import TokenCounter
from amplifier_context_core.outgoing.prefix import RequestPrefix
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.view.compactor import Compactor
from amplifier_context_core.view.preview import Preview, preview
from amplifier_context_core.view.sent_view import SentView
from amplifier_context_core.view.view_request import ViewRequest

from .asking import Asking, Question
from .call import Caller, listed_window, provider_prices
from .chapters import text_room
from .config import SummaryConfig
from .limits import Limits, Prices
from .material import material
from .native import Conversation, compacted, is_offered
from .records import Basis, Record, Records, digest_of
from .request import Range, prompt_text, range_of, request_text
from .text import Text

log = logging.getLogger(__name__)

_LEAST_TOKENS = 200  # of a range: a shorter one is not worth a call
_LEAST_SHARE = 0.25  # of the threshold: a smaller range waits for the next compaction; one that is asked for does not
_LEAST_READ = 0.3  # of what would be read, had the session the money: less is not worth a call
_LEAST_TEXT = 150  # tokens that a text may have in any case
_WINDOW_SHARE = 0.8  # of the summariser's window: what a request and its answer may take, as counted here
_REGROWN = 0.15  # of the threshold: growth after which a view without a new range is looked at once more
_GRACE = 5.0  # seconds that closing waits for a cancelled task

Reason = Literal["trigger", "manual"]
"""Why a compaction is due."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The view that was handed out last, as far as the writer needs it; `tokens` are those of the whole view."""

    limits: TokenLimits
    prefix: RequestPrefix
    system: Sequence[RenderedMessage]
    tokens: int
    provider: Any = None  # that the request went to; None if the loop did not say


@dataclass(frozen=True, slots=True)
class Plan:
    """A range that is to be summarised.

    Attributes:
        text: before it.
        basis: the history up to its end, and the records, as they were when it was read.
        saved: tokens that the digest of the range saves.
        room: tokens that a text may take of the chapters.
        focus: what the text is to dwell on.
        focus_drops: of the compactor when the focus was read.
    """

    range: Range
    text: Text
    basis: Basis
    counter: TokenCounter
    saved: int
    room: int
    focus: str | None
    focus_drops: int


@dataclass(slots=True)
class Writer:
    """Asks a model for chapters ahead of time.

    Args:
        counter: returns the token counter.
        providers: returns the mounted providers by name.
        tools: returns the mounted tools by name.
        last_request: returns the messages of the last request up to a seq, and their tokens.
        clock: seconds since 1970.
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
    last_request: Callable[[int], tuple[list[Message], int]]
    clock: Callable[[], float] = time.time
    asking: Asking = field(init=False)
    session_prices: Prices = field(default_factory=Prices)
    _task: asyncio.Task[None] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _looked_at: tuple[int, int] = (-1, 0)  # compactions then, and tokens of the view from which it is looked at again
    _attempts: tuple[int, int] = (-1, 0)  # compactions when a model was asked last, and attempts since
    _warned: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.asking = Asking(
            self.config, lambda: self.history.session_id, self.limits, self.hooks, lambda: self.clock()
        )

    # -- when -------------------------------------------------------------------------------------------------------

    def takes_up(self, sent: SentView, moment: Moment) -> bool:
        """Look at a view that was handed out; return True if the next compaction is near and the task should start."""
        if self.is_running or not self.config.max_summary_calls:
            return False
        if moment.tokens < self.config.summarize_at * sent.limits.threshold:
            return False
        is_again = self._attempts == (self.compactor.compactions, 1) and self.asking.outcome.may_pass
        if self.limits.waits(self.clock()) or not (is_again or self._is_news(sent, moment)):
            return False
        if is_again:  # the call had no answer: it is made once more after the back-off
            self._attempts = (self.compactor.compactions, 2)
        self._looked_at = (self.compactor.compactions, moment.tokens + int(_REGROWN * sent.limits.threshold))
        return True

    def _is_news(self, sent: SentView, moment: Moment) -> bool:
        """True if no model was asked for the next compaction, and the view may have a range to ask for."""
        compactions, again_at = self._looked_at
        if compactions == self.compactor.compactions and moment.tokens < again_at:
            return False
        if self._attempts[0] == self.compactor.compactions:
            return False  # one attempt for each compaction
        checkpoint = sent.view.checkpoint
        folded = max((one.last for one in checkpoint.segments if one.chapter), default=0) if checkpoint else 0
        return not any(record.upto > folded for record in self.records.valid(self.history))

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the task in flight, at most so long. It goes on afterwards."""
        task = self._task
        if task is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait({task}, timeout=seconds)

    @property
    def is_running(self) -> bool:
        """True if a model is being asked. A loop that was left in the middle of a call asks no more."""
        return self._task is not None and not self._task.done() and self._loop is not None and self._loop.is_running()

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

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work as the task; cancel one that is in flight in a loop that was left."""
        if self._task and not self._task.done() and self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)  # its loop was left; it may be run again
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(work, name="amplifier-context-summary")

    # -- what -------------------------------------------------------------------------------------------------------

    async def ask(self, reason: Reason, moment: Moment) -> None:
        """Ask about the range that the next compaction folds, if that is worth it.

        Args:
            reason: why the compaction is due.
            moment: the view that was handed out last.
        """
        counter = await self.counter()
        request = ViewRequest(moment.limits, moment.prefix, tuple(moment.system), counter)
        found = await preview(self.compactor, request, reason)
        least = _LEAST_TOKENS if reason == "manual" else max(_LEAST_TOKENS, int(_LEAST_SHARE * found.threshold))
        plan = await self._plan(found, counter, least)
        if plan is None:
            return
        self._attempts = max(self._attempts, (self.compactor.compactions, 1))
        self.asking.by_hand = reason == "manual"
        self.asking.may_ask_again = reason == "manual" or self._attempts[1] == 1
        await self._ask(plan, moment)

    async def _plan(self, found: Preview, counter: TokenCounter, least: int) -> Plan | None:
        """Return what the next compaction folds and no record covers; None if that has fewer tokens than `least`."""
        history, upto = found.history, found.folded_upto
        # A manual compaction may fold less than was summarised ahead; its range is then asked for by itself.
        records = [record for record in await self.records.verified(self.history) if record.upto <= upto]
        leading = history.leading_count
        newest = records[-1] if records else None
        start = max(leading + (newest.covered if newest else 0), history.gap.stop)
        end = next((i + 1 for i in range(len(history) - 1, start - 1, -1) if history[i].seq <= upto), start)
        whole = range_of(history, start, end)
        if whole is None or whole.tokens < least:
            return None
        digest = sum(entry.tokens for entry in found.digest.values() if entry.first >= whole.first)
        return Plan(
            whole,
            newest.text if newest else Text(),
            self.records.basis(history.revision, whole.covered),
            counter,
            whole.tokens - digest,
            text_room(found.segments, counter),
            self._focus(),
            self.compactor.focus_drops,
        )

    def _focus(self) -> str | None:
        return "\n\n".join(text for text in (self.compactor.focus, self.compactor.injected) if text) or None

    def _outdated(self, plan: Plan) -> str:
        """Return why a question about a plan may neither be asked nor its answer kept; empty if both may.

        A focus may quote what was erased; then the session has dropped it.
        """
        is_dropped = plan.focus is not None and plan.focus_drops != self.compactor.focus_drops
        return "its focus was dropped meanwhile" if is_dropped else self.records.outdated(plan.basis, self.history)

    def _caller(self, moment: Moment) -> Caller | None:
        """Return the provider that is asked; None, with one warning, if there is none."""
        mounted = self.providers()
        name = self.config.summary_provider
        provider = mounted.get(name) if name else moment.provider or next(iter(mounted.values()), None)
        if not callable(getattr(provider, "complete", None)):
            what = f"no provider is mounted as {name!r} (summary_provider)" if name else "no provider is mounted"
            self._warn(f"{what}; chapters are the digest's")
            return None
        return Caller(provider, self.config.summary_model, self.config.summary_output, self.config.summary_timeout)

    # -- asking -----------------------------------------------------------------------------------------------------

    async def _ask(self, plan: Plan, moment: Moment) -> None:
        """Ask for the text after a range, and keep it."""
        caller = self._caller(moment)
        if caller is None:
            self.asking.note("refused", "no provider")
            return
        prices = await self._prices(caller, moment)
        if self._is_native(caller, moment):
            await self._write_native(plan, caller, moment, prices)
            return
        window = await self._window(caller)
        caller = replace(caller, max_output=min(caller.max_output, window // 4))
        most = max(_LEAST_TEXT, min(self.config.summary_tokens, plan.room, window // 8, caller.max_output * 3 // 4))
        former = plan.text.fitted(plan.counter, most)
        prompt = await in_thread(self._prompt)
        beside = plan.counter(prompt) + plan.counter(request_text(plan.range, "", former, most, plan.focus))
        room = min(self.config.summary_input, int(_WINDOW_SHARE * window) - beside - caller.max_output)
        if room < _LEAST_TOKENS:
            self.asking.note("refused", "the window of the model is too small")
            return
        if (wanted := min(room, plan.saved)) < _LEAST_TOKENS:
            self.asking.note("refused", "to read the range costs more than its digest saves")
            return
        left = self.limits.left(by_hand=self.asking.by_hand)
        paid_for = (left - most * prices.output) / prices.fresh - beside
        if (room := int(min(wanted, paid_for))) < max(_LEAST_TOKENS, wanted * _LEAST_READ):
            self.asking.note("refused", "summary_spend")
            return
        shown = await in_thread(material, plan.range.entries, plan.range.earlier, plan.counter, room)
        text = request_text(plan.range, shown, former, most, plan.focus)
        messages: list[Message] = [{"role": "system", "content": prompt}, {"role": "user", "content": text}]
        size = plan.counter(prompt) + plan.counter(text)
        outdated = partial(self._outdated, plan)
        question = Question(messages, plan.range, former, most, size, prices, plan.counter, outdated)
        before = self.limits.summary_cost
        answer = await self.asking.text(caller, question)
        if answer is not None:
            await self._keep(plan, caller, before, answer)

    async def _window(self, caller: Caller) -> int:
        """Return the tokens that the model which is asked reads and writes at once."""
        own = context_window(caller.provider) or self.config.max_tokens
        return (await listed_window(caller.provider, caller.model) if caller.model else None) or own

    def _is_native(self, caller: Caller, moment: Moment) -> bool:
        """True if the provider is to compact the conversation itself; warn once if it does not offer that."""
        if self.config.summary_writer != "native":
            return False
        is_session = (moment.provider is None and len(self.providers()) == 1) or caller.provider is moment.provider
        if is_session and caller.model is None and is_offered(caller.provider):
            return True
        is_other = not is_session or caller.model is not None
        what = "the session's own provider and model" if is_other else "a provider that compacts conversations itself"
        self._warn(f"summary_writer native needs {what}; a model is asked for summaries instead")
        return False

    async def _write_native(self, plan: Plan, caller: Caller, moment: Moment, prices: Prices) -> None:
        """Ask the provider to compact all that the next compaction folds; keep what it makes."""
        messages, size = self.last_request(plan.range.last)
        conversation = Conversation(messages, size, plan.range.first, plan.range.last, moment.prefix.key)
        before, outdated = self.limits.summary_cost, partial(self._outdated, plan)
        carrier = await compacted(self.asking, caller, conversation, self.tools(), prices, plan.counter, outdated)
        if carrier is not None:
            await self._keep(plan, caller, before, plan.text, carrier)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("session %s: %s", self.history.session_id, text)

    async def _keep(
        self, plan: Plan, caller: Caller, before: float, text: Text, carrier: Message | None = None
    ) -> None:
        """Keep the record of a range, unless what was asked about it is out of date.

        Args:
            before: what summaries had cost before the calls for it.
        """
        history, whole = self.history.snapshot(), plan.range
        entries = history[history.leading_count + whole.start : history.leading_count + whole.covered]
        digest = await in_thread(digest_of, entries)
        if why := self._outdated(plan):
            self.asking.note("failed", why)
            return
        writer = caller.model or model_of(caller.provider) or name_of(caller.provider)
        cost = self.limits.summary_cost - before
        record = Record(whole.start, whole.covered, whole.last, digest, text, carrier, writer, cost)
        self.records.add(record, self.history)
        self.asking.kept(f"m{whole.last}")

    def _prompt(self) -> str:
        """Return the prompt; the shipped one, with a warning, if the file that the config names cannot be used."""
        try:
            return prompt_text(self.config.summary_prompt)
        except ConfigError as problem:
            self._warn(f"{problem}; the shipped prompt is used")
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
