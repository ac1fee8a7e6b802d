"""``python -m bench``: measure, each size in a process of its own, and print the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import click
from rich.console import Console

from .report import notes, tables, verdicts
from .sessions import name_of, size_of
from .targets import Figures

ALL = "1k,10k,100k,1m"
QUICK = "1k,10k"


def _sizes(_context: click.Context, _parameter: click.Parameter, value: str) -> list[int]:
    try:
        return sorted({size_of(name) for name in value.split(",")})
    except ValueError as problem:
        raise click.BadParameter(f"{value!r} is no list of sizes such as {ALL}: {problem}") from None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sizes", default=ALL, show_default=True, callback=_sizes, help="Messages of the sessions to measure.")
@click.option("--quick", is_flag=True, help=f"Only {QUICK}: under a minute.")
@click.option("--large/--no-large", default=True, show_default=True, help="Measure the message of 5 MB as well.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here, too.")
def main(sizes: list[int], quick: bool, large: bool, file: Path | None) -> None:
    """Speed and memory of the context manager, each figure beside its target. All sizes take about four minutes."""
    if quick:
        sizes = [size_of(name) for name in QUICK.split(",")]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=130)
    started = perf_counter()
    measured: dict[int, Figures] = {}
    for size in sizes:
        measured[size] = _measure(str(size), f"{name_of(size)} messages")
    one = _measure("large", "a message of 5 MB") if large else None
    seconds = perf_counter() - started
    for table in tables(measured, one):
        console.print(table)
    console.print(notes(seconds), style="dim")
    told = verdicts(measured, one)
    missed = [name for name, verdict in told.items() if verdict == "miss"]
    console.print(f"{len(told) - len(missed)} of {len(told)} targets met" + "".join(f"\n  missed: {m}" for m in missed))
    if file:
        document = {
            "sizes": {name_of(size): figures for size, figures in measured.items()},
            "large": one,
            "verdicts": told,
            "seconds": round(seconds, 1),
        }
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _measure(what: str, title: str) -> Figures:
    """The figures of one process; its progress is shown meanwhile."""
    console = Console(stderr=True, highlight=False)
    command = [sys.executable, "-m", "bench.measure", what]
    last = ""
    with (
        console.status(title) as status,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process,
    ):
        for line in process.stdout or ():
            last = line
            if line.startswith("... "):
                status.update(f"{title}: {line[4:].strip()}")
    if process.returncode:
        raise click.ClickException(f"measuring {title} ended with code {process.returncode}; what it printed is above")
    return json.loads(last)


if __name__ == "__main__":
    main()
