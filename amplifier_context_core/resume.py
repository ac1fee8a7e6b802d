"""Resuming a session: from its checkpoint and what came after it, or, without one, from all of its history."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .errors import StoreError
from .futures import in_thread
from .history.history import History
from .messages.tokens import TokenCounter
from .stores import Store
from .transcript.transcript import Transcript
from .view.cache import ViewCache
from .view.session_state import SessionState, counter_name, dump, load

log = logging.getLogger(__name__)

_LARGE = 200_000  # bytes of saved state from which on it is read off the event loop


@dataclass(frozen=True, slots=True)
class Resumed:
    """What the store held of a session.

    Attributes:
        is_new: True if there was no history.
        state: what was saved beside the history; None if there was none that can be used. Views with a checkpoint are
            restored already.
        problems: why saved state, or a part of it, was left out.
    """

    is_new: bool
    state: SessionState | None = None
    problems: tuple[str, ...] = ()


async def resume(
    store: Store, history: History, cache: ViewCache, counter: Callable[[], Awaitable[TokenCounter]]
) -> Resumed:
    """Open the session in its store and continue from what is there.

    Args:
        store: where the session is kept.
        history: of the session; it is opened and filled.
        cache: views of the session, empty; those that were saved with a checkpoint are restored.
        counter: returns the token counter; called only when a checkpoint was saved.

    Raises:
        SessionInUse: another writer has the session.
        StoreError: the store cannot be opened or read.
    """
    extent = await history.open()
    if not extent.last_seq:
        history.resume(Transcript.resumed(history.session_id, (), (), length=0, last_seq=0))
        return Resumed(is_new=True)
    state, problems = await _saved_state(store, history.session_id)
    if state and state.views:
        problem = await _from_checkpoint(store, history, cache, state, await counter(), extent.length, extent.last_seq)
        if problem is None:
            return Resumed(False, state, problems)
        problems = (*problems, problem) if problem else problems
    entries = await history.read(0, (await store.extent(history.session_id)).length)
    history.resume(
        Transcript.resumed(history.session_id, (), entries, length=len(entries), last_seq=extent.last_seq),
        frozenset(state.interrupted) if state else frozenset(),
    )
    log.info("session %s: resumed with all of its %d messages", history.session_id, len(entries))
    return Resumed(False, state, problems)


async def _from_checkpoint(
    store: Store,
    history: History,
    cache: ViewCache,
    state: SessionState,
    counter: TokenCounter,
    length: int,
    last_seq: int,
) -> str | None:
    """Resume without what is behind the checkpoints.

    Returns:
        None when that was done. Otherwise the state does not fit what the store holds; the text says why, or is empty
        where that is no fault.
    """
    session_id = history.session_id
    if (
        state.counter != counter_name(counter)
        or not state.leading_count < state.tail_start <= state.covered_count <= length
    ):
        log.info("session %s: its checkpoint was counted otherwise, or is of another history", session_id)
        return ""
    # The first message after the system prompt stays at hand: a host that replays the history begins with it. So does
    # the last one before the tail: it says which turn it is.
    head = await history.read(0, state.leading_count + 1)
    first = max(state.tail_start - 1, len(head))
    tail = await history.read(first, length)
    shown = {entry.seq: entry for entry in await store.find(session_id, sorted(state.shown_seqs))}
    shown |= {entry.seq: entry for entry in (*head, *tail)}
    if len(head) != state.leading_count + 1 or len(tail) != length - first or state.shown_seqs - shown.keys():
        return ""
    if (await store.extent(session_id)).length != length:  # damage was found meanwhile: indexes have moved
        return ""
    before = state.turns_before - sum(1 for entry in tail[: state.tail_start - first] if entry.human)
    history.resume(
        Transcript.resumed(session_id, head, tail, length=length, last_seq=last_seq, turns_before=before),
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


async def _saved_state(store: Store, session_id: str) -> tuple[SessionState | None, tuple[str, ...]]:
    """Return what was saved beside a history, and why it cannot be used if so."""
    data = await store.load_checkpoint(session_id)
    if not data:
        return None, ()
    try:
        return (await in_thread(load, data) if len(data) > _LARGE else load(data)), ()
    except ValueError as problem:
        return None, (f"its checkpoint cannot be used ({problem}); the view is made anew from the history",)


async def save(store: Store, session_id: str, state: SessionState) -> None:
    """Save what a resumed session continues from. If the store refuses it, only speed is lost: log that."""
    try:
        data = await in_thread(dump, state)
        await store.save_checkpoint(session_id, state.covered_count, data)
    except StoreError as problem:
        log.warning("session %s: its checkpoint was not saved: %s", session_id, problem)
