"""How fast a long history is indexed and searched, beside plain FTS5, and how long the event loop waits meanwhile.

python -m amplifier_context_testing.lab.search_speed DATA... [--messages N] [--size CHARACTERS] [--store URL]

The messages are pieces of the recordings, the queries sentences of them. The manager searches a stored history, as a
session does.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.messages.parsing import parse_message, text_of
from amplifier_context_core.stores import MemoryStore, Store, open_store
from amplifier_context_core.transcript.transcript import Transcript

from .search_quality import full_text
from .sentences import sentences
from .sessions import read_sessions

SESSION = "search-speed"
QUERIES = 300
TICK = 0.001  # seconds
IDLE = 5.0  # seconds for which the loop has nothing to do


@dataclass(frozen=True, slots=True)
class Speed:
    """What one search did.

    Attributes:
        indexed: messages a second, of the first search, which fills the index.
        indexed_cpu: messages a second of this process's own time, which other programs on the machine do not lengthen.
        seconds: of each later search, ascending.
        cpu: seconds of this process's own time for each, ascending.
        stalls: by how many seconds a task came later than it asked for, ascending.
        idle: the same while this process had nothing to do: what other programs on the machine do.
    """

    indexed: float
    indexed_cpu: float
    seconds: Sequence[float]
    cpu: Sequence[float]
    stalls: Sequence[float] = ()
    idle: Sequence[float] = ()


def corpus(data: Sequence[str], messages: int, size: int) -> tuple[list[str], list[str]]:
    """Return messages of some size and sentences of the data, the same in every run."""
    rng = random.Random(f"speed {size}")
    texts = [
        text_of(message.get("content")) for session in read_sessions(data, skipped=[]) for message in session.messages
    ]
    whole = "\n".join(texts)
    starts = (rng.randrange(len(whole) - size) for _ in range(messages))
    asked = [one for text in rng.sample(texts, 4 * QUERIES) for one in sentences(text) if 40 <= len(one) <= 300]
    return [whole[start : start + size] for start in starts], rng.sample(asked, QUERIES)


async def measured(store: Store, texts: Sequence[str], queries: Sequence[str]) -> Speed:
    """Return how fast the manager searches these messages in a store, and how long its event loop waits."""
    transcript = Transcript(SESSION)
    for text in texts:
        message, info = parse_message({"role": "user", "content": text})
        transcript.append(transcript.draft(message, info, len(text) // 4, created="2026-01-01T00:00:00.000+00:00"))
    entries = list(transcript.snapshot())
    await store.delete(SESSION)
    for start in range(0, len(entries), 500):
        await store.append(SESSION, entries[start : start + 500])
    manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id=SESSION, store=store)
    await manager.recall("m1")
    if isinstance(store, MemoryStore):
        await manager.get_messages()  # loads the history, which this does not measure
    late: list[float] = []

    async def tick() -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(TICK)
            late.append(time.perf_counter() - asked - TICK)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(IDLE)
    idle = sorted(late)
    late.clear()
    filled, searched = _Timer(), _Timer()
    with filled:
        await manager.search("no such words as these")
    for query in queries:
        with searched:
            await manager.search(query)
    ticking.cancel()
    await manager.close()
    await store.delete(SESSION)
    await store.close()
    return replace(_speed(len(texts), filled, searched), stalls=sorted(late), idle=idle)


def plain(texts: Sequence[str], queries: Sequence[str]) -> Speed:
    """Return the same of plain FTS5."""
    filled, searched = _Timer(), _Timer()
    with filled:
        find = full_text(texts, "unicode61")
    for query in queries:
        with searched:
            find(query, 10)
    return _speed(len(texts), filled, searched)


class _Timer:
    """Adds up wall time and this process's own time of parts of a run."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def __enter__(self) -> None:
        self._begun = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds.append(time.perf_counter() - self._begun[0])
        self.cpu.append(time.process_time() - self._begun[1])


def _speed(messages: int, filled: _Timer, searched: _Timer) -> Speed:
    rates = messages / filled.seconds[0], messages / filled.cpu[0]
    return Speed(*rates, sorted(searched.seconds), sorted(searched.cpu))


def row(name: str, speed: Speed) -> str:
    """Return a line of the table."""

    def at(values: Sequence[float], share: float) -> str:
        return f"{1000 * values[min(int(len(values) * share), len(values) - 1)]:.1f}" if values else ""

    times = (at(values, share) for values in (speed.seconds, speed.cpu) for share in (0.5, 0.99))
    stalls = (at(speed.stalls, share) for share in (0.5, 0.99, 1))
    cells = (*times, *stalls, at(speed.idle, 1))
    return f"| {name} | {speed.indexed:,.0f} | {speed.indexed_cpu:,.0f} | {' | '.join(cells)} |"


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--messages", default=100_000, show_default=True)
@click.option("--size", default=300, show_default=True, help="Characters of a message.")
@click.option("--store", "url", help="Search in this store, not in memory.")
def main(data: tuple[str, ...], messages: int, size: int, url: str | None) -> None:
    """Print the table for messages made of recordings: files or folders."""
    texts, queries = corpus(data, messages, size)
    click.echo(
        "| search | indexed/s | of own time | p50 ms | p99 | own p50 | own p99 | loop waits, p50 | p99 | most | idle |"
    )
    click.echo("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    click.echo(row(f"FTS5 {sqlite3.sqlite_version}, bm25", plain(texts, queries)))
    click.echo(
        row(url or "in memory", asyncio.run(measured(open_store(url) if url else MemoryStore(), texts, queries)))
    )


if __name__ == "__main__":
    main()
