"""Changes that are made once, however often they have to be sent; and doubts, and how they end. See `leases`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...errors import SessionLost, StoreError
from ..protocol import Extent
from .leases import GONE, Claim, Cut, Doubt, Line, Row, State, Unconfirmed, holder, new_change

log = logging.getLogger(__name__)

T = TypeVar("T")


async def make_once(
    line: Line,
    claim: Claim,
    ttl: float,
    send: Callable[[int], Awaitable[Any]],
    after: Extent | None = None,
    appended: int = 0,
) -> None:
    """Make a change, sending it again where the answer did not come; or remember the doubt, and say that it failed.

    Args:
        line: where.
        claim: of the session; it moves on with the change.
        ttl: seconds until the claim expires.
        send: sends the change of a name, and says whether it was made.
        after: the session's extent once it is made, if it differs.
        appended: entries it brings, if it is an append.
    """
    change = new_change()
    unsure = False
    for attempt in (1, 2, 3):
        try:
            if await send(change) or await _was_made(line, claim, ttl, change):
                claim.moved(change, after)
                return
        except SessionLost:
            raise
        except StoreError as problem:
            unsure = unsure or isinstance(problem, (Cut, Unconfirmed))
            if isinstance(problem, Cut) and attempt < 3:
                continue
            if unsure:
                claim.doubt = Doubt(change, new_change(), appended)
            raise
    raise StoreError(f"session {claim.session_id!r} could not be claimed again on {line.where}; try again")


async def append_here(line: Line, claim: Claim, ttl: float, row: Row) -> bool:
    """Send an append of one row once, from the running loop. The loop may end, or the caller be cancelled, before the
    answer is here: so the doubt is there from the start.

    Returns:
        Whether it was made. If not, `settle` and `make_once` find out the rest.
    """
    change = new_change()
    sending = line.append_here(claim, change, row, ttl)
    if sending is None:
        return False
    claim.doubt = Doubt(change, new_change(), appended=1)
    try:
        made = await sending
    except (Cut, Unconfirmed):
        return False  # in doubt
    except StoreError:
        claim.doubt = None
        raise
    claim.doubt = None
    if made:
        extent = claim.extent
        claim.moved(change, Extent(extent.length + 1, max(extent.last_seq, row.seq)))
    return made


async def _was_made(line: Line, claim: Claim, ttl: float, change: int) -> bool:
    """A change was refused: because it was made before, or because the claim is not ours any more."""
    state = await line.state(claim.session_id)
    if state is None and not claim.held.created:
        # Nothing was ever written, and the claim itself has expired.
        held = await line.claim(claim.session_id, claim.fence, holder(), ttl)
        if isinstance(held, str) or held.created:
            raise lost(claim, await line.state(claim.session_id))
        claim.held = held
        return False
    if state is None or state.fence != claim.fence:
        raise lost(claim, state)
    if state.change != change:
        raise StoreError(f"session {claim.session_id!r} was changed by somebody without a claim; open it again")
    return True


async def settle(line: Line, claim: Claim, ttl: float, doubt: Doubt) -> None:
    """End the doubt about an earlier change: by another change in its place, or, if it was made, by taking an append
    back.
    """
    if not await repeated(lambda: line.settle(claim, doubt.settled, ttl)):
        state = await repeated(lambda: line.state(claim.session_id))
        if state is None or state.fence != claim.fence:
            lost(claim, state)
            return
        if state.change == doubt.change and doubt.appended:
            await repeated(lambda: line.undo(claim, doubt.change, doubt.settled))
            state = await repeated(lambda: line.state(claim.session_id)) or state
        if state.change == doubt.change:
            log.warning("session %r: a change that was reported as failed has been made after all", claim.session_id)
            claim.moved(doubt.change, state.extent)
            claim.doubt = None
            return
    claim.held = claim.held._replace(change=doubt.settled)
    claim.doubt = None


def lost(claim: Claim, state: State | None) -> SessionLost:
    """The error for a claim that turned out to be another's; marks it."""
    claim.lost_to = GONE if state is None else state.holder or "another writer, who is done with it"
    return SessionLost(claim.session_id, claim.lost_to)


async def repeated(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, and if the connection breaks ask once more: for what can be done twice without harm."""
    try:
        return await ask()
    except Cut:
        return await ask()
