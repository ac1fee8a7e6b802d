"""Measure resuming sessions of one size: filling, rebuilding and resuming, each in a process of its own.

``python -m bench.resume all 10000`` measures and prints JSON.

1. `fill` appends entries to a store in large batches, as fast as it takes them.
2. `rebuild` opens that: no checkpoint is there, so all of it is loaded and one view is made. Some more rounds, and the
   session is closed: now there is a checkpoint, made by a real manager over all of the history.
3. `resume`, several times: from a manager that has touched nothing to its first view.
4. `fresh_process`: the first views of whole processes, imports included, next to processes that only read.

The files are in the page cache (they were just written): what is measured is our own work, not the disk's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

from amplifier_context_core import ContextManager, HeuristicTokenCounter
from amplifier_context_core.stores import open_store

from .fresh_process import SESSION, measure_fresh
from .process import emit, folder, resident_bytes, run, say
from .sessions import BUDGET, Message, entries_of, manager, messages, rounds

Figures = dict[str, float]

_BATCH = 5_000  # entries of one append
_DISTINCT = 50_000  # distinct messages; a longer session repeats them, because creating a million takes half a minute
_AFTER = 100  # rounds between the rebuilt view and the close
_AGAIN = 5  # processes that resume


def measure_all(size: int, files: Path) -> dict[str, Figures]:
    """Return all figures of one size for both stores, each from a process of its own."""
    urls = {"jsonl": f"jsonl:{files / 'jsonl'}", "sqlite": f"sqlite:{files / 'sqlite' / 'sessions.db'}"}
    found: dict[str, Figures] = {}
    for store, url in urls.items():
        figures = found[store] = Figures({"messages": size})
        for what in ("fill", "rebuild"):
            say(f"{store}: {what}")
            figures |= _process(what, url, size)
        figures["size_mb"] = sum(file.stat().st_size for file in (files / store).rglob("*") if file.is_file()) / 1e6
        say(f"resuming from {store}")
        taken = [_process("resume", url, size) for _ in range(_AGAIN)]
        figures |= {name: median(one[name] for one in taken) for name in taken[0]}
        say(f"first views of new processes from {store}")
        figures |= measure_fresh(url, BUDGET)
    return found


def _process(what: str, url: str, size: int) -> Figures:
    return run("-m", "bench.resume", what, url, str(size))


def main() -> None:
    if sys.argv[1] == "all":
        with folder() as files:
            emit(measure_all(int(sys.argv[2]), files))
        return
    logging.basicConfig(level=logging.ERROR)
    what, url, size = sys.argv[1:]
    emit(asyncio.run({"fill": _fill, "rebuild": _rebuild, "resume": _resume}[what](url, int(size))))


# -- the processes ----------------------------------------------------------------------------------------------------


async def _fill(url: str, size: int) -> Figures:
    store = open_store(url, durability="none")  # the data is not needed after the measurement
    entries = entries_of(SESSION, _repeated(size))
    appending = 0.0
    while batch := list(islice(entries, _BATCH)):
        started = perf_counter()
        await store.append(SESSION, batch)
        appending += perf_counter() - started
    started = perf_counter()
    await store.close()
    appending += perf_counter() - started
    os.sync()  # before the next measurement
    return {"fill_us": appending / size * 1e6}


def _repeated(size: int) -> Iterator[Message]:
    distinct = list(messages(min(size, _DISTINCT)))
    for number in range(size):
        yield {**distinct[number % len(distinct)]}


async def _rebuild(url: str, size: int) -> Figures:
    context = _manager(url)
    started = perf_counter()
    await context.get_messages_for_request()
    figures = {"rebuild_s": perf_counter() - started, "rebuild_mb": resident_bytes() / 1e6}
    for group in islice(rounds(messages(_AFTER * 6, seed=3)), _AFTER):
        for message in group:
            await context.add_message(message)
        await context.get_messages_for_request()
    await context.close()
    return figures


async def _resume(url: str, size: int) -> Figures:
    context = _manager(url)
    started = perf_counter()
    await context.get_messages_for_request()
    took = perf_counter() - started
    history = context.snapshot()
    assert len(history) > size, "the store lost messages"
    assert history.gap or size < 2_000, "it was not resumed from its checkpoint"
    await context.store.close()
    return {"resume_ms": took * 1000, "loaded": len(history) - len(history.gap)}


def _manager(url: str) -> ContextManager:
    return manager(SESSION, store=open_store(url), counter=_Estimate())


class _Estimate(HeuristicTokenCounter):
    """Counts as the heuristic does, without a vocabulary in memory, and goes by its name.

    So a process that resumes the session as it is configured uses its checkpoint.
    """

    def __repr__(self) -> str:
        return "VocabularyTokenCounter('o200k_base')"


if __name__ == "__main__":
    main()
