"""Measure resuming a long session: filling, rebuilding, resuming and working, each in a process of its own.

1. `fill` appends entries to a store in large batches, as fast as it takes them.
2. `rebuild` opens that: no checkpoint is there, so all of it is loaded and one view is made. Some more rounds, and the
   session is closed: now there is a checkpoint, made by a real manager over all of the history. As this takes minutes
   of a million messages, the second store of such a size gets a copy of the first one's history and checkpoint instead.
3. `resume`, several times: from a manager that has touched nothing to its first view.
4. `fresh_process`: the first views of whole processes, imports included, next to processes that only read.
5. `work`: the same, and then rounds in steady state, for memory and for what is read from files meanwhile.

The files are in the page cache (they were just written): what is measured is our own work, not the disk's.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from amplifier_context_core import ContextManager, HeuristicTokenCounter, load_config
from amplifier_context_core.stores import open_store
from amplifier_context_core.view.session_state import load

from .fresh_process import measure_fresh
from .measure import say
from .sessions import BUDGET, Message, messages, rounds
from .stores_entries import entries_of
from .timers import Stall, resident_bytes, run

Figures = dict[str, float]

_SESSION = "bench"
_BATCH = 5_000  # entries of one append
_DISTINCT = 50_000  # distinct messages; a longer session repeats them, because creating a million takes half a minute
_AFTER = 100  # rounds between the rebuilt view and the close
_ROUNDS = 500  # rounds in steady state
_AGAIN = 5  # processes that resume
_COPIED = 500_000  # messages from which a history is rebuilt in the first store only, and copied to the others


def measure_resume(size: int, folder: Path) -> dict[str, Figures]:
    """Return all figures of one size for both stores, each from a process of its own."""
    urls = {"jsonl": f"jsonl:{folder / 'jsonl'}", "sqlite": f"sqlite:{folder / 'sqlite' / 'sessions.db'}"}
    first, second = urls.values()
    figures = {store: Figures({"messages": size}) for store in urls}
    for store, url in urls.items():
        if size < _COPIED or url == first:
            say(f"filling {store}")
            figures[store] |= _process("fill", url, str(size))
            say(f"rebuilding from {store}, without a checkpoint")
            figures[store] |= _process("rebuild", url, str(size))
        else:
            say(f"copying to {store}")
            figures[store] |= _process("copy", first, second)
    for store, url in urls.items():
        files = (file for file in (folder / store).rglob("*") if file.is_file())
        figures[store]["size_mb"] = sum(file.stat().st_size for file in files) / 1e6
        figures[store] |= _worked_with(store, url, size)
    return figures


def _worked_with(store: str, url: str, size: int) -> Figures:
    taken: list[Figures] = []
    for number in range(_AGAIN):
        say(f"resuming from {store}, {number + 1} of {_AGAIN}")
        taken.append(_process("resume", url, str(size)))
    say(f"first views of new processes from {store}")
    figures = {name: median(one[name] for one in taken) for name in taken[0]} | measure_fresh(url, BUDGET)
    say(f"working with {store}")
    return figures | _process("work", url, str(size))


def _process(what: str, *arguments: str) -> Figures:
    command = [sys.executable, "-m", "bench.stores_resume", what, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode}; what it printed is above")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Do what the arguments name: ``fill|rebuild|resume|work URL SIZE`` or ``copy FROM TO``."""
    logging.basicConfig(level=logging.ERROR)
    what, url, other = sys.argv[1:]
    if what == "copy":
        print(json.dumps(run(_copy(url, other))))
        return
    work = {"fill": _fill, "rebuild": _rebuild, "resume": _resume, "work": _work}[what]
    print(json.dumps(run(work(url, int(other)))))


# -- the processes ----------------------------------------------------------------------------------------------------


async def _fill(url: str, size: int) -> Figures:
    store = open_store(url, durability="none")  # the data is not needed after the measurement
    entries = entries_of(_SESSION, _repeated(size))
    appending = 0.0
    while batch := list(islice(entries, _BATCH)):
        started = perf_counter()
        await store.append(_SESSION, batch)
        appending += perf_counter() - started
    started = perf_counter()
    await store.close()
    appending += perf_counter() - started
    _on_disk(Path(url.partition(":")[2]))
    return {"fill_us": appending / size * 1e6}


