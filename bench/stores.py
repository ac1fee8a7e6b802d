"""One process, one store: ``python -m bench.stores append jsonl`` measures and prints JSON.

``python -m bench.stores resume 10000`` does the same for resuming sessions of one size; the parts of that which must
not know of each other are processes of their own again (see `stores_resume`).
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg import sql
from redis import RedisError

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores import Store, open_store

from .measure import say
from .stores_append import measure_appends
from .stores_baselines import Baseline, PostgresBaseline, RedisBaseline, SqliteBaseline
from .stores_resume import measure_resume
from .timers import run

APPENDING = ("jsonl", "sqlite", "postgresql", "redis")
POSTGRES = os.environ.get("AMPLIFIER_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
REDIS = os.environ.get("AMPLIFIER_TEST_REDIS", "redis://127.0.0.1:6379/15")
# Of a server: the least share of the baseline's rate, of one appender and of sixteen. `local`: that of SQLite holds.
TARGETS: dict[str, dict[str, float | str | None]] = {
    "postgresql": {"least_single": 0.4, "least_spread": 0.7},
    "jsonl": {"local": 1.0},
    "sqlite": {"local": 1.0, "least_spread": 0.7},
}

Reply = dict[str, float | str | None]


def main() -> None:
    """Measure what the arguments name: ``append STORE`` or ``resume SIZE``."""
    logging.basicConfig(level=logging.ERROR)
    signal.signal(signal.SIGTERM, _end)
    what, which = sys.argv[1:]
    folder = scratch()
    try:
        if what == "append":
            print(json.dumps(_answer_of(run(_append(which, folder)))))
        else:
            measured = measure_resume(int(which), folder)
            print(json.dumps({store: _answer_of(figures) for store, figures in measured.items()}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(_signal: int, _frame: object) -> None:
    """Exit on a signal; the written files are removed first."""
    sys.exit(1)


def scratch() -> Path:
    """Return a new folder on a real disk: on a disk in memory the baseline would be meaningless."""
    parent = Path(__file__).resolve().parents[1] / "build"
    parent.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="bench-", dir=parent))


async def _append(kind: str, folder: Path) -> Reply:
    try:
        store, baseline = await _opened(kind, folder)
    except (psycopg.Error, RedisError, OSError, ConfigError, ImportError) as problem:
        return {"absent": f"{type(problem).__name__}: {problem}".splitlines()[0]}
    try:
        figures: Reply = dict(await measure_appends(store, baseline, say))
    finally:
        if kind == "postgresql":
            await _drop_schema(_schema(folder))
    figures |= TARGETS.get(kind, {})
    return figures


async def _opened(kind: str, folder: Path) -> tuple[Store, Baseline]:
    if kind == "postgresql":
        joint = "&" if "?" in POSTGRES else "?"
        return open_store(f"{POSTGRES}{joint}schema={_schema(folder)}"), await PostgresBaseline(POSTGRES).open()
    if kind == "redis":
        joint = "&" if "?" in REDIS else "?"
        return open_store(f"{REDIS}{joint}prefix=bench-{uuid.uuid4().hex[:8]}"), await RedisBaseline(REDIS).open()
    return open_store(f"{kind}:{_path(kind, folder)}"), SqliteBaseline(folder)


def _path(kind: str, folder: Path) -> Path:
    return folder / ("sessions" if kind == "jsonl" else "sessions.db")


def _schema(folder: Path) -> str:
    return folder.name.replace("-", "_")


async def _drop_schema(schema: str) -> None:
    connection = await psycopg.AsyncConnection.connect(POSTGRES, autocommit=True)
    async with connection:
        await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _answer_of(figures: Mapping[str, float | str | None]) -> Reply:
    """Return figures without NaN, which JSON lacks."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}


if __name__ == "__main__":
    main()
