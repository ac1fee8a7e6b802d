"""The shelf of lines: which one serves a budget, when it is due to be compacted, what is kept of them for a resume.

Not locked: `Compactor` lets one task in at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..compaction.checkpoint import Checkpoint
from ..compaction.strategies import Strategy
from ..config import Config
from ..futures import in_thread_if
from ..history.history import History
from ..messages.hashing import chain_hash, content_hash
from ..messages.tokens import TokenCounter, are_large
from ..rendering.renderer import is_left_out
from ..transcript.transcript import Entry, Snapshot
from .meter import Units
from .session_state import SessionState, UncompactedViewState, ViewState, counter_name, view_state, with_rounds
from .shared_cache import any_checkpoint, known_checkpoint, remember_checkpoint
from .short_forms import ShortForms
from .view import MIN_BUDGET_RATIO, View, ViewBook

_BREATHE = 500  # entries hashed in between two breaths of the event loop
_READ_PRICE = 0.1  # of a fresh token: what a token read from the prompt cache costs (PEERS.md)
_COMPACTION_PRICE = 1.15  # of a fresh token: what a token costs more that was cached and must be written again
_LEAST_TARGET = 0.8  # of the target: lower, and chapters would be most of the view
_LEAST_OUTPUT = 64  # tokens a tool output may always show
_BEHIND = 5_000  # entries a checkpoint may be behind the newest to be kept beside it
_NOT_SHOWN = {"max_tokens", "strict", "strict_config", "on_interrupt", "on_conflict", "search_index"}  # settings


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The figures one request is held to, in tokens as we count them but for the budgets.

    Attributes:
        budget: as asked for, in the provider's tokens.
        accepted: the budget, or less where the provider has refused a smaller request, in its tokens.
        units: the conversion to the provider's tokens that the other figures were made with.
        room: what the view may hold.
        trigger: above this it is compacted.
        target: what a compaction brings it down to.
        clear: what a compaction must free.
    """

    budget: int
    accepted: int
    units: Units
    room: int
    trigger: int
    target: int
    clear: int

    def reported(self, counted: int) -> int:
        """Return a limit on the view in the provider's tokens, at most the budget: tool definitions may outgrow it."""
        return min(self.units.limit(counted), self.accepted)


