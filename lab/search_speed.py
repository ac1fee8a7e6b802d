"""How fast a long history is indexed and searched, beside plain FTS5.

python -m lab.search_speed DATA... [--messages N] [--size CHARACTERS] [--store URL]

The messages are pieces of the recordings, the queries sentences of them. The manager searches a stored history, as a
session does. Beside wall time stands this process's own time, which other programs on the machine do not lengthen.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Sequence

import click

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.messages.parsing import parse_message, text_of
from amplifier_context_core.stores import MemoryStore, Store, open_store
from amplifier_context_core.transcript.transcript import Transcript

from .search_quality import full_text
from .sentences import sentences
from .sessions import read_sessions
from .shares import quantile
from .table import lined

SESSION = "search-speed"
QUERIES = 300
HEADS = ("search", "indexed/s", "of own time", "p50 ms", "p99", "own p50", "own p99")


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


async def measured(store: Store, texts: Sequence[str], queries: Sequence[str]) -> list[str]:
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
    filled, searched = _Timer(), _Timer()
    with filled:
        await manager.search("no such words as these")
    for query in queries:
        with searched:
            await manager.search(query)
    await manager.close()
    await store.delete(SESSION)
    await store.close()
    return _cells(len(texts), filled, searched)


def plain(texts: Sequence[str], queries: Sequence[str]) -> list[str]:
    """Return the same of plain FTS5."""
    filled, searched = _Timer(), _Timer()
    with filled:
        find = full_text(texts, "unicode61")
    for query in queries:
        with searched:
            find(query, 10)
    return _cells(len(texts), filled, searched)


class _Timer:
    """Keeps wall time and this process's own time (seconds) of parts of a run."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def __enter__(self) -> None:
        self._begun = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds.append(time.perf_counter() - self._begun[0])
        self.cpu.append(time.process_time() - self._begun[1])


def _cells(messages: int, filled: _Timer, searched: _Timer) -> list[str]:
    times = (1e3 * quantile(values, share) for values in (searched.seconds, searched.cpu) for share in (0.5, 0.99))
    rates = (f"{messages / filled.seconds[0]:,.0f}", f"{messages / filled.cpu[0]:,.0f}")
    return [*rates, *(f"{found:.1f}" for found in times)]


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--messages", default=100_000, show_default=True)
@click.option("--size", default=300, show_default=True, help="Characters of a message.")
@click.option("--store", "url", help="Search in this store, not in memory.")
def main(data: tuple[str, ...], messages: int, size: int, url: str | None) -> None:
    """Print the table for messages made of recordings: files or folders."""
    texts, queries = corpus(data, messages, size)
    fts = [f"FTS5 {sqlite3.sqlite_version}, bm25", *plain(texts, queries)]
    store = open_store(url) if url else MemoryStore()
    click.echo(lined([HEADS, fts, [url or "in memory", *asyncio.run(measured(store, texts, queries))]]))


if __name__ == "__main__":
    main()
