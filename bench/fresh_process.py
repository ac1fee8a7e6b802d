"""The first view of a new process: ``python -m bench.fresh_process ROLE URL BUDGET STARTED`` prints JSON.

Roles, each a process of its own, measured from the moment it was spawned:

- `store`: imports the store and what it needs, opens the session, and reads checkpoint and tail. This is the baseline.
- `view`: resumes the session and gets its first view. The vocabulary is loaded in a thread, as by `mount()`.
"""

from __future__ import annotations

import json
import os
import sys
from statistics import median
from time import perf_counter

from .process import ROOT, emit, resident_bytes, run

SESSION = "bench"
_AGAIN = 7  # processes of each role, in turns


def measure_fresh(url: str, budget: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {}
    for _ in range(_AGAIN):
        for role in ("store", "view"):
            for name, value in _process(role, url, budget).items():
                taken.setdefault(f"fresh_{role}_{name}", []).append(value)
    figures = {name: median(values) for name, values in taken.items()}
    return {**figures, "fresh_ratio": figures["fresh_view_ms"] / figures["fresh_store_ms"]}


def _process(role: str, url: str, budget: int) -> dict[str, float]:
    # Modules are compiled once, as they are when a package is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "bytecode")
    started = perf_counter()  # of the whole system on Linux and macOS, so the process can go on with it
    return run("-m", "bench.fresh_process", role, url, str(budget), repr(started), environment=environment)


def _store(url: str) -> float:
    import asyncio
    from importlib.util import find_spec, module_from_spec

    # The package without its `__init__.py`, which imports all of core: only what the store needs is imported.
    found = find_spec("amplifier_context_core")
    assert found
    sys.modules[found.name] = module_from_spec(found)

    from amplifier_context_core.stores import open_store

    async def read() -> None:
        store = open_store(url)
        extent = await store.open(SESSION)
        data = await store.load_checkpoint(SESSION)
        assert data
        first = max(json.loads(data)["tail_start"] - 1, 0)  # as resuming does: the tail may be empty
        assert await store.read(SESSION, first, extent.length)

    asyncio.run(read())
    return perf_counter()


def _view(url: str, budget: int) -> float:
    import asyncio

    from amplifier_context_core import ContextManager, load_config
    from amplifier_context_core.stores import open_store

    async def first() -> float:
        manager = ContextManager(load_config({"max_tokens": budget}), session_id=SESSION, store=open_store(url))
        manager.session.counter.start_loading()
        assert await manager.get_messages_for_request()
        seen = perf_counter()
        assert manager.snapshot().gap or len(manager.snapshot()) < 2_000, "it was not resumed from its checkpoint"
        return seen

    return asyncio.run(first())


def main() -> None:
    role, url, budget, started = sys.argv[1:]
    seen = _store(url) if role == "store" else _view(url, int(budget))
    emit({"ms": (seen - float(started)) * 1000, "mb": resident_bytes() / 1e6})


if __name__ == "__main__":
    main()
