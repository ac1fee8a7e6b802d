"""context-summary: chapters written by a model, in the background, with the digest always at hand (see README)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from amplifier_context_core.default_paths import in_project
from amplifier_context_core.kernel import Cleanup, conversation_id, mount_manager, project_of, providers_by_name
from amplifier_context_core.stores import Store, open_store

from .asking import EVENTS
from .config import MODULE, SummaryConfig, load_summary_config
from .manager import SummaryManager

__amplifier_module_type__ = "context"

__all__ = ["MODULE", "SummaryConfig", "SummaryManager", "mount", "stored_manager"]


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Cleanup:
    """Mount a context manager whose chapters a model may write. Opens no file or connection, and calls no model.

    Raises:
        ConfigError: a config key has an impossible value, or the session id cannot name a file.
    """
    settings = load_summary_config(config)
    url = in_project(settings.store, project_of(coordinator))
    manager = SummaryManager(
        settings,
        session_id=conversation_id(coordinator),
        hooks=coordinator.hooks,
        store=open_store(url, durability=settings.durability, archive=settings.archive),
        providers=partial(providers_by_name, coordinator),
        tools=lambda: coordinator.get("tools") or {},
    )
    return await mount_manager(coordinator, manager, MODULE, EVENTS)


def stored_manager(settings: Mapping[str, Any], *, session_id: str, store: Store) -> SummaryManager:
    """Return a manager of a session of a store that calls no model, for commands that look at a stored session.

    Raises:
        ConfigError: a config key that the session was saved with has an impossible value.
    """
    return SummaryManager(load_summary_config(settings), session_id=session_id, store=store)
