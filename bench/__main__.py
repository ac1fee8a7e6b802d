"""``python -m bench``: measure, each size and each store in a process of its own, and print the tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from .against import measure_against
from .report import Part, notes
from .sessions import BUDGET, name_of, size_of
from .stores import APPENDING
from .stores_targets import NOTES, append_part, resume_part
from .targets import Figures, against_group, groups, large_group

ALL = "1k,10k,100k,1m"
QUICK = "1k,10k"


def _sizes(_context: click.Context, _parameter: click.Parameter, value: str) -> list[int]:
    try:
        return sorted({size_of(name) for name in value.split(",")})
    except ValueError as problem:
        raise click.BadParameter(f"{value!r} is no list of sizes such as {ALL}: {problem}") from None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sizes", default=ALL, show_default=True, callback=_sizes, help="Messages of the sessions to measure.")
@click.option("--quick", is_flag=True, help=f"Only {QUICK}: some two minutes.")
@click.option("--sessions/--no-sessions", default=True, show_default=True, help="Measure sessions in memory.")
@click.option("--large/--no-large", default=True, show_default=True, help="Measure the message of 5 MB as well.")
@click.option("--stores/--no-stores", default=True, show_default=True, help="Measure appending and resuming as well.")
@click.option("--against", metavar="COMMIT", help="Measure requests of another commit in the same run as well.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here, too.")
def main(
    sizes: list[int], quick: bool, sessions: bool, large: bool, stores: bool, against: str | None, file: Path | None
) -> None:
    """Measure speed and memory of the context manager against targets. All sizes take about eight minutes."""
    if quick:
        sizes = [size_of(name) for name in QUICK.split(",")]
    started = perf_counter()
    measured: dict[str, dict[str, Figures]] = {}
    parts = [
        *(_sessions(sizes, measured) if sessions else ()),
        *(_large(measured) if large else ()),
        *(_against(against, measured) if against else ()),
        *(_stores(sizes, measured) if stores else ()),
    ]
    seconds = perf_counter() - started
    verdicts = _print(parts, seconds, with_stores=stores)
    if file:
        document = {**measured, "verdicts": verdicts, "seconds": round(seconds, 1)}
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _print(parts: list[Part], seconds: float, *, with_stores: bool) -> dict[str, str]:
    console = _console()
    for part in parts:
        console.print(part.table())
    console.print(notes(seconds), style="dim")
    if with_stores:
        console.print(NOTES, style="dim")
    verdicts = {name: verdict for part in parts for name, verdict in part.verdicts().items()}
    missed = [name for name, verdict in verdicts.items() if verdict == "miss"]
    console.print(
        f"{len(verdicts) - len(missed)} of {len(verdicts)} targets met" + "".join(f"\n  missed: {m}" for m in missed)
    )
    return verdicts


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=165)


def _sessions(sizes: list[int], measured: dict[str, dict[str, Figures]]) -> list[Part]:
    columns = measured["sizes"] = {
        name_of(size): _measure(f"{name_of(size)} messages", "bench.measure", str(size)) for size in sizes
    }
    return [Part("Sessions of so many messages", columns, groups())]


def _large(measured: dict[str, dict[str, Figures]]) -> list[Part]:
    columns = measured["large"] = {"5 MB": _measure("a message of 5 MB", "bench.measure", "large")}
    return [Part("", columns, [large_group()])]


def _against(commit: str, measured: dict[str, dict[str, Figures]]) -> list[Part]:
    console = Console(stderr=True, highlight=False)
    with console.status(commit) as status:
        try:
            figures = measure_against(commit, BUDGET, status.update)
        except ValueError as problem:
            raise click.BadParameter(str(problem), param_hint="--against") from None
    columns: dict[str, Figures] = dict(figures)
    measured["against"] = columns
    return [Part("Requests of two commits, the same messages, in turns", columns, [against_group()])]


def _stores(sizes: list[int], measured: dict[str, dict[str, Figures]]) -> list[Part]:
    appending: dict[str, Figures] = {}
    for store in APPENDING:
        figures = _measure(f"appending to {store}", "bench.stores", "append", store)
        if "absent" in figures:
            _console().print(f"{store} is left out: {figures['absent']}")
        else:
            appending[store] = figures
    measured["appending"] = appending
    parts = [append_part(appending)] if appending else []
    resuming = {
        name_of(size): _measure(f"{name_of(size)} messages", "bench.stores", "resume", str(size)) for size in sizes
    }
    for store in next(iter(resuming.values()), ()):
        columns: dict[str, Figures] = {size: figures[store] for size, figures in resuming.items()}
        measured[f"resuming from {store}"] = columns
        parts.append(resume_part(store, columns))
    return parts


def _measure(title: str, module: str, *arguments: str) -> dict[str, Any]:
    """Return the figures of one process; show its progress meanwhile."""
    console = Console(stderr=True, highlight=False)
    command = [sys.executable, "-m", module, *arguments]
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
