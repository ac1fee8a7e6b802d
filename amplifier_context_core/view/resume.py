"""Saving the session state and resuming from it.

A session resumes from its checkpoints and what came after them, or, without one, from all of its history.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from ..compaction.checkpoint import content_digest
from ..compaction.distant import DistantHistory
from ..errors import StoreError
from ..futures import in_thread
from ..history.history import History
from ..messages.tokens import TokenCounter
from ..stores import Extent, Store
from ..transcript.entry import Entry
from ..transcript.matching import MAX_SKIPPED
from ..transcript.transcript import Transcript, count_leading
from .cache import ViewCache
from .compactor import Compactor
from .session_state import SessionState, UncompactedViewState, counter_name, dump, load, view_state

log = logging.getLogger(__name__)

_MAX_BEHIND = 5_000  # entries; a checkpoint that covers this many fewer than the newest one is not saved
_LONG = 40_000  # entries; of a longer history without a checkpoint, only the newest stay in memory
_NEWEST = 20_000  # entries; a first view looks at eight budgets of them: these are ten million tokens in agents' work
_BATCH = 10_000  # entries that are read at once
_LOG_EVERY = 50_000  # entries


@dataclass(frozen=True, slots=True)
class Resumed:
    is_new: bool
    # None if there was none that can be used. Views with a checkpoint are restored already.
    state: SessionState | None = None
    problems: tuple[str, ...] = ()  # why saved state, or a part of it, was left out
    # A checkpoint was made with a newer message than the last one: the history was cut off since, or is a fork.
    is_cut: bool = False


async def resume(
    store: Store, history: History, cache: ViewCache, counter: Callable[[], Awaitable[TokenCounter]]
) -> Resumed:
    """Open the session in its store, fill its empty history and cache, and continue from what is there. Raises
    `SessionInUse`: another writer has the session; `StoreError`: the store cannot be opened or read.
    """
    extent = await history.open()
    if not extent.last_seq:
        history.resume(Transcript.resumed(history.session_id, (), (), length=0, last_seq=0))
        return Resumed(is_new=True)
    data, problems = await store.load_checkpoint(history.session_id), ()
    try:
        state = await in_thread(load, data) if data else None
    except ValueError as problem:
        state = None
        problems = (f"its checkpoint cannot be used ({problem}); the view is rebuilt from the history",)
    made = await counter() if state and (state.views or state.uncompacted_views) else None
    if state and state.views and made:
        problem = await _from_checkpoint(store, history, cache, state, made, extent)
        if problem is None:
            newest = history.snapshot()[-1].seq
            return Resumed(False, state, problems, any(view.checkpoint.made_at > newest for view in state.views))
        problems = (*problems, problem) if problem else problems
    await _from_start(store, history, cache, state, extent.last_seq)
    if state and made:
        cache.restore_uncompacted(state, made)
    log.info("session %s: resumed from all of its %d messages", history.session_id, len(history.snapshot()))
    return Resumed(False, state, problems)


async def _from_start(
    store: Store, history: History, cache: ViewCache, state: SessionState | None, last_seq: int
) -> None:
    """Resume from all entries. Of a long history, the older ones are let go once they are read: a first view shows of
    them only what `DistantHistory` keeps, and other calls load them when they need them.
    """
    session_id, length = history.session_id, (await store.extent(history.session_id)).length
    first = length - _NEWEST if length > _LONG else 0
    pins = cache.factory.directions.pins
    pins.update(state.pins if state else ())
    head, beginning, has_redacted = list[Entry](), DistantHistory(pins), False
    for start in range(0, first, _BATCH):
        batch = await history.read(start, min(start + _BATCH, first))
        has_redacted = has_redacted or any(entry.is_redacted for entry in batch)
        if not beginning.length:  # only instructions came before
            head += batch
            leading = count_leading(head, len(head))
            head, batch = head[: max(leading + 1, MAX_SKIPPED)], head[leading:]  # a replay may begin with any of them
        await in_thread(beginning.extend, batch)
        beginning.digest = await in_thread(content_digest, batch, beginning.digest)
        if (start + _BATCH) % _LOG_EVERY == 0:
            log.info("session %s: %d of %d messages read", session_id, start + _BATCH, length)
    tail = await history.read(first, length)
    if count_leading(head, len(head)) + beginning.length + len(tail) < length:  # some are damaged
        first, head, tail = 0, [], await history.read(0, length)
    turns = beginning.turns if head else 0
    made = Transcript.resumed(session_id, head, tail, length=first + len(tail), last_seq=last_seq, turns_before=turns)
    history.resume(made, frozenset(state.interrupted) if state else frozenset())
    if made.gap:
        cache.factory.beginning = beginning
        has_redacted = has_redacted or any(entry.is_redacted for entry in tail)
        history.redactions.are_known = not has_redacted and not await store.archived(session_id)


async def _from_checkpoint(
    store: Store, history: History, cache: ViewCache, state: SessionState, counter: TokenCounter, extent: Extent
) -> str | None:
    """Resume without the entries that the checkpoints cover; return None if that was possible, else why not.

    The reason is an empty text if the state is of another counter or history, which is no fault.
    """
    session_id, length = history.session_id, extent.length
    is_of_history = state.leading_count < state.tail_start <= state.covered_count <= length
    if state.counter != counter_name(counter) or not is_of_history:
        log.info("session %s: its checkpoint is of another token counter or another history", session_id)
        return ""
    # The first message after the system prompt stays at hand: a host that replays the history begins with it. So does
    # the last one before the tail: it has the turn id.
    head = await history.read(0, state.leading_count + 1)
    first = max(state.tail_start - 1, len(head))
    tail = await history.read(first, length)
    shown = {entry.seq: entry for entry in await history.find_all(sorted(state.shown_seqs))}
    shown |= {entry.seq: entry for entry in (*head, *tail)}
    if len(head) != state.leading_count + 1 or len(tail) != length - first or state.shown_seqs - shown.keys():
        return ""
    before = state.turns_before - sum(1 for entry in tail[: state.tail_start - first] if entry.human)
    if (await store.extent(session_id)).length != length:  # damage was found meanwhile: indexes have moved
        return ""
    history.resume(
        Transcript.resumed(session_id, head, tail, length=length, last_seq=extent.last_seq, turns_before=before),
        frozenset(state.interrupted),
        shown.values(),
    )
    try:
        cache.restore(state, shown, counter)
    except (IndexError, KeyError, ValueError) as problem:
        cache.clear()
        return f"its checkpoint makes no sense ({type(problem).__name__}); it is left out"
    log.info("session %s: resumed from a checkpoint, %d of %d messages read", session_id, len(tail), length)
    return None


def collect_checkpoints(history: History, cache: ViewCache, counter: TokenCounter) -> SessionState:
    """A checkpoint that lags far behind is left out: a resumed session would have to read all after it."""
    entries, by_budget = history.snapshot(), dict(cache.by_budget)
    made = [(view, view.checkpoint) for view in cache.valid_views() if view.checkpoint]
    newest = max((checkpoint.covered for _, checkpoint in made), default=0)
    made = [(view, checkpoint) for view, checkpoint in made if checkpoint.covered >= newest - _MAX_BEHIND]
    leading = entries.leading_count
    start = leading + min(checkpoint.covered for _, checkpoint in made) if made else 0
    numbers = {id(view): number for number, (view, _) in enumerate(made)}
    return SessionState(
        counter_name(counter),
        cache.factory.compatibility_key(counter),
        leading,
        start,
        leading + newest if made else 0,
        history.turn_count - sum(1 for entry in entries[start:] if entry.human) if start else 0,
        tuple(view_state(view, checkpoint) for view, checkpoint in made),
        tuple((budget, numbers[id(view)]) for budget, view in by_budget.items() if id(view) in numbers),
        uncompacted_views=tuple(
            UncompactedViewState(budget, view.budget, view.output_limit, view.backoff)
            for budget, view in by_budget.items()
            if view.checkpoint is None
        ),
    )


def collect_state(history: History, compactor: Compactor, counter: TokenCounter, extra: dict[str, Any]) -> SessionState:
    cache, directions, forms = compactor.cache, compactor.directions, compactor.directions.short_forms
    return replace(
        collect_checkpoints(history, cache, counter),
        corrections=tuple((*key, replace(correction)) for key, correction in compactor.meter.corrections.items()),
        pins=tuple(sorted(directions.pins)),
        short_forms=tuple((seq, dict(by_call)) for seq, by_call in forms.known.items()),
        at_once=tuple((seq, dict(by_call)) for seq, by_call in forms.at_once.items()),
        pending_summaries=dict(forms.pending),
        interrupted=tuple(sorted(history.interrupted)),
        focus=directions.focus,
        injected=directions.injected,
        compactions=compactor.log.count,
        tokens_saved=compactor.log.tokens_saved,
        log=tuple(compactor.log.rows),
        warnings_sent=compactor.warnings.sent(),
        erased=history.redactions.all(),
        cleared_seq=history.cleared_seq,
        extra=extra,
    )


def holds_text(state: SessionState, forms: Collection[str]) -> bool:
    data = dump(state)
    return any(form.encode("utf-8", "surrogatepass") in data for form in forms)


def restore_state(state: SessionState, history: History, compactor: Compactor) -> None:
    """Continue from all but the checkpoints, which `resume` has restored."""
    for provider, model, correction in state.corrections:
        compactor.meter.corrections[provider, model] = correction
    directions, forms = compactor.directions, compactor.directions.short_forms
    directions.pins.update(state.pins)
    forms.known.update(state.short_forms)
    forms.at_once.update(state.at_once)
    forms.pending.update(state.pending_summaries)
    directions.focus, directions.injected = state.focus, state.injected
    compactor.log.restore(state.compactions, state.tokens_saved, state.log)
    compactor.warnings.restore(state.warnings_sent)
    history.cleared_seq = max(history.cleared_seq, state.cleared_seq)  # of a manager that is used again after its close
    history.redactions.note(state.erased)
    history.redactions.are_known = True


async def save_state(store: Store, session_id: str, state: SessionState) -> StoreError | None:
    """Return why the store refused it, or None if it took it."""
    try:
        data = await in_thread(dump, state)
        await store.save_checkpoint(session_id, state.covered_count, data)
    except StoreError as problem:
        return problem
    return None
