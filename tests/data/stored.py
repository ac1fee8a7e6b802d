"""Sessions as the persistent stores keep them, so that a change that must not change what is stored is seen.

`python -m tests.data.stored` records everything again, after a change that is meant to change what is stored. It needs
the servers. `python -m tests.data.stored views` records only what the stored sessions show, after a change that is
meant to change views.

One session has all that a session can hold beside its history: checkpoints of two budgets, pins, short forms, a focus,
corrections of the meter, an interrupted turn, an archived message, an erased message. Another session is a fork of it,
and a third one is short and was never compacted. Files are kept as files. Of a server, the rows or keys are kept, and
`restored` puts them into the server of the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import lzma
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import AsyncGenerator, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import redis
from psycopg import sql

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.history import redactions
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.rendering.rounds import rounds_with
from amplifier_context_core.stores import Store, open_store
from amplifier_context_testing import coding_session
from tests.places import KEPT
from tests.stores.servers import POSTGRES, REDIS, drop_prefix, drop_schema, own_name, with_parameters

Message = dict[str, Any]

FOLDER = Path(__file__).with_name("stored_sessions")
VIEWS = FOLDER / "views.json.xz"
BACKENDS = KEPT
SESSION, FORK, SHORT = SESSIONS = ("stored", "stored-fork", "stored-short")
SECRET = "kestrel9000"  # one word of a search index
BUDGETS = (2_500, 6_000)  # tokens; the last one is the main one
HOST = "recorder"  # in place of the name of the machine
_FIXED = "000000000000"  # in place of the name that the tests give to a schema or to the keys


class Provider:
    """What a manager asks of a provider."""

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
        "pins": sorted(manager.compactor.pins),
        "turns": manager.turn_count,
        "focus": manager.compactor.focus,
    }


# -- the sessions ------------------------------------------------------------------------------------------------------


async def _live(manager: ContextManager) -> None:
    """Let a session live, with everything in it that is kept beside the history."""
    messages = list(coding_session(90, 11))
    rest = list(coding_session(6, 12))
    await _add(manager, {"role": "system", "content": "Be brief."})
    for message in messages[:20]:
        await _add(manager, message)
    await _add(manager, {"role": "user", "content": f"The password is {SECRET}."})
    await _add(manager, {"role": "assistant", "content": "I will not repeat it."})
    await manager.search(SECRET)  # a store that has an index fills it
    if not await manager.forget(containing=SECRET):
        raise AssertionError("nothing was erased")
    for message in messages[20:60]:
        await _add(manager, message)
    await manager.compact(focus="the parser")
    await _edit(manager)
    await manager.compact_summary("call_awaited", "one file was changed")
    await manager.compact_summary("call_to_come", "no result yet")
    await _add(manager, _call("call_awaited", "git_diff"))
    await _add(manager, {"role": "tool", "tool_call_id": "call_awaited", "content": "+ a line\n" * 40})
    await _pin(manager)
    for message in messages[60:]:
        await _add(manager, message)
    await manager.compact()
    await _interrupt(manager)
    for message in rest:
        await _add(manager, message)
    newest = next(entry for entry in reversed(manager.snapshot()) if entry.answered_ids)
    await manager.compact_summary(newest.answered_ids[0], "the newest result in short")
    for budget in BUDGETS:
        await manager.get_messages_for_request(budget, PROVIDER)


async def _live_briefly(manager: ContextManager) -> None:
    """Let a session live that is never compacted."""
    for message in coding_session(8, 13):
        await _add(manager, message)
    await manager.pin("m1")


async def _add(manager: ContextManager, message: Message) -> None:
    """Add a message; for one of the model, ask for a view and report its usage first."""
    if message["role"] == "assistant":
        await manager.get_messages_for_request(provider=PROVIDER)
        last = manager.compactor.last_sent
        if last is None:
            raise AssertionError("no view was handed out")
        manager.on_response(Response(PROVIDER.default_model, PROVIDER.name, Usage(last.counted * 11 // 10 + 300, 40)))
    await manager.add_message(dict(message))


def _call(call_id: str, tool: str) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "tool": tool, "arguments": {}}]}


async def _interrupt(manager: ContextManager) -> None:
    """A turn that is cancelled while a call is open, and what the person says then."""
    await _add(manager, {"role": "user", "content": "Run the slow suite."})
    await _add(manager, _call("call_slow", "run"))
    manager.history.on_cancelled()
    await manager.on_turn_complete()
    await _add(manager, {"role": "user", "content": "Only the fast suite."})


async def _edit(manager: ContextManager) -> None:
    """A host takes the last answer back."""
    await _add(manager, {"role": "assistant", "content": "I take this back."})
    await manager.set_messages((await manager.get_messages())[:-1])


async def _pin(manager: ContextManager) -> None:
    """Pin the smallest of the first tool rounds, and another one for a while."""
    history = manager.snapshot()
    small = min(history[6:20], key=lambda entry: rounds_with({entry.seq}, history)[entry.seq].tokens)
    await manager.pin(small.mark)
    await manager.pin("m3")
    await manager.pin("m3", False)


async def _record(store: Store) -> dict[str, Any]:
    """Fill a store with all sessions; the last views of those that were shown, by session."""
    last: dict[str, Any] = {}
    for session_id, live in ((SESSION, _live), (SHORT, _live_briefly)):
        manager = manager_of(store, session_id)
        await live(manager)
        last[session_id] = await manager.get_messages_for_request(provider=PROVIDER)
        await manager.close()
    await store.fork(SESSION, FORK)
    await store.close()
    return last


# -- what a backend keeps ----------------------------------------------------------------------------------------------


def path_of(backend: str) -> Path:
    """The recording of a backend."""
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


@contextlib.contextmanager
def _empty(backend: str, folder: Path) -> Iterator[tuple[str, str]]:
    """A URL without sessions, and the name of its schema or of its keys."""
    name = own_name()
    if backend == "jsonl":
        yield f"jsonl:{folder}", name
    elif backend == "sqlite":
        yield f"sqlite:{folder / 'sessions.db'}", name
    elif backend == "postgresql":
        try:
            yield with_parameters(POSTGRES, schema=name), name
        finally:
            drop_schema(name)
    elif backend == "redis":
        try:
            yield with_parameters(REDIS, prefix=name), name
        finally:
            drop_prefix(name)
    else:
        raise ValueError(f"no recording of {backend} is known here")


def _dump(backend: str, folder: Path, name: str) -> bytes:
    match backend:
        case "jsonl":
            return _archive(folder)
        case "sqlite":
            return _file(folder / "sessions.db")
        case "postgresql":
            kept = _rows(name)
        case "redis":
            kept = _keys(name)
        case _:
            raise ValueError(f"no recording of {backend} is known here")
    return json.dumps(kept, indent=1, ensure_ascii=False).encode()


def _archive(folder: Path) -> bytes:
    """The files of a folder, without dates and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            info = tarfile.TarInfo(str(path.relative_to(folder)))
            info.mode = path.stat().st_mode & 0o777
            if path.is_dir():
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = path.stat().st_size
                archive.addfile(info, io.BytesIO(path.read_bytes()))
    return packed.getvalue()


