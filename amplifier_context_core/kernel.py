"""Loading a module's folder, and mounting a manager into an Amplifier session: capabilities, events, cleanup.

The packages differ in what they mount; how they mount it is here. Nothing is opened: the kernel validates
a module by mounting it with the user's real config before the session's own mount (docs/kernel.md).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, cast

from .events import EVENTS
from .manager import ContextManager
from .messages.usage import Response, usage_of
from .session.host import Host
from .stores.validation import check_conversation_id

log = logging.getLogger(__name__)

Cleanup = Callable[[], Awaitable[None]]

_PRIORITIES = {
    "tool:post": 1_000,  # after other hooks: they may expect the fields of a result, not its text
    "session:resume": 1_000,  # after other hooks: they may restore the history
}
OVERFLOW = "ContextLengthError"  # the kernel's error type in `amplifier_core.llm_errors`, as events name it


def load_folder(name: str, file: str) -> None:
    """Import the folder that a file is in as a package, in place of that file.

    The kernel's loader puts the folder that a plan names as `source` first on `sys.path`, then imports the package by
    name. In a flat folder that import finds an installed copy of the package, and the kernel refuses to load both. So
    each module's folder holds a file of the package's name, which calls this with its `__name__` and `__file__`. Raises
    `ImportError`: there is no package in that folder.
    """
    spec = spec_from_file_location(name, Path(file).with_name("__init__.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}: no __init__.py beside {file}", name=name, path=file)
    package = module_from_spec(spec)
    sys.modules[name] = package  # what the import of that file returns
    spec.loader.exec_module(package)


async def mount_manager(coordinator: Any, manager: ContextManager, module: str, events: Sequence[str] = ()) -> Cleanup:
    """Mount a manager as the session's context; return the cleanup to be called at the end of the session. `events`:
    those that the module emits beside core's.
    """
    warn_of_duplicate_ids(module)
    manager.session.counter.start_loading()
    await coordinator.mount("context", manager)
    manager.requests.host = Host(coordinator)
    offered = {**capabilities_of(manager), **_contracts(manager)}
    for name, capability in offered.items():
        coordinator.register_capability(name, capability)
    coordinator.register_contributor("observability.events", module, lambda: [*EVENTS, *events])
    unregister = [
        coordinator.hooks.register(event, handler, _PRIORITIES.get(event, 0), name=f"{module}:{event}")
        for event, handler in _handlers(manager).items()
    ]

    async def cleanup() -> None:
        for undo in unregister:
            undo()
        await manager.close()

    return cleanup


@cache  # once in a process: each child session mounts its module too
def warn_of_duplicate_ids(module: str) -> None:
    """Log a warning if several distributions claim a module id: the kernel uses the first that Python finds."""
    claims = [point.dist for point in entry_points(group="amplifier.modules", name=module) if point.dist]
    if len(claims) > 1:
        names = " and ".join(f"{dist.name} {dist.version}" for dist in claims)
        log.warning(
            "%s: %s have this module id; a plan without a source gets the first, %s; uninstall what you do not want "
            "(docs/configuration.md)",
            module,
            names,
            claims[0].name,
        )


def project_of(coordinator: Any) -> Path | None:
    """Return the folder that a session works in; None if its host does not name one."""
    working_dir = coordinator.get_capability("session.working_dir")
    return Path(working_dir) if isinstance(working_dir, str) else None


def conversation_id(coordinator: Any) -> str:
    """Return the kernel's id of the session, or ``session`` where a test's kernel has none. Raises `ConfigError`: it
    cannot name a session, or names notes of a project.
    """
    given = coordinator.session_id
    return "session" if given is None else check_conversation_id(given)


def providers_by_name(coordinator: Any) -> Mapping[str, object]:
    """By the names that the mount plan gives them. They may be mounted after the context: call this when needed."""
    return Host(coordinator).mounted("providers")


def capabilities_of(manager: ContextManager) -> dict[str, Any]:
    return {
        "context.compact": manager.compact,
        "context.explain": manager.explain,
        "context.cache_health": manager.cache_health,
        "context.interrupt": manager.interrupt,
        "context.snapshot": manager.snapshot,
        "context.pin": manager.pin,
        "context.compact_summary": manager.compact_summary,
        "context.forget": manager.forget,
        "context.load": manager.load,
        "context.pool": manager.pool,
        "context.queue": manager.queue,
        "context.recall": manager.recall,
        "context.undo": manager.undo,
        "context.compactions": manager.compactions,
        "context.preview": manager.preview,
        "context.usage": manager.usage,
        "context.describe": manager.describe,
        "context.recall_room": manager.recall_room,
        "context.chapters": manager.chapters,
        "context.token_counter": manager.token_counter,
        "context.search": manager.search,
        "context.request_retention": manager.request_retention,
    }


def _contracts(manager: ContextManager) -> dict[str, Any]:
    """Return what public loops, tools and hosts look up under names that they agreed on (docs/kernel.md)."""
    host = manager.requests.checkpoint
    contracts: dict[str, Any] = {
        "context.checkpoint.export": host.export,
        "context.checkpoint.restore": host.restore,
        "context.checkpoint.status": host.status,
        "context.compacting": lambda: manager.compactor.is_compacting,
        "context.foreground_usage": manager.foreground_usage,
        "context.history": manager.get_messages,
        "context.history_authority": "host",  # the history is read through `context.history`, not from a file of ours
    }
    if manager.config.token_meter == "actual":  # a count costs the loop a call of the provider before each request
        contracts["context.measured_request_view"] = manager.measured_request_view
    return contracts


def _handlers(manager: ContextManager) -> dict[str, Callable[[str, dict[str, Any]], Awaitable[Any]]]:
    from amplifier_core import HookResult, ToolResult

    def quietly(react: Callable[[Mapping[str, Any]], Awaitable[None] | None]) -> Callable[[str, dict[str, Any]], Any]:
        async def handler(event: str, data: dict[str, Any]) -> Any:
            try:
                if (reacting := react(data or {})) is not None:
                    await reacting
            except Exception as problem:  # noqa: BLE001 - a fault here must not end the session
                log.warning("reacting to %s failed (%s)", event, type(problem).__name__)
            return HookResult(action="continue")

        return handler

    # The hook that names sessions states a purpose with its side calls; the loop's own requests have none.
    def requested(data: Mapping[str, Any]) -> None:
        if not data.get("purpose"):
            manager.on_request()

    def responded(data: Mapping[str, Any]) -> None:
        if data.get("purpose"):
            return
        if data.get("status", "ok") == "ok":
            manager.on_response(response_in(data))
        else:
            manager.on_failed_request()

    def failed(data: Mapping[str, Any]) -> None:
        error = data.get("error")
        kind = cast("Mapping[str, Any]", error).get("type") if isinstance(error, Mapping) else data.get("error_type")
        if kind == OVERFLOW:
            manager.on_context_length_error()
        manager.on_failed_request()

    async def returned(event: str, data: dict[str, Any]) -> Any:
        text = None
        try:
            text = await manager.session.items.collect((data or {}).get("result"), output_text)
        except Exception as problem:  # noqa: BLE001 - a hook of a pool or a queue, or a fault here
            log.warning("keeping the item of a tool's result failed (%s)", type(problem).__name__)
        if text is None:
            return HookResult(action="continue")
        return HookResult(action="modify", data={**data, "result": text})

    def output_text(output: Any) -> str:
        return ToolResult(output=output).get_serialized_output()

    return {
        "session:resume": quietly(lambda _: manager.session.warn_if_unknown()),
        "tool:post": returned,
        "llm:request": quietly(requested),
        "llm:response": quietly(responded),
        "provider:error": quietly(failed),
        "prompt:submit": quietly(lambda _: manager.history.on_prompt()),
        "cancel:completed": quietly(lambda _: manager.history.on_cancelled()),
        "orchestrator:complete": quietly(lambda _: manager.on_turn_complete()),
    }


def response_in(data: Mapping[str, Any]) -> Response:
    def text(name: str) -> str | None:
        value = data.get(name)
        return value if isinstance(value, str) and value else None

    return Response(text("model"), text("provider"), usage_of(data.get("usage")), text("finish_reason"), text("error"))
