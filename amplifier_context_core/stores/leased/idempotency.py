"""Changes that are applied once, however often they are sent, and how an unknown outcome is resolved.

See `protocol` for leases and revisions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...errors import SessionLost, StoreError
from ..protocol import Extent
from .protocol import (
    ConnectionLost,
    Driver,
    Lease,
    LeaseState,
    NotDurable,
    UnknownOutcome,
    holder_name,
    new_revision,
)

log = logging.getLogger(__name__)

T = TypeVar("T")


async def apply_idempotently(
    driver: Driver,
    lease: Lease,
    ttl: float,
    send: Callable[[int], Awaitable[Any]],
    after: Extent | None = None,
    appended: int = 0,
) -> None:
    """Apply a change. Send it again if no answer came. Record an unknown outcome if it fails without an answer.

    Args:
        driver: of the server.
        lease: of the session; it advances with the change.
        ttl: seconds until the lease expires.
        send: sends the change under a revision, and returns True if it was applied.
        after: the session's extent once the change is applied, if it differs.
        appended: entries that the change adds, if it is an append.
    """
    revision = new_revision()
    is_unknown = False
    for attempt in (1, 2, 3):
        try:
            if await send(revision) or await _was_applied(driver, lease, ttl, revision):
                lease.advance(revision, after)
                return
        except SessionLost:
            raise
        except StoreError as problem:
            is_unknown = is_unknown or isinstance(problem, (ConnectionLost, NotDurable))
            if isinstance(problem, ConnectionLost) and attempt < 3:
                continue
            if is_unknown:
                lease.pending_outcome = UnknownOutcome(revision, new_revision(), appended)
            raise
    raise StoreError(f"session {lease.session_id!r} could not be leased again on {driver.display_name}; try again")


async def _was_applied(driver: Driver, lease: Lease, ttl: float, revision: int) -> bool:
    """Return True if a change was refused because it had been applied before; raise if the lease is lost."""
    state = await driver.state(lease.session_id)
    if state is None and not lease.grant.created:
        # Nothing was ever written, and the lease itself has expired.
        grant = await driver.acquire(lease.session_id, lease.token, holder_name(), ttl)
        if isinstance(grant, str) or grant.created:
            raise lease_lost(lease, await driver.state(lease.session_id))
        lease.grant = grant
        return False
    if state is None or state.token != lease.token:
        raise lease_lost(lease, state)
    if state.revision != revision:
        raise StoreError(f"session {lease.session_id!r} was changed by a writer without a lease; open it again")
    return True


async def resolve_outcome(driver: Driver, lease: Lease, ttl: float, outcome: UnknownOutcome) -> None:
    """Resolve the unknown outcome of an earlier change.

    Apply an empty change in its place, so that it can no longer be applied. If it was applied already and is an
    append, revert it.
    """
    if not await retry_once(lambda: driver.set_revision(lease, outcome.resolving_revision, ttl)):
        state = await retry_once(lambda: driver.state(lease.session_id))
        if state is None or state.token != lease.token:
            lease_lost(lease, state)
            return
        if state.revision == outcome.revision and outcome.appended:
            await retry_once(lambda: driver.revert_append(lease, outcome.revision, outcome.resolving_revision))
            state = await retry_once(lambda: driver.state(lease.session_id)) or state
        if state.revision == outcome.revision:
            log.warning("session %r: a change that was reported as failed was applied", lease.session_id)
            lease.advance(outcome.revision, state.extent)
            lease.pending_outcome = None
            return
    lease.grant = lease.grant._replace(revision=outcome.resolving_revision)
    lease.pending_outcome = None


def lease_lost(lease: Lease, state: LeaseState | None) -> SessionLost:
    """Mark a lease as lost, to another writer or because the session is gone, and return the error for that."""
    lease.lost_to = "" if state is None else state.holder or "another writer, which has released it since"
    return SessionLost(lease.session_id, lease.lost_to)


async def retry_once(ask: Callable[[], Awaitable[T]]) -> T:
    """Send a request, and send it once more if the connection breaks. For requests that are harmless to repeat."""
    try:
        return await ask()
    except ConnectionLost:
        return await ask()
