"""The frontier of chapters: what is kept against what it costs, along the settings that trade the one for the other.

python -m lab.frontier DATA... [--fraction 0.25 ...] [--part choose] [--svg FILE]

Every point is the default manager with one setting or constant changed; the first group trades, the second switches one
part off. Settings are chosen by this table, so it runs on the half of the data for choosing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import click

from amplifier_context_core.compaction import tuning
from amplifier_context_core.compaction.tuning import Tuning
from amplifier_context_testing.caches.token_scale import TokenScale

from .course import Size
from .figures import Figures
from .managers import Manager, Opened, manager
from .run import Report, measure
from .sessions import PARTS, read_sessions
from .table import markdown, title

POINTS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {  # config, constants
    "as it is": ({}, {}),
    "excerpt_chars 160": ({}, {"excerpt_chars": 160}),
    "calls 0.35": ({}, {"calls": 0.35}),
    "agent 0.40": ({}, {"agent": 0.40}),
    "agent 0.80": ({}, {"agent": 0.80}),
    "agent_share 0.20": ({}, {"agent_share": 0.20}),
    "chapter_share 0.40": ({"chapter_share": 0.40}, {}),
    "chapter_share 0.75": ({"chapter_share": 0.75}, {}),
    "without sentences": ({}, {"person_chars": 0, "agent_chars": 0}),
    "without the agent's sentences": ({}, {"agent_chars": 0}),
    "without excerpts": ({}, {"excerpt_chars": 0}),
}
WIDTH, HEIGHT, MARGIN = 760, 300, 46  # pixels of a picture
SHOWN = ("recall", "far", "far words", "agent")
COLORS = ("#1f77b4", "#2ca02c", "#9467bd", "#d62728")


def tuned(name: str, config: Mapping[str, Any], constants: Tuning) -> Manager:
    """Return the default manager with these constants, which hold while it is open."""

    @asynccontextmanager
    async def open_tuned(scale: TokenScale, budget: int) -> Opened:
        async with manager("context-simple", config=config).open(scale, budget) as context:
            before, tuning.TUNING = tuning.TUNING, constants
            try:
                yield context
            finally:
                tuning.TUNING = before

    return Manager(name, open_tuned)


def _kept(figures: Figures) -> list[float]:
    shares = (figures.recall, figures.far, figures.far_words, figures.last.agent)
    return [share.value or 0.0 for share in shares]


def picture(report: Report) -> str:
    """Return the points as SVG: cost from left to right, what is kept upwards; the default point is filled."""
    rows = [(row.manager.label, row.size.label, row.figures.ratio() or 0.0, _kept(row.figures)) for row in report.rows]
    low, high = min(cost for _, _, cost, _ in rows), max(cost for _, _, cost, _ in rows)
    wide = max(high - low, 1e-6)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        '<g font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for tenth in range(0, 11, 2):
        y = HEIGHT - MARGIN - tenth / 10 * (HEIGHT - 2 * MARGIN)
        parts.append(f'<path d="M{MARGIN} {y:.1f}H{WIDTH - MARGIN}" stroke="#dddddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
    for number, (name, color) in enumerate(zip(SHOWN, COLORS, strict=True)):
        parts.append(f'<text x="{MARGIN + 130 * number}" y="20" fill="{color}">{escape(name)}</text>')
    for label, size, cost, shares in rows:
        x = MARGIN + (cost - low) / wide * (WIDTH - 2 * MARGIN)
        for name, color, share in zip(SHOWN, COLORS, shares, strict=True):
            y = HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)
            fill = color if label == next(iter(POINTS)) else "none"
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{color}">'
                f"<title>{escape(f'{label}, {size}: {name} {share:.3f}, cost {cost:.3f}')}</title></circle>"
            )
    for place in range(5):
        x = MARGIN + place / 4 * (WIDTH - 2 * MARGIN)
        cost = low + wide * place / 4
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{cost:.2f}</text>')
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">cost to an unlimited window</text></g></svg>'
    )
    return "\n".join(parts) + "\n"


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option("--fraction", "fractions", type=click.FloatRange(0, 1, min_open=True), multiple=True, default=(0.25,))
@click.option("--min-messages", type=click.IntRange(min=0), default=100, show_default=True)
@click.option("--part", type=click.Choice(["all", *PARTS]), default="choose", show_default=True)
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the picture to this file.")
def main(data: tuple[Path, ...], fractions: tuple[float, ...], min_messages: int, part: str, svg: Path | None) -> None:
    """Print the frontier as a table in Markdown, and write its picture."""
    sessions = [one for one in read_sessions(data, min_messages=min_messages) if part in ("all", one.part)]
    points = [tuned(name, config, replace(Tuning(), **constants)) for name, (config, constants) in POINTS.items()]
    report = asyncio.run(measure(sessions, points, *(Size(fraction=fraction) for fraction in fractions)))
    click.echo(f"{title(report)}\n\n{markdown(report)}")
    if svg is not None:
        svg.write_text(picture(report))


if __name__ == "__main__":
    main()
