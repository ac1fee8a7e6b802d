"""The summary writer: a background task that asks a model for the next chapter before it is needed.

It looks at each view that is handed out. Near the trigger it previews the next compaction. If the range that will be
folded is large enough, and reading it costs no more than its digest saves, it asks once for the whole text anew, and
keeps the checked answer as a record. The compaction takes what is ready.
Whatever fails here, the digest is there: nothing waits, and nothing unchecked is kept.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.economics.budget import context_window, model_of, name_of
from amplifier_context_core.futures import in_thread
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_core.session.session import Session
from amplifier_context_core.transcript.transcript import Snapshot
from amplifier_context_core.view.candidate import ViewRequest
from amplifier_context_core.view.plan import ALL, CompactionJob
from amplifier_context_core.view.sent_view import SentView, outgoing_messages

from .asking import Asking, Made, OutOfDate, Question, Refused
from .call import Caller, listed
from .chapters import folded_upto, text_room
from .checks import Reply, Shown, checked, lines_in
from .config import SummaryConfig
from .limits import Limits, Prices
from .material import material
from .native import checked_carrier, is_offered
from .records import Record, Records, digest_of
from .request import REPAIR, Plan, prompt_text, request_text
from .text import Text

log = logging.getLogger(__name__)

_LEAST_TOKENS = 200  # of a range: a shorter one is not worth a call
_LEAST_SHARE = 0.25  # of the threshold: a smaller range waits for the next compaction; one that is asked for does not
_LEAST_READ = 0.3  # of what would be read, had the session the money: less is not worth a call
_LEAST_TEXT = 150  # tokens that a text may have in any case
_WINDOW_SHARE = 0.8  # of the summariser's window: what a request and its answer may take, as counted here
_REGROWN = 0.15  # of the threshold: growth after which a view without a new range is looked at once more
_GRACE = 5.0  # seconds that closing waits for a cancelled task


@dataclass(slots=True)
class Writer:
    """Asks a model for chapters ahead of time."""

    config: SummaryConfig
    session: Session
    records: Records
    limits: Limits
    providers: Callable[[], Mapping[str, Any]]
    tools: Callable[[], Mapping[str, Any]]
    asking: Asking = field(init=False)
    session_prices: Prices = field(default_factory=Prices)
    _task: asyncio.Task[None] | None = None
    _look_again: tuple[int, float] = (-1, 0.0)  # after so many compactions, a view is looked at from so many tokens

    def __post_init__(self) -> None:
        self.asking = Asking(self.config, self.session, self.limits)

    # -- when -------------------------------------------------------------------------------------------------------

    def takes_up(self, sent: SentView) -> bool:
        """Look at a view that was handed out; return True if the next compaction is near and the task should start."""
        if self.is_running or self.limits.waits(self.asking.clock()):
            return False
        if sent.counted < self.config.summarize_at * sent.limits.threshold:
            return False
        compactions = self.session.compactor.compactions
        if compactions == self._look_again[0] and sent.counted < self._look_again[1]:
            return False
        folded = folded_upto(sent.view.segments())
        if any(record.upto > folded for record in self.records.valid()):
            return False  # it waits for its compaction
        self._look_again = (compactions, sent.counted + _REGROWN * sent.limits.threshold)
        return True

    def start(self, request: ViewRequest, provider: Any, *, by_hand: bool = False) -> None:
        """Begin the task for a view, sent to a provider if that is known, unless it runs or no call is ever allowed."""
        if self.is_running or not self.config.max_summary_calls:
            return
        self._cancel()  # a task whose loop was left; that may be run again
        self._task = asyncio.create_task(self._run(request, provider, by_hand), name="amplifier-context-summary")

    async def _run(self, request: ViewRequest, provider: Any, by_hand: bool) -> None:
        try:
            await self._write(request, provider, by_hand)
        except Refused as why:
            self.asking.note("refused", str(why))
        except OutOfDate as why:
            self.asking.note("failed", str(why))
        except asyncio.CancelledError:
            self.asking.note("idle")
            raise
        except Exception as problem:  # noqa: BLE001 - a fault here must not reach a request; the digest is there
            log.warning("session %s: a summary failed (%s)", self.session.history.session_id, type(problem).__name__)
            await self.asking.failed(type(problem).__name__)

    @property
    def is_running(self) -> bool:
        """True if a model is being asked. A loop that was left in the middle of a call asks no more."""
        return self._task is not None and not self._task.done() and self._task.get_loop().is_running()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the task in flight, at most so long. It goes on afterwards."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({self._task}, timeout=seconds)

    async def close(self) -> None:
        """Cancel the task in flight, and wait a little for its end."""
        if (task := self._cancel()) and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task}, timeout=_GRACE)

    def _cancel(self) -> asyncio.Task[None] | None:
        task, self._task = self._task, None
        if task and not task.done():
            with suppress(RuntimeError):  # its loop is closed, perhaps by its own thread just now: it runs no task
                task.get_loop().call_soon_threadsafe(task.cancel)
        return task

    # -- what -------------------------------------------------------------------------------------------------------

    async def _write(self, request: ViewRequest, provider: Any, by_hand: bool) -> None:
        history, segments, threshold = await self._preview(request, by_hand)
        least = _LEAST_TOKENS if by_hand else max(_LEAST_TOKENS, int(_LEAST_SHARE * threshold))
        plan = await self._plan(history, segments, request, least)
        if plan is None:
            return
        self._look_again = (self.session.compactor.compactions, math.inf)  # once for each compaction
        self.asking.by_hand = by_hand
        caller = self._caller(provider)
        prices, window = await self._listed(caller, provider)
        before = self.limits.summary_cost
        if self._is_native(caller, provider):
            question = self._about_carrier(plan, caller, prices)
        else:
            question = await self._about_text(plan, caller, prices, window)
        if made := await self.asking.answer(question):
            await self._keep(plan, made, caller, self.limits.summary_cost - before)

    async def _preview(self, request: ViewRequest, by_hand: bool) -> tuple[Snapshot, Sequence[Segment], int]:
        """Return the history, the segments of a view after its next compaction, and its threshold. Changes nothing.

        By hand the compaction is made now. Else it is made when the view has grown to its threshold; what comes until
        then is taken to stay as it is.
        """
        compactor = self.session.compactor
        async with compactor.lock.hold():
            plan = await compactor.cache.choose(request)
            given = await plan.candidate.draft()
        growth = 0 if by_hand else max(0, plan.threshold - plan.candidate.tokens)
        result = await compactor.maker.ladder_result(CompactionJob(plan, ALL if by_hand else None), given, growth)
        return plan.history, result.draft.segments, plan.threshold

    async def _plan(
        self, history: Snapshot, segments: Sequence[Segment], request: ViewRequest, least: int
    ) -> Plan | None:
        """Return what the next compaction folds and no record covers; None if that has fewer tokens than `least`."""
        upto, directions = folded_upto(segments), self.session.compactor.directions
        # A manual compaction may fold less than was summarised ahead; its range is then asked for by itself.
        records = [record for record in await self.records.verified() if record.upto <= upto]
        newest = records[-1] if records else None
        start = max(history.leading_count + (newest.covered if newest else 0), history.gap.stop)
        end = next((i + 1 for i in range(len(history) - 1, start - 1, -1) if history[i].seq <= upto), start)
        entries = [entry for entry in history[start:end] if not is_left_out(entry.message)]
        tokens = sum(entry.tokens for entry in entries)
        if tokens < least:
            return None
        first = min(entry.seq for entry in entries)
        chapters = [segment.chapter for segment in segments if segment.chapter]
        digest = {entry.first: entry.tokens for chapter in chapters for entry in chapter.entries}
        saved = tokens - sum(size for seq, size in digest.items() if seq >= first)
        focus = "\n\n".join(text for text in (directions.focus, directions.injected) if text) or None
        place = (start - history.leading_count, end - history.leading_count)
        drops, edited = directions.focus_drops, self.records.watch(history.revision, place[1])

        def outdated() -> str:  # a focus may quote what was erased: then the session has dropped it
            return edited() or ("its focus was dropped meanwhile" if focus and directions.focus_drops != drops else "")

        former, room = newest.text if newest else Text(), text_room(segments, request.counter)
        return Plan(entries, *place, former, request, saved, room, focus, outdated)

    async def _keep(self, plan: Plan, made: Made, caller: Caller, cost: float) -> None:
        history = self.session.history.snapshot()
        entries = history[history.leading_count + plan.start : history.leading_count + plan.covered]
        digest = await in_thread(digest_of, entries)
        if why := plan.outdated():
            raise OutOfDate(why)
        writer = caller.model or model_of(caller.provider) or name_of(caller.provider)
        self.records.add(Record(plan.start, plan.covered, plan.last, digest, made.text, made.carrier, writer, cost))
        self.asking.note("ready")
        self.asking.upto, self.asking.dropped = f"m{plan.last}", made.dropped
        if made.dropped:
            counts = ", ".join(f"{reason}: {count}" for reason, count in made.dropped.items())
            log.info("session %s: dropped of a summary: %s", self.session.history.session_id, counts)
        await self.session.save()

    # -- whom -------------------------------------------------------------------------------------------------------

    def _caller(self, provider: Any) -> Caller:
        """Return the provider that is asked; raise `Refused`, with one warning, if there is none."""
        mounted = self.providers()
        name = self.config.summary_provider
        asked = mounted.get(name) if name else provider or next(iter(mounted.values()), None)
        if not callable(getattr(asked, "complete", None)):
            what = f"no provider is mounted as {name!r} (summary_provider)" if name else "no provider is mounted"
            self.session.warnings.fault(f"{what}; chapters are the digest's")
            raise Refused("no provider")
        return Caller(asked, self.config.summary_model, self.config.summary_output, self.config.summary_timeout)

    def _is_native(self, caller: Caller, provider: Any) -> bool:
        """True if the provider is to compact the conversation itself; warn once if it does not offer that."""
        if self.config.summary_writer != "native":
            return False
        is_session = caller.provider is provider or (provider is None and len(self.providers()) == 1)
        is_other = not is_session or caller.model is not None
        if not is_other and is_offered(caller.provider):
            return True
        what = "the session's own provider and model" if is_other else "a provider that compacts conversations itself"
        self.session.warnings.fault(f"summary_writer native needs {what}; a model is asked for summaries instead")
        return False

    async def _listed(self, caller: Caller, provider: Any) -> tuple[Prices, int | None]:
        """Return the prices of the summariser, in the unit of the session's input, and the window of a named model."""
        ours, _ = await listed(provider, None)
        theirs, window = await listed(caller.provider, caller.model)
        self.session_prices = ours or Prices()
        prices = Prices(*(price / ours.fresh for price in astuple(theirs))) if ours and theirs else Prices()
        return prices, window if caller.model else None

    # -- questions --------------------------------------------------------------------------------------------------

    def _about_carrier(self, plan: Plan, caller: Caller, prices: Prices) -> Question:
        """Return the question for a provider's own compaction of what the last request showed of all that is folded."""
        sent = self.session.compactor.last_sent
        if sent is None:
            raise Refused("no request was sent yet")
        last = plan.last
        shown = [one for one in sent.messages if one.seq <= last]
        messages = outgoing_messages(replace(sent, messages=shown), merge=self.config.merge_consecutive)
        size = sum(one.tokens for one in (*sent.system, *shown))

        async def read(result: Mapping[str, Any]) -> Made:
            carrier = checked_carrier(result, caller.provider, plan.request.key, size, plan.request.counter)
            return Made(plan.text, carrier, {})

        about = {**plan.about, "input_tokens": size, "again": False, "writer": "native"}
        ask = partial(caller.compact, messages, self.tools())
        return Question(about, size, caller.max_output // 2, prices, ask, read, plan.outdated)

    async def _about_text(self, plan: Plan, caller: Caller, prices: Prices, window: int | None) -> Question:
        """Return the question for the text after a range; raise `Refused` if it is not worth its price."""
        config, counter = self.config, plan.request.counter
        window = window or context_window(caller.provider) or config.max_tokens
        caller = replace(caller, max_output=min(caller.max_output, window // 4))
        largest = max(_LEAST_TEXT, min(config.summary_tokens, window // 8, caller.max_output * 3 // 4))
        former = plan.text.fitted(counter, largest)
        # Not less than the former text: what the view has no room for now, it may have room for later.
        most = max(_LEAST_TEXT, min(largest, max(plan.room, former.tokens(counter))))
        prompt = await in_thread(prompt_text, config.summary_prompt, self.session.warnings.fault)
        beside = counter(prompt) + counter(request_text(plan, "", former, most))
        room = min(config.summary_input, int(_WINDOW_SHARE * window) - beside - caller.max_output)
        if room < _LEAST_TOKENS:
            raise Refused("the window of the model is too small")
        if (wanted := min(room, int(plan.saved / prices.fresh))) < _LEAST_TOKENS:
            raise Refused("to read the range costs more than its digest saves")
        left = self.limits.left(config, prices.fresh, by_hand=self.asking.by_hand)
        paid_for = (left - max(most, self.asking.limits.answered) * prices.output) / prices.fresh - beside
        if (room := int(min(wanted, paid_for))) < max(_LEAST_TOKENS, wanted * _LEAST_READ):
            raise Refused("summary_spend")
        shown = await in_thread(material, plan.entries, counter, room)
        text = request_text(plan, shown, former, most)

        def read_text(answer: Reply) -> Made:
            text, flaws = checked(lines_in(answer), Shown(plan.entries, former))
            fitted = text.fitted(counter, most)
            flaws["room"] = len(text.lines) - len(fitted.lines) + len(plan.text.lines) - len(former.lines)
            return Made(fitted, None, +flaws)  # without a zero

        def question(wrong: str = "") -> Question:
            """With what was wrong with the first answer, ask for a better one."""
            texts = [text, REPAIR.format(reason=wrong)] if wrong else [text]
            messages = [{"role": "system", "content": prompt}, *({"role": "user", "content": one} for one in texts)]
            size = sum(map(counter, (prompt, *texts)))
            about = {**plan.about, "input_tokens": size, "again": bool(wrong)}
            ask, read = partial(caller.ask, messages), partial(in_thread, read_text)
            return Question(about, size, most, prices, ask, read, plan.outdated, None if wrong else question)

        return question()