def _file(path: Path) -> bytes:
    """A database as one file, without what is known of the machine."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE leases SET host = ?, machine = ?, pid = 1, started = ''", (HOST, HOST))
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


# The partitions of `entries` are read and filled through it.
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename !~ '^entries_' ORDER BY 1"
_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY 1"


def _rows(schema: str) -> dict[str, Any]:
    """The tables of a schema: the statements that make them, and their rows as PostgreSQL writes them."""
    from amplifier_context_servers.postgres_server.schema import TABLES

    tables: dict[str, Any] = {}
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        for (table,) in connection.execute(_TABLES, [schema]).fetchall():
            columns = [column for (column,) in connection.execute(_COLUMNS, [schema, table])]
            names = sql.SQL(", ").join(map(sql.Identifier, columns))
            query = sql.SQL("COPY (SELECT {} FROM {} ORDER BY {}) TO STDOUT")
            with connection.cursor().copy(query.format(names, sql.Identifier(schema, table), names)) as copy:
                text = b"".join(bytes(part) for part in copy).decode()
            tables[table] = {"columns": columns, "rows": text.splitlines()}
    return {"statements": [TABLES], "tables": tables}


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


def _keys(prefix: str) -> dict[str, Any]:
    """The keys of a prefix with their values, as text in which each character is a byte."""
    found: dict[str, Any] = {}
    with redis.Redis.from_url(REDIS, encoding="latin-1", decode_responses=True) as client:
        for key in sorted(client.scan_iter(f"*{prefix}*", count=1_000)):
            kind = client.type(key)
            if kind == "hash":
                value: Any = client.hgetall(key)
            elif kind == "list":
                value = client.lrange(key, 0, -1)
            elif kind == "zset":
                value = dict(client.zrange(key, 0, -1, withscores=True))
            else:
                value = client.get(key)
            found[key.replace(prefix, _FIXED)] = [kind, value]
    return found


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


# -- the commands ------------------------------------------------------------------------------------------------------


async def _views(backend: str) -> dict[str, Any]:
    """What the sessions of a recording show."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with restored(backend, Path(folder)) as url:
            for session_id in SESSIONS:
                store = open_store(url, durability="none")
                found[session_id] = await shown(manager_of(store, session_id))
                await store.close()
    return found


async def _record_all() -> None:
    for backend in BACKENDS:
        with (
            tempfile.TemporaryDirectory() as name,
            _empty(backend, Path(name)) as (url, own),
            mock.patch("socket.gethostname", return_value=HOST),
            mock.patch.object(redactions, "COST", (4, 8, 1)),
        ):
            last = await _record(open_store(url, durability="none"))
            path_of(backend).write_bytes(lzma.compress(_dump(backend, Path(name), own)))
        found = await _views(backend)
        if any(found[session_id]["first"] != view for session_id, view in last.items()):
            raise AssertionError(f"{backend}: the first view is not the last one before")


async def _record_views() -> None:
    found = {backend: await _views(backend) for backend in BACKENDS}
    if any(views != found["jsonl"] for views in found.values()):
        raise AssertionError("the stores differ")
    VIEWS.write_bytes(lzma.compress(json.dumps(found["jsonl"], indent=1).encode()))


def main(what: str = "") -> None:
    """Record the sessions and what they show, or only the latter."""
    logging.disable(logging.WARNING)
    FOLDER.mkdir(exist_ok=True)
    if what != "views":
        asyncio.run(_record_all())
    asyncio.run(_record_views())
    for path in sorted(FOLDER.iterdir()):
        sys.stdout.write(f"{path.stat().st_size:>8,}  {path.name}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
