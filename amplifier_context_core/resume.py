"""Resuming a session: from its checkpoint and what came after it, or, without one, from all of its history."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .errors import StoreError
from .futures import in_thread
from .transcript.transcript import Transcript
from .view.session_state import SessionState, counter_name, dump, load

if TYPE_CHECKING:
    from .manager import ContextManager
    from .messages.tokens import TokenCounter

log = logging.getLogger(__name__)

_LARGE = 200_000  # bytes of saved state from which on it is read and written off the event loop


async def resume(manager: ContextManager) -> bool:
    """Open the session in its store and go on with what is there; returns whether there was anything.

    Raises:
        SessionInUse: another writer has the session.
        StoreError: the store cannot be opened or read.
    """
    history = manager.history
    manager.compactor.drop_lines()
    extent = await history.open()
    if not extent.last_seq:
        history.resume(Transcript.resumed(history.session_id, (), (), length=0, last_seq=0))
        return False
    saved = await _saved(manager)
    if saved and saved.lines and await _from_checkpoint(manager, saved, extent.length, extent.last_seq):
        return True
    entries = await history.read(0, (await manager.store.extent(history.session_id)).length)
    history.resume(
        Transcript.resumed(history.session_id, (), entries, length=len(entries), last_seq=extent.last_seq),
        frozenset(saved.interrupted) if saved else frozenset(),
    )
    if saved:
        manager.restore(saved)
    log.info("session %s: resumed with all of its %d messages", history.session_id, len(entries))
    return True


async def _from_checkpoint(manager: ContextManager, saved: SessionState, length: int, last_seq: int) -> bool:
    """Resume without what is behind the checkpoints; False when they do not fit what the store holds."""
    history, store = manager.history, manager.store
    counter = await manager.token_counter()
    if saved.counter != counter_name(counter) or not saved.body < saved.start <= saved.covered <= length:
        log.info("session %s: its checkpoint was counted otherwise, or is of another history", history.session_id)
        return False
    # The first message after the system prompt stays at hand: a host that replays the history begins with it. So does
    # the last one before the tail: it says which turn it is.
    head = await history.read(0, saved.body + 1)
    first = max(saved.start - 1, len(head))
    tail = await history.read(first, length)
    shown = {entry.seq: entry for entry in await store.find(history.session_id, sorted(saved.needed))}
    shown |= {entry.seq: entry for entry in (*head, *tail)}
    if len(head) != saved.body + 1 or len(tail) != length - first or saved.needed - shown.keys():
        return False
    if (await store.extent(history.session_id)).length != length:  # damage was found meanwhile: places have moved
        return False
    before = saved.turns_before - sum(1 for entry in tail[: saved.start - first] if entry.human)
    history.resume(
        Transcript.resumed(
            history.session_id,
            head,
            tail,
            length=length,
            last_seq=last_seq,
            turns_before=before,
        ),
        frozenset(saved.interrupted),
        shown.values(),
    )
    try:
        manager.compactor.cache.restore(saved, shown, counter)
    except (IndexError, KeyError, ValueError) as problem:
        manager.compactor.drop_lines()
        manager.warnings.note("repair", f"its checkpoint makes no sense ({type(problem).__name__}); it is left out")
        return False
    manager.restore(saved)
    log.info("session %s: resumed from a checkpoint, %d of %d messages read", history.session_id, len(tail), length)
    return True


async def _saved(manager: ContextManager) -> SessionState | None:
    data = await manager.store.load_checkpoint(manager.history.session_id)
    if not data:
        return None
    try:
        return await in_thread(load, data) if len(data) > _LARGE else load(data)
    except ValueError as problem:
        text = f"its checkpoint cannot be used ({problem}); the view is made anew from the history"
        manager.warnings.note("repair", text)
        return None


async def save(manager: ContextManager, counter: TokenCounter) -> None:
    """Keep what a resumed session goes on from. A store that refuses is no reason to fail: only speed is lost."""
    saved = manager.saved(counter)
    try:
        data = await in_thread(dump, saved)
        await manager.store.save_checkpoint(manager.history.session_id, saved.covered, data)
    except StoreError as problem:
        log.warning("session %s: its checkpoint was not saved: %s", manager.history.session_id, problem)
