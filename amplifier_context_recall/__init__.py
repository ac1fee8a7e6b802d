"""tool-context-recall: a tool with which an agent reads back and searches what left its context.

Needs a context manager of amplifier-context in the same session, whichever is mounted first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from amplifier_context_core import ContextManager
from amplifier_context_core.errors import ConfigError, ContextError

from .lacking import names_lacking_in
from .recall_tool import NOT_OURS, ContextRecallTool, RecallConfig

__amplifier_module_type__ = "tool"

MODULE = "tool-context-recall"

__all__ = ["MODULE", "ContextRecallTool", "RecallConfig", "mount"]

_ALLOWED = ("compact", "explain", "notes", "pin", "preview", "undo", "usage")


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
    """Mount the tool and `context.lacking_names`. Each looks for the session's context manager when it is called.

    Args:
        config: of this module, from the mount plan; null values count as not written.

    Raises:
        ConfigError: a config key is unknown or has an impossible value.
    """
    tool = ContextRecallTool(coordinator.get_capability, _settings(config or {}))
    await coordinator.mount("tools", tool, name=tool.name)

    async def lacking_names(marks: Sequence[str], limit: int = 200) -> list[dict[str, str]]:
        manager = coordinator.get("context")
        if not isinstance(manager, ContextManager):
            raise ContextError(NOT_OURS)
        return await names_lacking_in(manager, marks, limit)

    coordinator.register_capability("context.lacking_names", lacking_names)


def _settings(config: Mapping[str, Any]) -> RecallConfig:
    try:
        settings = RecallConfig.model_validate({key: value for key, value in config.items() if value is not None})
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join(map(str, first["loc"])) or "config"
        known = ", ".join(sorted(RecallConfig.model_fields))
        raise ConfigError(key, f"{first['msg']}; {MODULE} knows {known}") from None
    unknown = sorted(settings.allow - set(_ALLOWED))
    if unknown:
        raise ConfigError("allow", f"{unknown[0]!r} is no operation to allow; known are {', '.join(_ALLOWED)}")
    return settings
