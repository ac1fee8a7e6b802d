"""The command `amplifier-context run`: run a kernel session and show its context from request to request."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import click

from amplifier_context_cli.store_options import tokens
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores.validation import check_conversation_id

from .plan import read_plan
from .session import run_session

DEFAULT_PLAN = Path("examples", "explore.yaml")
WATCHED_PACE = 0.04  # seconds after each request: without a model the rows would be too fast to follow


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path), metavar="[PLAN]")
@click.option(
    "--path", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder that the agent explores."
)
@click.option("--context", metavar="MODULE_ID", help="Context module to use instead of the plan's; the config is kept.")
@click.option("--prompt", "prompts", multiple=True, metavar="TEXT", help="A prompt; may be given several times.")
@click.option(
    "--session",
    "session_id",
    metavar="ID",
    help="Session id; a persistent context continues this session. By default each plan has its own id.",
)
@click.option("--budget", type=tokens, metavar="TOKENS", help="Maximal tokens of a request, such as 16k.")
@click.option("--pace", type=click.FloatRange(min=0), metavar="SECONDS", help="Pause after each request.")
@click.option("--debug", is_flag=True, help="Log everything, and show the traceback of an error.")
def run(
    plan: Path | None,
    folder: Path | None,
    context: str | None,
    prompts: tuple[str, ...],
    session_id: str | None,
    budget: int | None,
    pace: float | None,
    debug: bool,
) -> None:
    """Run a session from a mount plan and show its context.

    PLAN is a mount plan in YAML. The default is examples/explore.yaml: a scripted agent that explores a folder with
    real tools, in a window so small that the history is compacted several times. It needs no model and no network.

    With a persistent context, a second run continues the session of the first.

    A plan with real providers works the same. Its prompts come from --prompt or from a key `prompts` in the plan;
    without either, standard input is the prompt.

    The exit code is 1 if a request was invalid, if the history is not complete, or after an error.
    """
    if plan is None and not DEFAULT_PLAN.is_file():
        raise click.ClickException(
            f"no PLAN was given, and this folder has no {DEFAULT_PLAN.as_posix()}\n"
            "Change to a clone of the repository, or pass a mount plan: amplifier-context run my-plan.yaml"
        )
    file = plan or DEFAULT_PLAN
    try:
        check_conversation_id(session_id or "run")
    except ConfigError as problem:
        raise click.BadParameter(str(problem), param_hint="--session") from None
    chosen = read_plan(file).changed(context=context, budget=budget, folder=folder)
    if prompts:
        chosen = replace(chosen, prompts=prompts)
    if pace is None:
        pace = WATCHED_PACE if sys.stdout.isatty() else 0.0
    raise SystemExit(asyncio.run(run_session(chosen, session_id or f"run-{file.stem}", pace=pace, debug=debug)))