async def _copy(source_url: str, target_url: str) -> Figures:
    source, target = open_store(source_url), open_store(target_url, durability="none")
    length = (await source.extent(_SESSION)).length
    appending = 0.0
    for place in range(0, length, _BATCH):
        entries = await source.read(_SESSION, place, min(place + _BATCH, length))
        started = perf_counter()
        await target.append(_SESSION, entries)
        appending += perf_counter() - started
    data = await source.load_checkpoint(_SESSION)
    saved = load(data) if data else None
    assert data, "the first store has no checkpoint"
    assert saved, "its checkpoint is not ours"
    await target.save_checkpoint(_SESSION, saved.tail_start, data)
    await source.close()
    await target.close()
    _on_disk(Path(target_url.partition(":")[2]))
    return {"fill_us": appending / length * 1e6}


def _repeated(size: int) -> Iterator[Message]:
    distinct = list(messages(min(size, _DISTINCT)))
    for number in range(size):
        yield {**distinct[number % len(distinct)]}


def _on_disk(path: Path) -> None:
    """Sync everything to disk before the measurement."""
    for file in path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


async def _rebuild(url: str, size: int) -> Figures:
    manager = _manager(url)
    async with Stall() as stall:
        await manager.get_messages_for_request()
    peak = resident_bytes()
    for group in islice(rounds(messages(_AFTER * 6, seed=3)), _AFTER):
        for message in group:
            await manager.add_message(message)
        await manager.get_messages_for_request()
    await manager.close()
    return {
        "rebuild_s": stall.seconds,
        "rebuild_rate": size / stall.seconds,
        "rebuild_mb": peak / 1e6,
        "rebuild_stall": stall.longest * 1000,
        "rebuild_gc": stall.collecting * 1000,
    }


async def _resume(url: str, size: int) -> Figures:
    manager, figures = await _resumed(url, size)
    await manager.store.close()
    return figures


async def _resumed(url: str, size: int) -> tuple[ContextManager, Figures]:
    manager = _manager(url)
    async with Stall() as stall:
        own, started = process_time(), perf_counter()
        await manager.ready()
        opened = perf_counter()
        await manager.get_messages_for_request()
        seen = perf_counter()
        own = process_time() - own
    history = manager.snapshot()
    assert len(history) > size, "the store lost messages"
    assert history.gap or size < 2_000, "it was not resumed from its checkpoint"
    return manager, {
        "resume_ms": (seen - started) * 1000,
        "open_ms": (opened - started) * 1000,
        "view_ms": (seen - opened) * 1000,
        "resume_cpu_ms": own * 1000,
        "resume_stall": stall.longest * 1000,
        "loaded": len(history) - len(history.gap),
    }


async def _work(url: str, size: int) -> Figures:
    groups = list(islice(rounds(messages(_ROUNDS * 6, seed=7)), _ROUNDS))
    before = resident_bytes()
    manager, _ = await _resumed(url, size)
    reads = Reads()
    asking: list[float] = []
    compacting: list[float] = []
    adding = 0.0
    for group in groups:
        started = reads.so_far()
        for message in group:
            await manager.add_message(message)
        added = reads.so_far()
        compactions = manager.compactor.compactions
        await manager.get_messages_for_request()
        read = reads.so_far() - added
        (asking if manager.compactor.compactions == compactions else compacting).append(read)
        adding += added - started
    figures = {
        "memory_mb": resident_bytes() / 1e6,
        "process_mb": before / 1e6,
        "asked": len(asking),
        "read_request": sum(asking) / len(asking) if asking else math.nan,
        "read_compacting": sum(compacting) / len(compacting) if compacting else math.nan,
        "read_adding": adding / len(groups),
    }
    await manager.close()
    return figures


def _manager(url: str) -> ContextManager:
    return ContextManager(
        load_config({"max_tokens": BUDGET}),
        session_id=_SESSION,
        store=open_store(url),
        counter=_Estimate(),
    )


class _Estimate(HeuristicTokenCounter):
    """Counts as the heuristic does, without a vocabulary in memory, and goes by its name.

    So a process that resumes the session as it is configured uses its checkpoint.
    """

    def __repr__(self) -> str:
        return "VocabularyTokenCounter('o200k_base')"


class Reads:
    """Return the bytes that this process read by system calls; NaN on systems other than Linux."""

    def __init__(self) -> None:
        path = Path("/proc/self/io")
        self._file = os.open(path, os.O_RDONLY) if path.exists() else None
        self._own = 0

    def so_far(self) -> float:
        """Return the bytes read, without those of this measurement."""
        if self._file is None:
            return math.nan
        content = os.pread(self._file, 4096, 0)
        read = int(content.split(None, 2)[1]) - self._own
        self._own += len(content)
        return read


if __name__ == "__main__":
    main()
