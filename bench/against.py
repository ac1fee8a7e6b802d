"""Requests of this checkout and of another commit, in turns: ``python -m bench --against COMMIT``.

Both get the same messages and one budget, and settings are the defaults of each. Each run is a process of its own, and
time is that of its processors: what other programs on the machine take is not in it. The process uses nothing of this
package and only names of core that have not changed since its first commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from io import BytesIO
from itertools import count
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AGAIN = 5  # processes of each commit
_HISTORY = 1_000  # messages before the first request
_REQUESTS = 500


def measure_against(commit: str, budget: int, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Return the figures of another commit, then those of this checkout: medians over several processes.

    Raises:
        ValueError: git knows no such commit.
    """
    archived = subprocess.run(["git", "archive", commit, "amplifier_context_core"], cwd=ROOT, capture_output=True)
    if archived.returncode:
        raise ValueError(f"{commit}: {archived.stderr.decode(errors='replace').strip()}")
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archived.stdout)) as tree:
            tree.extractall(folder, filter="data")
        session = Path(folder) / "messages.json"
        session.write_text(json.dumps(_session()), encoding="utf-8")
        runs: dict[str, list[dict[str, float]]] = {commit: [], "here": []}
        for number in range(AGAIN):
            for name, core in ((commit, folder), ("here", str(ROOT))):
                say(f"{name}, {number + 1} of {AGAIN}")
                runs[name].append(measure_core(core, session, budget))
    figures = {name: {key: median(run[key] for run in taken) for key in taken[0]} for name, taken in runs.items()}
    for key, value in list(figures["here"].items()):
        figures["here"][f"{key}_ratio"] = value / figures[commit][key]
    return figures


def _session() -> dict[str, list[Any]]:
    from itertools import islice

    from .sessions import messages, rounds

    stream = rounds(messages(_REQUESTS * 6, seed=7))
    return {"history": list(messages(_HISTORY)), "rounds": list(islice(stream, _REQUESTS))}


def measure_core(core: str, session: Path, budget: int) -> dict[str, float]:
    """Return the figures of requests that the core in a folder serves.

    `session` is a file of JSON: `history`, messages before the first request, and `rounds`, messages before each other.
    """
    from .process import run

    return run(__file__, core, str(session), str(budget), environment={**os.environ, "PYTHONPATH": core})


class _Compactions:
    """Replaces the kernel's hook registry and counts the compactions that were made."""

    def __init__(self) -> None:
        self.count = 0

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        self.count += event == "context:post_compact"


def _thoughtful(session: dict[str, list[Any]]) -> dict[str, list[Any]]:
    numbers = count()

    def with_thinking(message: dict[str, Any]) -> dict[str, Any]:
        if message["role"] != "assistant":
            return message
        number, content = next(numbers), message.get("content")
        thought = {"type": "thinking", "thinking": f"Now step {number}. " * 20, "signature": f"{number:0200}"}
        words = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return {**message, "content": [thought, *(words or ())]}

    rounds = [[with_thinking(message) for message in messages] for messages in session["rounds"]]
    return {"history": [with_thinking(message) for message in session["history"]], "rounds": rounds}


async def _requests(session: dict[str, list[Any]], budget: int) -> dict[str, float]:
    from amplifier_context_core import ContextManager, HeuristicTokenCounter, load_config

    hooks = _Compactions()
    config = load_config({"max_tokens": budget})
    context = ContextManager(config, session_id="bench", counter=HeuristicTokenCounter(), hooks=hooks)
    for message in session["history"]:
        await context.add_message(message)
    await context.get_messages_for_request()
    plain: list[float] = []
    compacting: list[float] = []
    for messages in session["rounds"]:
        for message in messages:
            await context.add_message(message)
        before, started = hooks.count, process_time()
        await context.get_messages_for_request()
        (plain if hooks.count == before else compacting).append((process_time() - started) * 1000)
    return {
        "plain": median(plain) if plain else 0.0,
        "compacting_mean": mean(compacting) if compacting else 0.0,
        "all": sum(plain) + sum(compacting),
        "compactions": len(compacting),
        "requests": len(plain) + len(compacting),
    }


def main() -> None:
    import asyncio

    import amplifier_context_core

    core, session, budget = sys.argv[1:]
    assert Path(amplifier_context_core.__file__ or "").is_relative_to(core), "another core was imported"
    messages = json.loads(Path(session).read_text(encoding="utf-8"))
    figures = asyncio.run(_requests(messages, int(budget)))
    figures["thinking"] = asyncio.run(_requests(_thoughtful(messages), int(budget)))["plain"]
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
