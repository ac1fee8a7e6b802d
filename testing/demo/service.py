"""A service on loopback for a plan whose context asks a model: the demo has none, so a script answers over the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from amplifier_context_cli.formatting import counted

from ..checks.message_shapes import as_mapping
from ..replay.answer_policies import policy_named
from .plan import Plan
from .progress import ProgressPrinter

if TYPE_CHECKING:
    from ..wire.apis import Service

ASKING = ("context-summary",)  # modules that ask a model for summaries
SUMMARIES = "summaries"  # the provider of a recording's summaries
WINDOW = 200_000  # tokens, of a provider that names none
NOTES = (
    "There is no model: requests go over HTTP to a service on 127.0.0.1, which checks them as OpenAI does.",
    "Summaries are sentences that a script extracts. This shows when one is asked for, not how well a model writes.",
    "The window is small, and so is the money of the session: the ceiling `summary_spend` is lifted here.",
)


@dataclass(frozen=True, slots=True)
class Served:
    """A plan and the service that answers it.

    Attributes:
        service: None if the plan needs none.
    """

    plan: Plan
    service: Service | None = None

    @property
    def line(self) -> str:
        """Return what the service saw; empty without one."""
        if self.service is None:
            return ""
        bill, refused = self.service.bill, len(self.service.refusals)
        share = bill.read / bill.tokens if bill.tokens else 0.0
        read = f", {share:.0%} of {bill.tokens:,} input tokens read from its cache"
        return f"{counted(len(self.service.exchanges), 'request')} over HTTP, {refused} refused{read}"


@asynccontextmanager
async def served(plan: Plan) -> AsyncGenerator[Served]:
    """Serve the answers of a plan whose context asks a model; a plan with a provider of its own stays as it is.

    The script of a provider-replay answers over the wire then, and extracts summaries. A recording is replayed as it
    always is, for its provider brings its tools, and only summaries go over the wire.

    Raises:
        click.ClickException: the packages of the extra `wire` are not installed.
    """
    places = [place for place, one in enumerate(plan.mounts["providers"]) if one["module"] == "provider-replay"]
    if plan.context not in ASKING or not places:
        yield Served(plan)
        return
    if find_spec("uvicorn") is None or find_spec("starlette") is None or find_spec("openai") is None:
        raise click.ClickException(
            "summaries need the extra `wire`: pip install './testing[wire]' in a clone of the repository"
        )
    from ..summaries.extractive import with_summaries
    from ..wire.apis import OpenAIService
    from ..wire.problems import Model
    from ..wire.server import serving

    config: Mapping[str, Any] = as_mapping(plan.mounts["providers"][places[0]].get("config")) or {}
    script = config.get("script")
    window, answer = int(config.get("context_window") or WINDOW), int(config.get("max_output_tokens") or 8_192)
    if isinstance(script, str):
        policy = policy_named(script, {**config, **(as_mapping(config.get("script_config")) or {})})
    else:
        policy = _no_answer
    service = OpenAIService(with_summaries(policy), [Model("script", max(window, WINDOW), max(answer, 8_192))])
    async with serving(service) as address:
        wire = {"api": "openai", "base_url": address, "model": "script"}
        wire |= {"context_window": window, "max_output_tokens": answer}
        mounts = deepcopy(plan.mounts)
        if isinstance(script, str):
            mounts["providers"][places[0]] = {"module": "provider-wire", "config": wire}
        else:
            extra = {**wire, "name": SUMMARIES, "priority": 1_000, "context_window": WINDOW}
            mounts["providers"].append({"module": "provider-wire", "config": extra})
            _configure(mounts, "summary_provider", SUMMARIES)
        _configure(mounts, "summary_spend", 1.0)
        yield Served(replace(plan, mounts=mounts, notes=(*plan.notes, *NOTES)), service)


def _no_answer(request: Any) -> Any:
    raise LookupError("this service answers requests for summaries only")


def _configure(mounts: dict[str, Any], key: str, value: str | float) -> None:
    """Set a key in the config of the context, unless the plan does."""
    entry: Any = mounts["session"]["context"]
    given: dict[str, Any] = dict(entry) if isinstance(entry, dict) else {"module": entry}  # pyright: ignore[reportUnknownArgumentType]
    beside = as_mapping(mounts.get("context")) if isinstance(entry, str) else None
    known = as_mapping(given.get("config")) or as_mapping((beside or {}).get("config")) or {}
    mounts["session"]["context"] = {**given, "config": {key: value, **known}}


def watch(coordinator: Any, progress: ProgressPrinter) -> None:
    from amplifier_core import HookResult

    async def finished(event: str, data: dict[str, Any]) -> Any:
        asked = f"{data.get('first')} to {data.get('last')}"
        progress.note(f"a summary of {asked} is ready, from {data.get('input_tokens', 0):,} tokens; no request waited")
        return HookResult(action="continue")

    async def failed(event: str, data: dict[str, Any]) -> Any:
        progress.note(f"no summary of {data.get('first')} to {data.get('last')}: {data.get('reason')}")
        return HookResult(action="continue")

    for event, handler in {"context:summary_finished": finished, "context:summary_failed": failed}.items():
        coordinator.hooks.register(event, handler, 0, name=f"amplifier-context-run:{event}")
