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

from .clocks import run
from .measure import say
from .stores_append import measure_appends
from .stores_floors import FileFloor, Floor, PostgresFloor, RedisFloor, SqliteFloor
from .stores_resume import measure_resume

APPENDING = ("jsonl", "sqlite", "postgresql", "redis")
POSTGRES = os.environ.get("AMPLIFIER_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
REDIS = os.environ.get("AMPLIFIER_TEST_REDIS", "redis://127.0.0.1:6379/15")
LEAST = 0.7  # of the floor, where it is an asynchronous loop: what a database's store must reach

Answer = dict[str, float | str | None]


def main() -> None:
    """Measure what the arguments name: ``append STORE`` or ``resume SIZE``."""
    logging.basicConfig(level=logging.ERROR)
    signal.signal(signal.SIGTERM, _end)
    what, which = sys.argv[1:]
    folder = scratch()
    try:
        if what == "append":
            print(json.dumps(_told(run(_append(which, folder)))))
        else:
            measured = measure_resume(int(which), folder)
            print(json.dumps({store: _told(figures) for store, figures in measured.items()}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(_signal: int, _frame: object) -> None:
    """Asked to end: what was written is removed first."""
    sys.exit(1)


def scratch() -> Path:
    """A folder of our own on a real disk: the floor of a store on a disk in memory would say nothing."""
    parent = Path(__file__).resolve().parents[1] / "build"
    parent.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="bench-", dir=parent))


async def _append(kind: str, folder: Path) -> Answer:
    try:
        store, floor = await _opened(kind, folder)
    except (psycopg.Error, RedisError, OSError, ConfigError, ImportError) as problem:
        return {"absent": f"{type(problem).__name__}: {problem}".splitlines()[0]}
    try:
        figures: Answer = dict(await measure_appends(store, floor, say, on_files=kind == "jsonl"))
    finally:
        if kind == "postgresql":
            await _drop_schema(_schema(folder))
    if kind in ("sqlite", "postgresql"):
        figures["least"] = LEAST
    return figures


async def _opened(kind: str, folder: Path) -> tuple[Store, Floor]:
    if kind == "postgresql":
        joint = "&" if "?" in POSTGRES else "?"
        return open_store(f"{POSTGRES}{joint}schema={_schema(folder)}"), await PostgresFloor(POSTGRES).open()
    if kind == "redis":
        joint = "&" if "?" in REDIS else "?"
        return open_store(f"{REDIS}{joint}prefix=bench-{uuid.uuid4().hex[:8]}"), await RedisFloor(REDIS).open()
    floor = FileFloor(folder) if kind == "jsonl" else SqliteFloor(folder)
    return open_store(f"{kind}:{_path(kind, folder)}"), floor


def _path(kind: str, folder: Path) -> Path:
    return folder / ("sessions" if kind == "jsonl" else "sessions.db")


def _schema(folder: Path) -> str:
    return folder.name.replace("-", "_")


async def _drop_schema(schema: str) -> None:
    connection = await psycopg.AsyncConnection.connect(POSTGRES, autocommit=True)
    async with connection:
        await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _told(figures: Mapping[str, float | str | None]) -> Answer:
    """Figures as JSON has them: it knows no NaN."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}


if __name__ == "__main__":
    main()
