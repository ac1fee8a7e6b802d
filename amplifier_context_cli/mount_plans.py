"""The config keys of a mount plan, as `doctor` checks them: each module of this project reads its own.

A module is mounted into a coordinator of the kernel's that runs nothing, with `strict_config`: then the first key that
it does not know, or that has an impossible value, is an error. That key is taken out, and the module is mounted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from amplifier_context_core.errors import ConfigError

from .transfer.conversation import items, mapping

_IS_CONTEXT = "context-"  # beginning of the ids of context managers; other modules know no `strict_config`


async def wrong_keys(path: Path, modules: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Return each of some modules that a plan mounts, with what is wrong about its config: mostly nothing.

    Raises:
        click.ClickException: the plan cannot be read, or mounts none of these modules that is installed.
    """
    try:
        from amplifier_core.testing import create_test_coordinator
    except ImportError:
        raise click.ClickException(
            "--plan mounts modules, which needs the kernel: pip install amplifier-core"
        ) from None
    plan = yaml_in(path)
    found = [
        (name, await _problems(point.load(), create_test_coordinator, name, config))
        for name, config in _mounted(plan)
        if name in modules
        for point in [*entry_points(group="amplifier.modules", name=name)][:1]
    ]
    if not found:
        raise click.ClickException(f"{path} mounts none of {', '.join(modules)} that is installed here")
    return found


def yaml_in(path: Path) -> Any:
    """Return what a YAML file holds.

    Raises:
        click.ClickException: it cannot be read. None of its lines is quoted: they may contain API keys.
    """
    import yaml  # slow to import

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise click.ClickException(f"{path} cannot be read: {reason}; a mount plan is a YAML file") from None
    except yaml.YAMLError as problem:
        mark: Any = getattr(problem, "problem_mark", None)
        fault = str(getattr(problem, "problem", None) or "it cannot be read")
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise click.ClickException(f"{path} is not YAML: {fault}{where}") from None
    except (ValueError, AttributeError, RecursionError) as problem:  # of PyYAML, such as for 2024-99-99
        raise click.ClickException(f"{path} is not YAML: a value cannot be read ({type(problem).__name__})") from None


def _mounted(plan: object) -> Iterator[tuple[str, Any]]:
    """Yield the id and the config of the context and of each tool of a plan."""
    mounts = mapping(plan) or {}
    context = (mapping(mounts.get("session")) or {}).get("context")
    if isinstance(context, str):  # the kernel then reads the config of the plan's own key `context`
        context = {**(mapping(mounts.get("context")) or {}), "module": context}
    for one in [context, *items(mounts.get("tools"))]:
        entry = mapping(one) or {"module": one}
        yield str(entry.get("module")), entry.get("config") or {}


async def _problems(mount: Callable[..., Any], coordinator: Callable[[], Any], name: str, given: object) -> list[str]:
    if mapping(given) is None:
        return ["config: must be keys with values"]
    config = {**(mapping(given) or {}), **({"strict_config": True} if name.startswith(_IS_CONTEXT) else {})}
    found: list[str] = []
    while True:
        try:
            cleanup = await mount(coordinator(), config)
        except ConfigError as problem:
            found.append(str(problem))
            if config.pop(problem.key.partition(".")[0], None) is None:
                return found  # written in another spelling
        else:
            if cleanup is not None:
                await cleanup()
            return found
