"""context-persistent: a history that outlives the process, in files or on a server, and is resumed at once.

It replaces the module of the same id: it accepts the config keys of that module and opens its sessions (see README).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.config import Config
from amplifier_context_core.default_paths import in_project, sessions_folder
from amplifier_context_core.kernel import Cleanup, mount_manager, providers_of
from amplifier_context_core.messages.timestamps import with_top_level_timestamp
from amplifier_context_core.stores import Durability, Store, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.stores.validation import check_session_id

from .memory_files import add_to_session

__amplifier_module_type__ = "context"

log = logging.getLogger(__name__)

MODULE = "context-persistent"

__all__ = ["MODULE", "PersistentConfig", "mount"]


class PersistentConfig(Config):
    """Core's settings, and where and how the history is kept."""

    protected_recent: float = Field(0.10, ge=0, le=1, description=Config.model_fields["protected_recent"].description)
    store: str | None = Field(None, min_length=1, description="URL; default `jsonl:` with `storage_path`")
    durability: Durability = Field(
        "fsync", description="where an acknowledged message is: on disk, with the system, or neither"
    )
    archive: bool = Field(True, description="keep what edits and interrupts take out of a history")
    storage_path: Path | None = Field(
        None,
        description="folder of sessions; default ~/.amplifier/projects/…/sessions; may hold `{project}`",
    )
    transcript_path: Path | None = Field(None, description="the file of this session itself")
    memory_files: tuple[Path, ...] = Field((), description="texts that become system messages of a fresh session")

    @field_validator("memory_files", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, (str, Path)) else value


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Cleanup:
    """Mount a context manager with a durable history as the session's context. Opens no file or connection.

    Args:
        coordinator: the kernel's coordinator.
        config: of this module, from the mount plan.

    Returns:
        The cleanup function, to be called at the end of the session.

    Raises:
        ConfigError: a config key has an impossible value, or the session id cannot name a file.
    """
    settings = load_config(config, module=MODULE, model=PersistentConfig)
    manager = ContextManager(
        settings,
        session_id=check_session_id(coordinator.session_id or "session"),
        hooks=coordinator.hooks,
        store=_store(settings, coordinator.get_capability("session.working_dir")),
        on_new_session=partial(add_to_session, settings.memory_files, partial(providers_of, coordinator)),
        add_timestamp=with_top_level_timestamp,
    )
    return await mount_manager(coordinator, manager, MODULE)


def _store(settings: PersistentConfig, working_dir: object) -> Store:
    """Return the store of a session, with ``{project}`` replaced in its paths and its URL."""
    project = Path(working_dir) if isinstance(working_dir, str) else None

    def named(path: Path) -> Path:
        return Path(in_project(str(path), project))

    if settings.store is not None:
        for key in ("storage_path", "transcript_path"):
            if getattr(settings, key) is not None:
                log.warning("%s: %s is ignored because store is set; remove one of the two", MODULE, key)
        url = in_project(settings.store, project)
        return open_store(url, durability=settings.durability, archive=settings.archive)
    return JsonlStore(
        named(settings.storage_path) if settings.storage_path else sessions_folder(),
        file=named(settings.transcript_path) if settings.transcript_path else None,
        durability=settings.durability,
        archive=settings.archive,
    )
