"""context-persistent: a history that outlives the process, in files or on a server, and is resumed at once.

It replaces the module of the same id: it accepts the config keys of that module and opens its sessions (see README).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.config import Config
from amplifier_context_core.default_paths import in_project, sessions_folder
from amplifier_context_core.errors import ConfigError, install_command
from amplifier_context_core.kernel import Cleanup, conversation_id, mount_manager, project_of, providers_by_name
from amplifier_context_core.messages.timestamps import with_top_level_timestamp
from amplifier_context_core.stores import Durability, Store, open_store
from amplifier_context_core.stores.jsonl.store import JsonlStore

from .memory_files import add_to_session

if TYPE_CHECKING:
    from amplifier_context_recall.notes import Notes

__amplifier_module_type__ = "context"

log = logging.getLogger(__name__)

MODULE = "context-persistent"

__all__ = ["MODULE", "PersistentConfig", "mount"]


class PersistentConfig(Config):
    """Core's settings, and where and how the history is kept."""

    protected_recent: float = Field(0.10, ge=0, le=1, description=Config.model_fields["protected_recent"].description)
    store: str | None = Field(None, min_length=1, description="URL; default `jsonl:` with `storage_path`")
    durability: Durability = Field(
        "fsync", description="an acknowledged message is on disk (fsync), with the operating system (flush), or neither"
    )
    archive: bool = Field(True, description="keep what edits and interrupts take out of a history")
    storage_path: Path | None = Field(
        None,
        description="folder of sessions; default ~/.amplifier/projects/…/sessions; may hold `{project}`",
    )
    transcript_path: Path | None = Field(None, description="the file of this session itself")
    memory_files: tuple[Path, ...] = Field((), description="texts that become system messages of a fresh session")
    notes: bool = Field(
        False,
        description="keep notes of the project beside its sessions, with `amplifier-context-recall`; fresh sessions "
        "begin with them",
    )
    notes_tokens: int = Field(1_000, ge=1, description="tokens of the notes that a fresh session begins with")

    @field_validator("memory_files", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, (str, Path)) else value

    @field_validator("storage_path", "transcript_path", mode="before")
    @classmethod
    def _is_a_path(cls, value: Any) -> Any:
        if isinstance(value, str) and not value.strip():  # `Path("")` is the current folder
            raise ValueError("write a path, or leave the key out for the default")
        return value


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Cleanup:
    """Mount a context manager with a durable history as the session's context. Opens no file or connection.


    Raises:
        ConfigError: a config key has an impossible value, or the session id cannot name a file.
    """
    settings = load_config(config, module=MODULE, model=PersistentConfig)
    project = project_of(coordinator)
    session_id = conversation_id(coordinator)
    notes = _notes(settings, project) if settings.notes else None
    manager = ContextManager(
        settings,
        session_id=session_id,
        hooks=coordinator.hooks,
        store=_store(settings, project),
        on_new_session=partial(
            add_to_session,
            settings.memory_files,
            notes,
            settings.notes_tokens,
            lambda: providers_by_name(coordinator).values(),
        ),
        add_timestamp=with_top_level_timestamp,
    )
    for name, capability in notes.capabilities(session_id).items() if notes else ():
        coordinator.register_capability(name, capability)
    return await mount_manager(coordinator, manager, MODULE)


def _notes(settings: PersistentConfig, project: Path | None) -> Notes | None:
    """Return the notes of a project; None, with a line in the log, if the package that has them is not installed.

    Raises:
        ConfigError: the store ends with the process.
    """
    if (settings.store or "").startswith("memory:"):
        raise ConfigError("notes", "need a store that outlives the process, not memory:")
    try:
        from amplifier_context_recall.notes import Notes, notes_id
    except ModuleNotFoundError:
        command = install_command("notes", "amplifier-context-persistent")
        log.warning("%s: notes are neither kept nor shown, which needs a package: %s", MODULE, command)
        return None
    # Where the command looks for them too: also of a session that is a file of its own, or of a host that runs in
    # another folder.
    folder = settings.storage_path or (sessions_folder(project) if settings.store is None else None)
    kept = settings.model_copy(update={"transcript_path": None, "storage_path": folder})
    return Notes(partial(_store, kept, project), notes_id(project))


def _store(settings: PersistentConfig, project: Path | None) -> Store:

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