class ViewCache:
    """The lines of a session.

    Attributes:
        book: the lines, by the budgets they serve.
    """

    def __init__(
        self,
        history: History,
        config: Config,
        ladder: Sequence[Strategy],
        pins: Collection[int],
        short_forms: ShortForms,
    ) -> None:
        self.book = ViewBook()
        self._history = history
        self._config = config
        self._ladder = ladder
        self._pins = pins
        self._short_forms = short_forms
        self._starts: dict[
            int, UncompactedViewState
        ] = {}  # by the budget served: to be made as before the session was resumed
        self._starts_kind = ""

    # -- choosing ---------------------------------------------------------------------------------------------------

    async def choose(
        self, history: Snapshot, limits: TokenLimits, system_tokens: int, counter: TokenCounter
    ) -> tuple[View, str | None]:
        """The line to serve this budget, and why it must be compacted first; None when it need not."""
        await self._restart(limits.budget, counter)
        alive: list[View] = []
        for line in self.book.candidates(limits.budget):
            if not await self._refresh(line, history):
                continue
            alive.append(line)
            if system_tokens + line.tokens <= self.due(line, limits, system_tokens):
                self.book.serve(limits.budget, line)
                return line, None
        source = self.book.source(limits.budget)
        if source is not None and source not in alive and not await self._refresh(source, history):
            source = None  # the history it stood for was edited
        if source is None:
            await self._history.load()  # a line from the start
            source = await self._new_line(self._history.snapshot(), limits, counter)
            if system_tokens + source.tokens <= self.due(source, limits, system_tokens):
                self.book.serve(limits.budget, source)
                return source, None
        tokens = system_tokens + source.tokens
        over = tokens > limits.room
        last = source.backoff
        if last is not None and last.applies_to(limits.room):
            # Over the budget only for rounds still open, another attempt is worth it as soon as there is more to cover.
            idle = (
                source.compactable_count <= last.compactable_count
                if over and not last.infeasible
                else tokens < last.retry_at_tokens
            )
            if idle:
                self.book.serve(limits.budget, source)
                return source, None
        return source, "hard limit" if over else "trigger"

    def due(self, line: View, limits: TokenLimits, system_tokens: int) -> int:
        """Tokens above which a line is compacted.

        Under ``cadence: auto`` that is where carrying what came since the last compaction has cost as much as another
        compaction will: the point at which renting and buying break even. With a view of `base` tokens after it, of
        which the next would write `rewritten` anew, and `growth` tokens a request, that is
        base + sqrt(2 * compaction / read * rewritten * growth). At most it is the threshold, which there is a share of
        what the system prompt leaves: a long prompt must not make compactions frequent.
        """
        if self._config.cadence == "fixed" or not self._config.auto_compact:
            return limits.trigger
        beside = max(0.0, 1 - system_tokens / limits.room)
        most = limits.room - int((limits.room - limits.trigger) * beside)
        if line.checkpoint is None or not line.tail_tokens:
            return most  # nothing to go by yet
        base = system_tokens + line.checkpoint.tokens
        growth = line.tail_tokens / max(1, line.responses_since_checkpoint)
        carried = math.sqrt(2 * _COMPACTION_PRICE / _READ_PRICE * _rewritten(line.checkpoint) * growth)
        return min(most, max(base + limits.clear, int(base + carried)))

    def target(self, line: View, limits: TokenLimits, system_tokens: int) -> int:
        """Tokens a compaction brings a line down to: in proportion, where it is due before its threshold."""
        early = self.due(line, limits, system_tokens) / limits.trigger
        return max(1, int(limits.target * min(max(early, _LEAST_TARGET), 1)))

    async def _restart(self, budget: int, counter: TokenCounter) -> None:
        """Make the view without a checkpoint that served this budget before the session was resumed."""
        start = self._starts.pop(budget, None)
        if start is None or self._starts_kind != self.kind(counter):
            return
        await self._history.load()
        line = self._line_of(None, start.budget, start.output_limit, counter)
        line.backoff = start.backoff
        if await self._refresh(line, self._history.snapshot()):
            self.book.serve(budget, line)

    def clear(self) -> None:
        """Drop all lines, and what a resumed session would make some of them from."""
        self.book.clear()
        self._starts.clear()

    async def _refresh(self, line: View, history: Snapshot) -> bool:
        unchanged = self._history.unchanged_since(line.revision)
        self._short_forms.shown_to = max(self._short_forms.shown_to, self._history.last_seq)
        revised = line.revision not in (-1, history.revision)
        if not await line.update(history, unchanged, self._history.interrupted):
            self.book.drop(line)
            return False
        if revised and (newest := _newest_human(history)) and not line.mentions(newest):
            await line.show_verbatim(newest, history)  # newer ones were taken out of the history
        return True

    async def _new_line(self, history: Snapshot, limits: TokenLimits, counter: TokenCounter) -> View:
        """A line from the start of the history, or from a checkpoint that a session with the same history has made."""
        line = self.line(None, limits, counter)
        if any_checkpoint() and sum(entry.tokens for entry in history[-5_000:]) > limits.trigger:
            inherited = await self._inherited(history, limits, counter)
            if inherited:
                line = self.line(inherited, limits, counter)
        self._short_forms.shown_to = max(self._short_forms.shown_to, self._history.last_seq)
        await line.update(history, len(history), self._history.interrupted)
        for seq in self._pins:  # a checkpoint of another session knows nothing of them
            await line.show_verbatim(seq, history)
        return line

    async def _inherited(self, history: Snapshot, limits: TokenLimits, counter: TokenCounter) -> Checkpoint | None:
        digest = b""
        best: Checkpoint | None = None
        kind = self.kind(counter)
        for index, entry in enumerate(history[history.leading :]):
            content = await in_thread_if(are_large((entry.message,)), content_hash, entry.message)
            digest = chain_hash(digest, entry.seq, content)
            found = known_checkpoint(kind, digest)
            # It must be neither too large nor made for far less room. Its marks are right: seqs are in the hash.
            if found and found.covered == index + 1 and found.budget >= MIN_BUDGET_RATIO * limits.budget:
                best = found if found.tokens <= limits.trigger else best
            if index % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        return best

    def kind(self, counter: TokenCounter) -> str:
        """What must be the same for a checkpoint to serve in another session: how it is counted and how it is shown."""
        # Core's own keys only: a module may have an address with a password among its.
        shown = set(Config.model_fields) - _NOT_SHOWN
        return f"{counter!r} {self._ladder!r} {self._config.model_dump_json(include=shown)}"

    def line(self, checkpoint: Checkpoint | None, limits: TokenLimits, counter: TokenCounter) -> View:
        limit = max(_LEAST_OUTPUT, int(limits.room * self._config.output_share))
        return self._line_of(checkpoint, limits.budget, limit, counter)

    def _line_of(
        self, checkpoint: Checkpoint | None, budget: int, output_limit: int, counter: TokenCounter, revision: int = -1
    ) -> View:
        return View(
            checkpoint,
            budget,
            counter,
            output_limit=output_limit,
            output_bytes=self._config.max_tool_result_bytes,
            summaries=self._short_forms.at_once,
            tables=self._config.json_tables,
            keep=self._pins,
            revision=revision,
        )

    async def show_verbatim(self, seqs: Collection[int]) -> None:
        """Show entries that were folded, clipped or dropped verbatim again, on every line."""
        history = self._history.snapshot()
        for line in self.book.lines:
            if await self._refresh(line, history):
                for seq in seqs:
                    await line.show_verbatim(seq, history)

    # -- kept beside the history -----------------------------------------------------------------------------------

    def saved(self, counter: TokenCounter) -> SessionState:
        """The lines whose checkpoints stand for this history, as they are kept."""
        history = self._history.snapshot()
        body = history.leading
        lines = [(line, line.checkpoint) for line in self.book.lines if line.checkpoint and self._stands(line)]
        # A checkpoint far behind the others would make a resumed session read all that came after it.
        newest = max((checkpoint.covered for _, checkpoint in lines), default=0)
        lines = [(line, checkpoint) for line, checkpoint in lines if checkpoint.covered >= newest - _BEHIND]
        start = body + min(checkpoint.covered for _, checkpoint in lines) if lines else 0
        numbers = {id(line): number for number, (line, _) in enumerate(lines)}
        return SessionState(
            counter_name(counter),
            self.kind(counter),
            body,
            start,
            body + newest if lines else 0,
            self._history.turn_count - sum(1 for entry in history[start:] if entry.human) if start else 0,
            tuple(view_state(line.budget, line.output_limit, made, line.backoff) for line, made in lines),
            tuple((budget, numbers[id(line)]) for budget, line in self.book.serving if id(line) in numbers),
            starts=tuple(
                UncompactedViewState(budget, line.budget, line.output_limit, line.backoff)
                for budget, line in self.book.serving
                if line.checkpoint is None
            ),
        )

    def _stands(self, line: View) -> bool:
        covered = line.checkpoint.covered if line.checkpoint else 0
        return self._history.unchanged_since(line.revision) >= covered

    def restore_starts(self, saved: SessionState) -> None:
        """Make the views without a checkpoint as before, each when its budget is asked for."""
        self._starts = {start.serving: start for start in saved.starts}
        self._starts_kind = saved.kind

    def restore(self, saved: SessionState, entries: Mapping[int, Entry], counter: TokenCounter) -> None:
        """Go on from what was saved.

        Args:
            saved: what `saved` gave.
            entries: by seq, all that its checkpoints show.
            counter: text to tokens.

        Raises:
            KeyError: an entry is missing; nothing was restored.
        """
        lines = [self._restored(line, entries, counter) for line in saved.lines]
        for line in lines:
            self.book.serve(line.budget, line)
            if line.checkpoint:
                remember_checkpoint(saved.kind, line.checkpoint)
        for budget, number in saved.serving:
            if 0 <= number < len(lines):
                self.book.serve(budget, lines[number])

    def _restored(self, saved: ViewState, entries: Mapping[int, Entry], counter: TokenCounter) -> View:
        revision = self._history.snapshot().revision
        line = self._line_of(with_rounds(saved, entries), saved.budget, saved.output_limit, counter, revision)
        line.backoff = saved.backoff
        return line


def _newest_human(history: Snapshot) -> int:
    """Seq of the newest message of a person that is for the model; 0 when none is loaded."""
    for index in range(len(history) - 1, -1, -1):
        if index in history.gap:
            break
        if history[index].human and not is_left_out(history[index].message):
            return history[index].seq
    return 0


def _rewritten(checkpoint: Checkpoint) -> int:
    """Tokens that the next compaction will write anew, about: the newest chapter, and what stands after it."""
    tokens = 0
    for segment in reversed(checkpoint.segments):
        tokens += segment.tokens
        if segment.chapter:
            break
    return tokens
