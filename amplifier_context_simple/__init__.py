"""context-simple: memory that lives as long as the session, with a deterministic digest of what no longer fits.

Takes the place of the module of the same id; every config key that one reads is accepted (see README).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.kernel import Cleanup, mount_manager
from amplifier_context_core.stores import MemoryStore

__amplifier_module_type__ = "context"

MODULE = "context-simple"

__all__ = ["MODULE", "mount"]


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Cleanup:
    """Mount an in-memory context manager as the session's context.

    Args:
        coordinator: the kernel's coordinator.
        config: the mount plan's config of this module.

    Returns:
        The cleanup to be called at the end of the session.

    Raises:
        ConfigError: a config key has an impossible value.
    """
    manager = ContextManager(
        load_config(config, module=MODULE),
        session_id=coordinator.session_id or "session",
        hooks=coordinator.hooks,
        store=MemoryStore(),
    )
    return await mount_manager(coordinator, manager, MODULE)
