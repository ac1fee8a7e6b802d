"""``python -m bench``: measure, each size and each store in a process of its own, and print the tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from amplifier_context_core.amounts import amount_in

from .against import measure_against
from .appending import STORES
from .process import run, say
from .sessions import BUDGET, name_of
from .targets import AGAINST, APPENDING, RESUMING, SESSIONS, Figures, Part

ALL = "1k,10k,100k,1m"
PARTS = ("sessions", "stores")


def _sizes(_context: click.Context, _parameter: click.Parameter, value: str) -> list[int]:
    sizes = sorted({amount_in(name) or 0 for name in value.split(",")})
    if sizes[0] < 100:
        raise click.BadParameter(f"{value!r} is no list of sizes such as {ALL}, each of 100 messages or more")
    return sizes


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sizes", default=ALL, show_default=True, callback=_sizes, help="Messages of the sessions to measure.")
@click.option("--only", type=click.Choice(PARTS), help="Only sessions in memory, or only appending and resuming.")
@click.option("--against", metavar="COMMIT", help="Only compare requests with those of another commit, in one run.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here, too.")
def main(sizes: list[int], only: str | None, against: str | None, file: Path | None) -> None:
    """Measure speed and memory of the context manager against targets. All sizes take about eight minutes."""
    started = perf_counter()
    if against:
        parts = [_against(against)]
    else:
        parts = [*(_sessions(sizes) if only != "stores" else ()), *(_stores(sizes) if only != "sessions" else ())]
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=165)
    for part in parts:
        console.print(part.table())
    verdicts = dict(pair for part in parts for pair in part.verdicts())
    missed = [name for name, verdict in verdicts.items() if verdict == "miss"]
    console.print(
        f"{len(verdicts) - len(missed)} of {len(verdicts)} targets met" + "".join(f"\n  missed: {m}" for m in missed)
    )
    console.print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; "
        f"{perf_counter() - started:.0f} s in all. Budget {BUDGET:,} tokens, counted by the heuristic; sessions like "
        "recorded coding sessions. A figure in units of a baseline was measured beside it in the same process. The "
        "baseline of files is a SQLite insert and commit per message in one thread, of PostgreSQL an insert in "
        "autocommit, of Redis an RPUSH; for sixteen, sixteen such tasks.",
        style="dim",
    )
    if file:
        document = {part.title: {**part.columns} for part in parts}
        file.write_text(json.dumps({**document, "verdicts": verdicts}, indent=1, ensure_ascii=False) + "\n")


def _sessions(sizes: list[int]) -> Iterator[Part]:
    columns = {name_of(size): _measure(f"{name_of(size)} messages", "bench.measure", str(size)) for size in sizes}
    yield Part("Sessions of so many messages", SESSIONS, columns)


def _against(commit: str) -> Part:
    try:
        columns = measure_against(commit, BUDGET, say)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--against") from None
    return Part("Requests of two commits, the same messages, in turns", AGAINST, {**columns})


def _stores(sizes: list[int]) -> Iterator[Part]:
    appending: dict[str, Figures] = {}
    for store in STORES:
        figures = _measure(f"appending to {store}", "bench.appending", store)
        if "absent" in figures:
            click.echo(f"{store} is left out: {figures['absent']}", err=True)
        else:
            appending[store] = figures
    if appending:
        yield Part("Appending to a store that keeps what it acknowledged", APPENDING, appending)
    resuming = {
        name_of(size): _measure(f"{name_of(size)} messages", "bench.resume", "all", str(size)) for size in sizes
    }
    for store in next(iter(resuming.values()), ()):
        columns = {size: figures[store] for size, figures in resuming.items()}
        yield Part(f"Sessions of so many messages, resumed from {store}", RESUMING, columns)


def _measure(title: str, module: str, *arguments: str) -> dict[str, Any]:
    say(title)
    try:
        return run("-m", module, *arguments)
    except subprocess.CalledProcessError as failed:
        raise click.ClickException(f"measuring {title} ended with code {failed.returncode}; why is above") from None


if __name__ == "__main__":
    main()
