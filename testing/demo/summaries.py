"""Summaries for a plan whose context asks a model: the demo has none, so a script extracts them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ..checks.message_shapes import as_mapping
from ..replay.answer_policies import Policy
from ..summaries.extractive import extractive_answer
from .plan import Plan
from .progress import ProgressPrinter

ASKING = ("context-summary",)  # modules that ask a model for summaries
NAME = "summaries"  # of the provider that writes them
NOTES = (
    "There is no model: summaries are sentences that a script extracts. It shows when, not how well, a model writes.",
    "The window is small, and so is the money of the session: the ceiling `summary_spend` is lifted here.",
)


def with_writer(plan: Plan) -> Plan:
    """Return a plan that a provider-replay answers with a second one, which answers what its context asks for."""
    if plan.context not in ASKING or all(one["module"] != "provider-replay" for one in plan.mounts["providers"]):
        return plan
    mounts = deepcopy(plan.mounts)
    script = f"{__name__}:summaries_script"
    writer = {"priority": 1_000, "script": script}  # a loop prefers the other
    mounts["providers"].append({"module": "provider-replay", "instance_id": NAME, "config": writer})
    entry = mounts["session"]["context"]
    given: dict[str, Any] = {"module": entry} if isinstance(entry, str) else dict(entry)
    beside = (as_mapping(mounts.get("context")) or {}).get("config") if isinstance(entry, str) else None
    known = as_mapping(given.get("config")) or as_mapping(beside) or {}
    config = {"summary_provider": NAME, "summary_spend": 1.0, **known}
    mounts["session"]["context"] = {**given, "config": config}
    return replace(plan, mounts=mounts, notes=(*plan.notes, *NOTES))


def summaries_script(config: Mapping[str, Any]) -> Policy:
    """Return the policy of the provider that writes summaries."""
    return extractive_answer


def watch(coordinator: Any, progress: ProgressPrinter) -> None:
    """Print a note for each summary that is ready, and for each that failed."""
    from amplifier_core import HookResult

    async def noted(event: str, data: dict[str, Any]) -> Any:
        asked = f"{data.get('first')} to {data.get('last')}"
        if event == "context:summary_finished":
            tokens = f"from {data.get('input_tokens', 0):,} tokens; no request waited"
            progress.note(f"a summary of {asked} is ready, {tokens}")
        else:
            progress.note(f"no summary of {asked}: {data.get('reason')}")
        return HookResult(action="continue")

    for event in ("context:summary_finished", "context:summary_failed"):
        coordinator.hooks.register(event, noted, 0, name=f"amplifier-context-run:{event}")
