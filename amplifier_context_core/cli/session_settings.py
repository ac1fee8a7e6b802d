"""The settings that a kept session was saved with, for commands that take a view of it."""

from __future__ import annotations

from typing import Any


def session_settings(data: bytes | None) -> dict[str, Any]:
    """Return the config keys that decide a session's views, with the largest budget as `max_tokens`.

    Args:
        data: what the store has beside the history; keys are left out where it does not say.
    """
    from ..view.cache import settings_in
    from ..view.session_state import load

    try:
        state = load(data) if data else None
    except ValueError:
        return {}  # the view is made from the history
    if state is None:
        return {}
    settings = settings_in(state.compatibility_key)
    budgets = [*(budget for budget, _ in state.by_budget), *(one.served_budget for one in state.uncompacted_views)]
    return {**settings, "max_tokens": max(budgets)} if budgets else settings
