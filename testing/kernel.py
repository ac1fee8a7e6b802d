"""Real kernel sessions inside a test: `AmplifierSession` from a mount plan, with our loop and provider at hand.

    plan = mount_plan("context-simple", script=["Hello."], window=8_000)
    async with session(plan, sources={"context-simple": folder}) as running:
        assert await running.execute("Hi") == "Hello."

The plan is a host's plan, the loading is the kernel's: entry points, or folders by way of a source resolver, as hosts
do.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .recorder import EventRecorder

Mount = Callable[[Any, dict[str, Any]], Awaitable[Any]]
"""`async mount(coordinator, config)`, what an Amplifier module is."""


def mount_plan(
    context: str | Mapping[str, Any],
    *,
    script: Any = None,
    window: int | None = None,
    loop: Mapping[str, Any] | None = None,
    provider: Mapping[str, Any] | None = None,
    tools: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return a mount plan with loop-replay and provider-replay around a context.

    Args:
        window: context window the provider declares, in tokens.
    """
    answers: dict[str, Any] = dict(provider or {})
    if script is not None:
        answers["script"] = script
    if window is not None:
        answers["context_window"] = window
        answers.setdefault("max_output_tokens", max(1, window // 10))  # the default would leave a small window nothing
    return {
        "session": {
            "orchestrator": {"module": "loop-replay", "config": dict(loop or {})},
            "context": {"module": context} if isinstance(context, str) else dict(context),
        },
        "providers": [{"module": "provider-replay", "config": answers}],
        "tools": [{"module": name, "config": dict(config)} for name, config in (tools or {}).items()],
    }


@asynccontextmanager
async def session(
    plan: Mapping[str, Any],
    *,
    sources: Mapping[str, str | Path] | None = None,
    modules: Mapping[str, Mount] | None = None,
    recorder: EventRecorder | None = None,
    strict: bool = True,
    **options: Any,
) -> AsyncGenerator[Any]:
    """Open an initialised `AmplifierSession`; clean it up at the end.

    Args:
        sources: folders to load modules from, by module id; goes before entry points.
        modules: mount functions to use for module ids, before everything else: fakes of a test.
        recorder: attached to the session's hooks before any module is mounted.
        strict: a provider, tool or hook that fails to load raises `RuntimeError`; the kernel itself only warns.

    Raises:
        RuntimeError: a module could not be loaded; the sentence names it and the reason.
    """
    from amplifier_core import AmplifierSession

    running = AmplifierSession(dict(plan), **options)
    coordinator = running.coordinator
    coordinator.loader = _loader(coordinator, dict(modules or {}))
    await coordinator.mount("module-source-resolver", FolderResolver(sources))
    if recorder is not None:
        recorder.attach(coordinator)
    with EventRecorder(coordinator, ["module:load_failed"]) as failures:
        try:
            await running.initialize()
        except BaseException:
            await running.cleanup()
            raise
    try:
        if strict and failures.records:
            raise RuntimeError(
                "; ".join(
                    f"module {failed['module_id']}: {failed['error']}"
                    for failed in failures.named("module:load_failed")
                )
            )
        yield running
    finally:
        await running.cleanup()


class FolderResolver:
    """Finds modules in folders, as hosts do; mounted at `module-source-resolver`.

    Args:
        folders: module id to folder. A plan's own `source`, a path or a `file:` URL, goes first.
    """

    def __init__(self, folders: Mapping[str, str | Path] | None = None) -> None:
        self._folders = {name: Path(folder).resolve() for name, folder in (folders or {}).items()}

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Path:
        """Return the folder of a module; the kernel calls `resolve` of it.

        Raises:
            amplifier_core.module_sources.ModuleNotFoundError: not in a folder; the kernel then asks the entry points.
        """
        from amplifier_core.module_sources import ModuleNotFoundError as SourceNotFoundError

        hint = source_hint if source_hint is not None else profile_hint
        folder = local_folder(hint) if hint else self._folders.get(module_id)
        if folder is None:
            raise SourceNotFoundError(f"no folder is known for module {module_id!r}")
        if not folder.is_dir():
            raise FileNotFoundError(f"module {module_id!r}: {folder} is not a folder")
        return folder


def local_folder(hint: Any) -> Path | None:
    """Return the folder that a plan's `source` names; None for what is elsewhere (git, http)."""
    text = str(hint)
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path)).resolve()
    return None if "://" in text or text.startswith("git+") else Path(text).expanduser().resolve()


def _loader(coordinator: Any, modules: dict[str, Mount]) -> Any:
    from amplifier_core.loader import ModuleLoader

    kernels_own: Any = ModuleLoader  # unannotated in parts

    class Loader(kernels_own):
        async def load(
            self, module_id: str, config: Any = None, source_hint: Any = None, coordinator: Any = None
        ) -> Any:
            chosen = modules.get(module_id)
            if chosen is None:
                inherited: Any = super()
                return await inherited.load(module_id, config, source_hint, coordinator)
            return _bound(module_id, chosen, dict(config or {}))

    return Loader(coordinator=coordinator)


def _bound(module_id: str, mount: Mount, config: dict[str, Any]) -> Callable[[Any], Awaitable[Any]]:
    async def mount_with_config(coordinator: Any) -> Any:
        return await mount(coordinator, config)

    ready = getattr(sys.modules.get(mount.__module__), "on_session_ready", None)
    if iscoroutinefunction(ready):
        vars(mount_with_config)["__on_session_ready__"] = (module_id, ready)
    return mount_with_config
