"""Histories in Redis: many machines, one writer per session.

``redis://user:password@host:6379/0?prefix=NAME&lease_ttl=30``. See `driver` for how a change is applied, and `scripts`
for the keys.

What is acknowledged is as durable as the server makes it: `durability: fsync` needs ``appendonly yes`` with
``appendfsync always``. `rewrite` (to erase a pasted secret) replaces the rows and asks the server to rewrite its
append-only file. Older dumps, files of replicas and backups keep the former text until they are replaced.
"""

from __future__ import annotations

import contextlib
import logging
from typing import cast

from ...errors import SessionLost
from ..leased.loop_thread import RefCounted
from ..leased.protocol import Driver, Lease
from ..leased.sessions import Change, retry_once
from ..leased.store import LeasedStore
from ..protocol import Durability, Extent, OnRepair, Repair
from .driver import RedisDriver
from .integrity import IntegrityError
from .url import RedisSettings, parse_store_url

log = logging.getLogger(__name__)

_DRIVERS: RefCounted[RedisSettings, RedisDriver] = RefCounted(RedisDriver)


class RedisStore(LeasedStore):
    """A store in a Redis database. Stores of one process with the same URL share its connections.

    Args:
        settings: of the connection.
        lease_ttl: seconds until a lease that is not renewed expires.
        archive: keep what edits and interrupts take out of a history.
    """

    def __init__(self, settings: RedisSettings, *, lease_ttl: float = 30.0, archive: bool = True) -> None:
        super().__init__(_DRIVERS, settings, ttl=lease_ttl, archive=archive)

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "fsync", archive: bool = True) -> RedisStore:
        """Return the store of a ``redis://`` or ``rediss://`` URL.

        The store's own parameters are prefix, cluster=true (the server is a node of a cluster), lease_ttl (seconds),
        pool_size, socket_timeout and socket_connect_timeout (seconds). All others are passed to redis-py.

        Raises:
            ConfigError: the URL cannot be used.
        """
        settings, lease_ttl = parse_store_url(url, durability)
        return cls(settings, lease_ttl=lease_ttl, archive=archive)

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        extent = await super().open(session_id, on_repair)
        lease = self._leases.get(session_id)
        if lease is None or lease.grant.is_intact:
            return extent
        await self._change(session_id, _no_change)  # a session is repaired before it is changed
        return lease.extent

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        try:
            return await super().load_checkpoint(session_id)
        except IntegrityError as problem:
            if session_id in self._leases:
                with contextlib.suppress(SessionLost):  # then its new writer repairs it
                    await self._change(session_id, self._repair_keys)
            else:
                log.warning("%s; it is left out", problem)
            return None

    async def _change_locked(self, driver: Driver, session_id: str, change: Change) -> None:
        async def repair_and_change(driver: Driver, lease: Lease) -> None:
            if not lease.grant.is_intact:
                await self._repair_keys(driver, lease)
            try:
                await change(driver, lease)
            except IntegrityError:  # a key was lost while the session was open
                await self._settle(driver, session_id)
                await self._repair_keys(driver, lease)
                await change(driver, lease)

        await super()._change_locked(driver, session_id, repair_and_change)

    async def _repair_keys(self, driver: Driver, lease: Lease) -> None:
        await self._repair(driver, lease, [])

    async def _repair(self, driver: Driver, lease: Lease, damaged: list[int]) -> None:
        """Repair damaged rows and lost keys of a session, and report it."""
        redis = cast(RedisDriver, driver)
        before, problems = await retry_once(lambda: redis.damage(lease.session_id))
        await self._apply(driver, lease, lambda revision: driver.repair(lease, revision, damaged, self._ttl))
        after, _ = await retry_once(lambda: redis.damage(lease.session_id))
        state = await retry_once(lambda: driver.state(lease.session_id))
        lease.advance(lease.grant.revision, state.extent if state else None)
        unreadable = after.damaged - before.damaged
        if unreadable:
            problems.append(f"{unreadable:,} messages could not be read and were taken out")
        if problems:
            missing = max(0, before.expected - after.entries)
            if missing or before.has_no_meta:
                problems.append(f"the session goes on with {after.entries:,} messages")
            lost = missing + before.expected_archive - before.archive
            quarantine = f"the damaged rows on {driver.display_name}" if unreadable else ""
            self._report(lease, Repair(lease.session_id, "; ".join(problems), lost, quarantine))


async def _no_change(driver: Driver, lease: Lease) -> None:
    """A change that changes nothing."""
