"""`amplifier-context run`: a real session, its memory watched from request to request."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores.validation import check_session_id

from ..token_amounts import tokens
from .plan import plan_of_recording, read_plan
from .session import Settings, run_session
from .terminal import open_terminal

DEFAULT_PLAN = Path("examples", "explore.yaml")
WATCHED_PACE = 0.04  # seconds after each request: without a model nobody could follow


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path), metavar="[PLAN]")
@click.option(
    "--path", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder the agent looks into."
)
@click.option("--context", metavar="MODULE_ID", help="Context module to use instead of the plan's; its config is kept.")
@click.option(
    "--transcript",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay a recorded session (JSONL, .gz or not).",
)
@click.option("--index", type=click.IntRange(min=0), default=0, help="Which transcript of FILE; 0 is the first.")
@click.option("--prompt", "prompts", multiple=True, metavar="TEXT", help="What to ask; may be given several times.")
@click.option(
    "--session",
    "session_id",
    metavar="ID",
    help="Session id: a context that keeps its history goes on with it. By default one for each plan.",
)
@click.option("--budget", type=tokens, metavar="TOKENS", help="Most tokens a request may hold, such as 16k.")
@click.option("--pace", type=click.FloatRange(min=0), metavar="SECONDS", help="Pause after each request.")
@click.option("--plain", is_flag=True, help="Plain lines: no colours, nothing redrawn.")
@click.option("--debug", is_flag=True, help="Log everything, and show the traceback of an error.")
def run(
    plan: Path | None,
    folder: Path | None,
    context: str | None,
    transcript: Path | None,
    index: int,
    prompts: tuple[str, ...],
    session_id: str | None,
    budget: int | None,
    pace: float | None,
    plain: bool,
    debug: bool,
) -> None:
    """Run a session from a mount plan and watch its memory.

    PLAN is a mount plan in YAML; without one it is examples/explore.yaml: a scripted agent that explores a folder with
    real tools, in a window so small that its memory is compacted several times. No model and no network are needed.

    With a context that keeps its history, a second run goes on where the first one ended.

    A plan with real providers works the same. Its prompts come from --prompt, from a key `prompts` in the plan, or
    from the keyboard.

    Exit code 1 says that a request was invalid, that the history is not complete, or that there was an error.
    """
    if transcript is not None:
        if prompts or folder is not None:
            raise click.UsageError("--transcript brings its own prompts and tools: leave out --prompt and --path")
        chosen = plan_of_recording(
            transcript, index, base=read_plan(plan) if plan is not None else None, context=context, budget=budget
        )
    else:
        chosen = read_plan(plan or default_plan())
        if context is not None:
            chosen = chosen.with_context(context)
        if folder is not None:
            chosen = chosen.with_folder(folder)
        if budget is not None:
            chosen = chosen.with_budget(budget)
        if prompts:
            chosen = chosen.with_prompts(prompts)
    if session_id is not None:
        try:
            check_session_id(session_id)
        except ConfigError as problem:
            raise click.BadParameter(str(problem), param_hint="--session") from None
    plain = plain or not sys.stdout.isatty()
    if session_id is None and transcript is None:  # a recording is not gone on with
        session_id = f"run-{(plan or DEFAULT_PLAN).stem}"
    settings = Settings((0.0 if plain else WATCHED_PACE) if pace is None else pace, debug, session_id)
    with open_terminal(plain=plain) as terminal:
        code = asyncio.run(run_session(chosen, terminal, settings))
    raise SystemExit(code)


def default_plan() -> Path:
    """The plan of the demo, when the current folder is a clone of the repository."""
    if DEFAULT_PLAN.is_file():
        return DEFAULT_PLAN
    raise click.ClickException(
        f"there is no {DEFAULT_PLAN.as_posix()} in this folder, and no PLAN was given\n"
        "Go to a clone of the repository, or pass a mount plan: amplifier-context run my-plan.yaml"
    )
