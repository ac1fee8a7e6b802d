"""A stored session as a manager: with the settings that it was saved with, by the module that wrote it."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from amplifier_context_core.config import load_config
from amplifier_context_core.manager import ContextManager
from amplifier_context_core.stores import Store
from amplifier_context_core.view.session_state import load
from amplifier_context_core.view.view_factory import settings_in

log = logging.getLogger(__name__)


async def manager_of(store: Store, session_id: str, budget: int | None = None) -> ContextManager:
    """Return a manager of a session of a store, with the settings in its checkpoint, or else the defaults.

    A module that keeps state of its own in sessions, such as context-summary, makes the manager of its sessions: by
    `stored_manager(settings, session_id=..., store=...)` of the package that its entry point names. A package that
    fails is named in a warning, and the manager is core's own, as if it were not installed.

    Without a budget, requests have the largest that the session had.
    """
    data = await store.load_checkpoint(session_id)
    try:
        state = load(data) if data else None
    except ValueError:
        state = None  # the view is made from the history
    settings: dict[str, Any] = {}
    if state is not None:
        settings = settings_in(state.compatibility_key)
        budgets = [*(budget for budget, _ in state.by_budget), *(one.served_budget for one in state.uncompacted_views)]
        settings |= {"max_tokens": max(budgets)} if budgets else {}
    settings |= {"max_tokens": budget} if budget else {}
    points = entry_points(group="amplifier.modules") if state and state.extra else ()
    for point in (point for point in points if state and point.name in state.extra):
        try:
            make = getattr(import_module(point.module), "stored_manager", None)
            if make is not None:
                return cast("ContextManager", make(settings, session_id=session_id, store=store))
        except Exception as problem:  # noqa: BLE001 - other people's code: named, and left out
            log.warning(
                "the session was written by the module %s, which cannot be loaded from %s (%s: %s); the command goes "
                "on without it, as if it were not installed. Reinstall the package %s",
                *(point.name, point.module, type(problem).__name__, problem),
                point.dist.name if point.dist else point.module,
            )
    return ContextManager(load_config(settings), session_id=session_id, store=store)
