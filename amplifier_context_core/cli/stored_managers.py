"""A stored session as a manager: with the settings that it was saved with, by the module that wrote it."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..manager import ContextManager
    from ..stores import Store
    from ..view.session_state import SessionState

log = logging.getLogger(__name__)


def manager_of(data: bytes | None, session_id: str, store: Store, budget: int | None) -> ContextManager:
    """Return a manager of a session of a store.

    A module that keeps state of its own in sessions, such as context-summary, makes the manager of its sessions: by
    `stored_manager(settings, session_id=..., store=...)` of the package that its entry point names. A package that
    fails is named in a warning, and the manager is core's own, as if it were not installed.

    Args:
        data: what the store has beside the history; settings are left at their defaults where it does not say.
        session_id: id of the session.
        store: the store.
        budget: tokens of a request; None for the largest that the session had.
    """
    from ..config import load_config
    from ..manager import ContextManager

    state = _state(data)
    settings = _settings(state)
    if budget:
        settings["max_tokens"] = budget
    for point in entry_points(group="amplifier.modules") if state and state.extra else ():
        if state and point.name in state.extra:
            try:
                make = getattr(import_module(point.module), "stored_manager", None)
                if make is not None:
                    return cast("ContextManager", make(settings, session_id=session_id, store=store))
            except Exception as problem:  # noqa: BLE001 - other people's code: named, and left out
                log.warning("%s", _left_out(point, problem))
    return ContextManager(load_config(settings), session_id=session_id, store=store)


def _left_out(point: EntryPoint, problem: Exception) -> str:
    package = point.dist.name if point.dist else point.module
    return (
        f"the session was written by the module {point.name}, which cannot be loaded from {point.module} "
        f"({type(problem).__name__}: {problem}); the command goes on without it, as if it were not installed. "
        f"Reinstall the package {package}"
    )


def _state(data: bytes | None) -> SessionState | None:
    from ..view.session_state import load

    try:
        return load(data) if data else None
    except ValueError:
        return None  # the view is made from the history


def _settings(state: SessionState | None) -> dict[str, Any]:
    """Return the config keys that decide a session's views, with the largest budget as `max_tokens`."""
    from ..view.view_factory import settings_in

    if state is None:
        return {}
    settings = settings_in(state.compatibility_key)
    budgets = [*(budget for budget, _ in state.by_budget), *(one.served_budget for one in state.uncompacted_views)]
    return {**settings, "max_tokens": max(budgets)} if budgets else settings
