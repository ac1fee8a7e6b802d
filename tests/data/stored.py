"""Sessions as the persistent stores of a former version kept them: what was stored then must open as it did.

The stored sessions are never recorded again. `python -m tests.data.stored` records what they show, after a change that
is meant to change views. It needs the servers.

One session has all that a session can hold beside its history: checkpoints of two budgets, pins, short forms, a focus,
corrections of the meter, an interrupted turn, an archived message, an erased message. Another session is a fork of it,
and a third one is short and was never compacted. Files are kept as files. Of a server, the rows or keys are kept, and
`restored` puts them into the server of the tests.
"""

import asyncio
import contextlib
import io
import json
import logging
import lzma
import tarfile
import tempfile
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import redis
from psycopg import sql

from amplifier_context_core import ContextManager, Plugins, Store, load_config, open_store
from tests.stores.servers import POSTGRES, REDIS, drop_prefix, drop_schema, own_name, with_parameters

Message = dict[str, Any]

FOLDER = Path(__file__).with_name("stored_sessions")
VIEWS = FOLDER / "views.json.xz"
BACKENDS = ("jsonl", "sqlite", "postgresql", "redis")  # that there were
SESSION, FORK, SHORT = SESSIONS = ("stored", "stored-fork", "stored-short")
SECRET = "kestrel9000"  # one word of a search index
BUDGETS = (2_500, 6_000)  # tokens; the last one is the main one
_FIXED = "000000000000"  # in place of the name that the tests give to a schema or to the keys


class Provider:
    name = "anthropic"
    default_model = "model-a"


PROVIDER = Provider()


def manager_of(store: Store, session_id: str = SESSION) -> ContextManager:
    """Return a manager of a session, with the settings and the clock that all of this uses."""
    seconds = count()
    settings = load_config({"token_counter": "heuristic", "max_tokens": BUDGETS[-1], "target_usage": 0.4})
    return ContextManager(
        settings,
        session_id=session_id,
        store=store,
        plugins=Plugins(),
        clock=lambda: "2026-01-01T{:02}:{:02}:{:02}.000+00:00".format(*_hour(next(seconds))),
    )


def _hour(seconds: int) -> tuple[int, int, int]:
    return seconds // 3600, seconds // 60 % 60, seconds % 60


async def shown(manager: ContextManager) -> dict[str, Any]:
    """Return all that a session shows: its views, its messages, its report, its pins.

    The first view is asked for before anything else, as a loop does after a resume.
    """
    first = await manager.get_messages_for_request(provider=PROVIDER)
    views = {str(budget): await manager.get_messages_for_request(budget, PROVIDER) for budget in BUDGETS}
    return {
        "first": first,
        "views": views,
        "messages": await manager.get_messages(),
        "marks": [entry.mark for entry in manager.snapshot()],
        "report": await manager.explain(),
        "pins": sorted(manager.compactor.directions.pins),
        "turns": manager.turn_count,
        "focus": manager.compactor.directions.focus,
    }


# -- what a backend keeps ----------------------------------------------------------------------------------------------


def path_of(backend: str) -> Path:
    return FOLDER / {"jsonl": "jsonl.tar.xz", "sqlite": "sqlite.db.xz"}.get(backend, f"{backend}.json.xz")


@contextlib.asynccontextmanager
async def restored(backend: str, folder: Path) -> AsyncGenerator[str]:
    """Put a recording back, into a folder or into the server of the tests.

    Args:
        backend: one of BACKENDS.
        folder: an empty one, for files.

    Yields:
        The URL of the store.
    """
    data = lzma.decompress(path_of(backend).read_bytes())
    name = own_name()
    if backend == "jsonl":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")
        yield f"jsonl:{folder}"
    elif backend == "sqlite":
        (folder / "sessions.db").write_bytes(data)
        yield f"sqlite:{folder / 'sessions.db'}"
    elif backend == "postgresql":
        try:
            _fill_schema(name, json.loads(data))
            yield with_parameters(POSTGRES, schema=name)
        finally:
            drop_schema(name)
    elif backend == "redis":
        try:
            _fill_keys(name, json.loads(data))
            yield with_parameters(REDIS, prefix=name)
        finally:
            drop_prefix(name)
    else:
        raise ValueError(f"no recording of {backend} is known here")


def _fill_schema(schema: str, recorded: dict[str, Any]) -> None:
    with psycopg.connect(POSTGRES, autocommit=True) as connection, connection.transaction():
        connection.execute(sql.SQL("CREATE SCHEMA {0}").format(sql.Identifier(schema)))
        connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        connection.execute(
            "CREATE TABLE migrations (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        for statement in recorded["statements"]:
            connection.execute(statement)
        for table, kept in recorded["tables"].items():
            names = sql.SQL(", ").join(map(sql.Identifier, kept["columns"]))
            query = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
            with connection.cursor().copy(query) as copy:
                for row in kept["rows"]:
                    copy.write(f"{row}\n")
        for table, column in (("sessions", "key"), ("archive", "number")):
            connection.execute(
                sql.SQL("SELECT setval(pg_get_serial_sequence({}, {}), (SELECT coalesce(max({}), 1) FROM {}))").format(
                    table, column, sql.Identifier(column), sql.Identifier(table)
                )
            )


def _fill_keys(prefix: str, recorded: dict[str, Any]) -> None:
    with redis.Redis.from_url(REDIS, encoding="latin-1") as client:
        for name, (kind, value) in recorded.items():
            key = name.replace(_FIXED, prefix)
            if kind == "hash":
                client.hset(key, mapping=value)
            elif kind == "list":
                client.rpush(key, *value)
            elif kind == "zset":
                client.zadd(key, value)
            else:
                client.set(key, value)


# -- the command -------------------------------------------------------------------------------------------------------


async def _views(backend: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with restored(backend, Path(folder)) as url:
            for session_id in SESSIONS:
                store = open_store(url, durability="none")
                found[session_id] = await shown(manager_of(store, session_id))
                await store.close()
    return found


async def main() -> None:
    """Record what the stored sessions show; it is the same in every store."""
    logging.disable(logging.WARNING)
    found = {backend: await _views(backend) for backend in BACKENDS}
    if any(views != found["jsonl"] for views in found.values()):
        raise AssertionError("the stores differ")
    VIEWS.write_bytes(lzma.compress(json.dumps(found["jsonl"], indent=1).encode()))


if __name__ == "__main__":
    asyncio.run(main())
