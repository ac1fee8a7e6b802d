"""Which part of the design bought what: the default manager with one part switched off or set otherwise, by config.

python -m amplifier_context_testing.lab.ablations DATA... [--fraction 0.25] [--min-messages 100] [--first 40] [--pauses]

What a manager makes of pauses (`cache_ttl`) shows with `--pauses` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .course import Size
from .managers import Manager, manager
from .run import PAUSES, Extras, Report, measure
from .sessions import Part, Session, read_sessions
from .table import markdown, title
from .token_scale import TokenScale

MODULE = "context-simple"
LADDER = ("supersede", "fold", "condense", "clip", "clear", "drop")  # the default

Change = Mapping[str, Any]

VARIANTS: Mapping[str, Change] = {
    "as it is": {},
    "cadence fixed": {"cadence": "fixed"},
    "pauses ignored (cache_ttl 0)": {"cache_ttl": 0},
    **{f"cache_ttl {seconds}": {"cache_ttl": seconds} for seconds in (300, 1_800)},
    "without tables": {"json_tables": False},
    "without supersede": {"ladder": [rung for rung in LADDER if rung != "supersede"]},
    "without condense (old chapters dropped)": {"ladder": [rung for rung in LADDER if rung != "condense"]},
    "without fold (outputs clipped, cleared; drop)": {"ladder": ["supersede", "clip", "clear", "fit"]},
    "drop only (newest rounds that fit)": {"ladder": ["fit"]},
    "without names (heads of lines only)": {"ladder": [{"fold": {"line_share": 0.01}}, "condense", "drop"]},
    **{
        f"line_share {share}": {"ladder": ["supersede", {"fold": {"line_share": share}}, *LADDER[2:]]}
        for share in (0.1, 0.15, 0.35, 0.5)
    },
    **{f"target_usage {share}": {"target_usage": share} for share in (0.35, 0.4, 0.45, 0.6, 0.7)},
    **{f"compact_threshold {share}": {"compact_threshold": share} for share in (0.7, 0.8, 1.0)},
    **{f"chapter_share {share}": {"chapter_share": share} for share in (0.2, 0.3, 0.5)},
    **{f"protected_recent {share}": {"protected_recent": share} for share in (0.0, 0.15, 0.5)},
    **{f"output_share {share}": {"output_share": share} for share in (0.1, 0.35)},
}


def variants() -> list[Manager]:
    """Return the managers of the table."""
    return [
        _fitted(name, change) if "fit" in change.get("ladder", ()) else manager(MODULE, label=name, config=change)
        for name, change in VARIANTS.items()
    ]


def _fitted(name: str, change: Change) -> Manager:
    """Return a manager whose rung `fit`, which needs a number of tokens, is set to half of each session's budget."""

    async def open_fitted(scale: TokenScale, budget: int) -> Any:
        rungs = [{"fit": {"max_tokens": max(1, budget // 2)}} if rung == "fit" else rung for rung in change["ladder"]]
        return await manager(MODULE, config={**change, "ladder": rungs}).open(scale, budget)

    return Manager(name, open_fitted)


async def ablate(
    data: Sequence[Path],
    size: Size,
    *,
    min_messages: int = 0,
    first: int | None = None,
    part: Part | None = None,
    pauses: str | None = None,
) -> Report:
    """Return the report of all variants; `part` is taken of the `first` sessions, `pauses` is their seed."""
    sessions = [
        session
        for session in read_sessions(data, min_messages=min_messages)[:first]
        if part is None or session.part == part
    ]
    reported: set[str] = set()

    def progress(done: Manager, session: Session, requests: int) -> None:
        if done.label not in reported:
            reported.add(done.label)
            click.echo(f"{len(reported)} of {len(VARIANTS)}: {done.label}", err=True)

    return await measure(sessions, variants(), size, extras=Extras(pauses=pauses), progress=progress)


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option("--fraction", type=click.FloatRange(0, 1, min_open=True), default=0.25, show_default=True)
@click.option("--min-messages", type=click.IntRange(min=0), default=100, show_default=True)
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Only the first N sessions.")
@click.option("--part", type=click.Choice(["all", "choose", "report"]), default="choose", show_default=True)
@click.option("--pauses", is_flag=True, help="Insert pauses after a fifth of the human messages.")
def main(
    data: tuple[Path, ...], fraction: float, min_messages: int, first: int | None, part: str, pauses: bool
) -> None:
    """Print the table of ablations, in Markdown. Settings are chosen by it, so it runs on that half of the data."""
    half: Part | None = "choose" if part == "choose" else "report" if part == "report" else None
    seed = PAUSES if pauses else None
    size = Size(fraction=fraction)
    report = asyncio.run(ablate(data, size, min_messages=min_messages, first=first, part=half, pauses=seed))
    click.echo(f"{title(report)}\n\n{markdown(report)}")


if __name__ == "__main__":
    main()
