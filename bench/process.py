"""Processes that measure: each prints its figures as JSON, in its last line."""

from __future__ import annotations

import gc
import json
import logging
import math
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run Python with arguments and return the figures that it prints.

    Raises:
        subprocess.CalledProcessError: the process failed; it printed why.
    """
    command = [sys.executable, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def emit(figures: Mapping[str, Any]) -> None:
    """Print the figures of this process; null is what could not be measured."""
    print(json.dumps({key: None if value != value else value for key, value in figures.items()}))


def say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


@contextmanager
def folder() -> Generator[Path]:
    """Make a folder on a real disk (in memory a baseline would be meaningless), which is removed, also by SIGTERM."""
    logging.basicConfig(level=logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parent = ROOT / "build"
    parent.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all values does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def resident_bytes() -> int:
    """Return the resident memory of this process after a run of the cycle collector."""
    gc.collect()
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
    import resource  # macOS reports only the peak, in bytes

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
