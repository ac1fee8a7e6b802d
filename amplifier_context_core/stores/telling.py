"""How what was found damaged is told: to whoever listens, and never to nobody."""

from __future__ import annotations

import logging

from .protocol import OnRepair, Repair

log = logging.getLogger(__name__)


def tell_of(repair: Repair, listener: OnRepair | None) -> None:
    """Tell the listener, who logs it; it is logged here where there is none, or it fails."""
    if listener is not None:
        try:
            listener(repair)
        except Exception as problem:  # noqa: BLE001 - other people's code: named, and done without
            log.warning("a listener for repairs failed (%s)", type(problem).__name__)
        else:
            return
    log.warning("session %r: %s", repair.session_id, repair.told)
