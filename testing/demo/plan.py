"""Mount plans: read, validated, and changed by the options of the command.

For an invalid plan the kernel reports only that it cannot initialise, and it ignores entries without a module. Here
each error names the key and a correct form. One key is not the kernel's: `prompts`, a list of texts, which is removed
before the kernel gets the plan.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from amplifier_context_cli.mount_plans import yaml_in

from ..checks.message_shapes import as_list, as_mapping

LISTS = ("providers", "tools", "hooks")
EXAMPLE = "session: {orchestrator: loop-basic, context: context-simple}"
ANSWER = 8_192  # tokens that provider-replay reserves for an answer


@dataclass(frozen=True, slots=True)
class Plan:
    """A mount plan, and its prompts in order; without any, standard input is the prompt."""

    title: str
    mounts: dict[str, Any]
    prompts: tuple[str, ...] = ()

    @property
    def context(self) -> str:
        return module_of(self.mounts["session"]["context"])

    @property
    def entries(self) -> list[Any]:
        session = self.mounts["session"]
        listed = (entry for key in LISTS for entry in self.mounts.get(key) or ())
        return [session["orchestrator"], session["context"], *listed]

    def changed(self, *, context: str | None = None, budget: int | None = None, folder: Path | None = None) -> Plan:
        """Return the plan with another context module, a limit for its requests in tokens, or a folder to explore."""
        mounts = deepcopy(self.mounts)
        old = mounts["session"]["context"]
        # For a context given by its id alone, the kernel reads the key `context`.
        beside = as_mapping(mounts.get("context") if isinstance(old, str) else old) or {}
        entry: dict[str, Any] = {"module": context or old} if context or isinstance(old, str) else dict(old)
        entry["config"] = {**(beside.get("config") or {}), **({"max_tokens": budget} if budget else {})}
        mounts["session"]["context"] = entry
        for provider in mounts["providers"]:
            if budget and provider["module"] == "provider-replay":  # its config declares its window: wide enough
                config: dict[str, Any] = dict(provider.get("config") or {})
                needs = budget + int(config.get("max_output_tokens") or ANSWER) + 1_000
                provider["config"] = {**config, "context_window": max(needs, int(config.get("context_window") or 0))}
        if folder is not None:
            tools = [tool for tool in mounts.get("tools") or () if tool["module"] == "tool-folder"]
            if not folder.is_dir() or not tools:
                problem = "this plan mounts no tool-folder" if folder.is_dir() else f"{folder} is not a folder"
                raise click.ClickException(f"--path: {problem}")
            for tool in tools:
                tool["config"] = {**(tool.get("config") or {}), "path": str(folder)}
        return replace(self, mounts=mounts)


def module_of(entry: Any) -> str:
    return entry if isinstance(entry, str) else str(entry["module"])


def read_plan(path: Path) -> Plan:
    """Read and validate a mount plan.

    Raises:
        click.ClickException: the file cannot be read, is not YAML, or is not a mount plan.
    """
    try:
        plan = _checked(path, yaml_in(path))
    except _BadPlanError as problem:
        raise click.ClickException(f"{path} is not a mount plan: {problem}") from None
    for entry in plan.entries:
        source = (as_mapping(entry) or {}).get("source")
        if isinstance(source, str) and source and not source.startswith(("file:", "git+", "~")) and "://" not in source:
            entry["source"] = str((path.parent / source).resolve())  # a relative one is relative to the plan's folder
    return plan


class _BadPlanError(Exception):
    """The error of an invalid plan: the key, and a correct form."""


def _checked(path: Path, found: Any) -> Plan:
    mounts = _mapping(found, "the file")
    session = _mapping(mounts.get("session"), f"`session`; write for example  {EXAMPLE}")
    for key in ("orchestrator", "context"):
        if not session.get(key):
            raise _BadPlanError(f"`session.{key}` is missing; write for example  {EXAMPLE}")
        if not isinstance(session[key], str):
            _entry(session[key], f"`session.{key}`")
    for key in LISTS:
        entries = as_list(mounts.get(key) or [])
        if entries is None:
            raise _BadPlanError(f"`{key}` must be a list of entries like  - module: an-id")
        for place, entry in enumerate(entries):
            _entry(entry, f"`{key}[{place}]`")
    if not mounts.get("providers"):
        raise _BadPlanError("`providers` is missing: a session needs one, like  providers: [{module: provider-openai}]")
    prompts = as_list(mounts.pop("prompts", None) or [])
    if prompts is None or not all(isinstance(prompt, str) and prompt.strip() for prompt in prompts):
        raise _BadPlanError("`prompts` must be a list of texts")
    return Plan(f"plan {path}", mounts, tuple(prompts))


def _entry(value: Any, where: str) -> None:
    module = _mapping(value, where).get("module")
    if not isinstance(module, str) or not module:
        raise _BadPlanError(f"{where} has no `module`; write  module: an-id, and config: below it if needed")
    if value.get("config") is not None:
        _mapping(value["config"], f"the config of {module}")


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if as_mapping(value) is None:
        raise _BadPlanError(f"there are no keys and values in {what}")
    return value
