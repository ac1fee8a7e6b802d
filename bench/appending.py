"""One process, one store: ``python -m bench.appending jsonl`` measures and prints JSON.

Appending to a store and to its baseline is measured in turns, in the same process and folder, because disks are noisy.
A figure is the median over the turns, a figure in units of the baseline the median of the ratios within a turn.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psycopg
from psycopg import sql
from redis import RedisError

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores import Store, open_store
from amplifier_context_core.stores.codec import message_json
from amplifier_context_core.transcript.entry import Entry

from .baselines import SIXTEEN, Write, postgres_baseline, redis_baseline, sqlite_baseline, write_many
from .process import emit, folder, say
from .sessions import entries_of, manager, messages

STORES = ("jsonl", "sqlite", "postgresql", "redis")
POSTGRES = os.environ.get("AMPLIFIER_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
REDIS = os.environ.get("AMPLIFIER_TEST_REDIS", "redis://127.0.0.1:6379/15")
TURNS = 9
_SINGLE = 60  # messages of a single appender in a turn
_MANY = 400  # messages of sixteen appenders in a turn


def main() -> None:
    with folder() as files:
        emit(asyncio.run(_append(sys.argv[1], files)))


async def _append(kind: str, files: Path) -> dict[str, float] | dict[str, str]:
    schema = files.name.replace("-", "_")
    async with AsyncExitStack() as stack:
        try:
            store, baseline = _compared(kind, files, schema)
            appends = _Appends(store, await stack.enter_async_context(baseline))
        except (psycopg.Error, RedisError, OSError, ConfigError, ImportError) as problem:
            return {"absent": f"{type(problem).__name__}: {problem}".splitlines()[0]}
        try:
            for turn in range(TURNS + 1):
                say(f"appending, turn {turn} of {TURNS}")
                await appends.turn()
                if not turn:
                    appends.noted.clear()  # it created connections, files and sessions
        finally:
            await appends.clean()
            if kind == "postgresql":
                async with await psycopg.AsyncConnection.connect(POSTGRES, autocommit=True) as connection:
                    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE")
                    await connection.execute(drop.format(sql.Identifier(schema)))
    figures = {name: median(values) for name, values in appends.noted.items()}
    if kind in ("jsonl", "sqlite"):
        figures["local_excess"] = figures["append_us"] - 1.15 * figures["bare_us"]
    if kind == "postgresql":
        figures["server_share"] = 1 / figures["append_baselines"]
    if kind in ("sqlite", "postgresql"):
        figures["sql_share"] = figures["spread_baselines"]
    return figures


def _compared(kind: str, files: Path, schema: str) -> tuple[Store, AbstractAsyncContextManager[Write]]:
    if kind == "postgresql":
        url = f"{POSTGRES}{'&' if '?' in POSTGRES else '?'}schema={schema}"
        return open_store(url), postgres_baseline(POSTGRES)
    if kind == "redis":
        url = f"{REDIS}{'&' if '?' in REDIS else '?'}prefix={schema}"
        return open_store(url), redis_baseline(REDIS)
    return open_store(f"{kind}:{files / ('sessions' if kind == 'jsonl' else 'sessions.db')}"), sqlite_baseline(files)


class _Appends:
    """Runs the turns and collects their figures."""

    def __init__(self, store: Store, baseline: Write) -> None:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self._store, self._baseline = store, baseline
        self._manager = manager(f"{name}-shared", store=store)
        self._lone = manager(f"{name}-lone", store=store)
        self._messages = cycle(list(messages(3_000)))
        fed = ({**message} for message in self._messages)
        self._entries = {f"{name}-{number}": entries_of(f"{name}-{number}", fed) for number in range(SIXTEEN)}
        self.noted: dict[str, list[float]] = {}

    async def turn(self) -> None:
        bare = await self._single("bare", lambda line: self._baseline([line], 0), self._lines(_SINGLE))
        first, entries = next(iter(self._entries.items()))
        append = partial(self._store.append, first)
        took = await self._single("append", append, [[entry] for entry in islice(entries, _SINGLE)])
        fed = [{**message} for message in islice(self._messages, _SINGLE)]
        await self._single("add", self._lone.add_message, fed)
        self._note("append_baselines", took / bare)
        lines = self._lines(_MANY)
        started = perf_counter()
        await write_many(self._baseline, lines)
        rate = _MANY / (perf_counter() - started)
        self._note("bare_rate", rate)
        fed = [{**message} for message in islice(self._messages, _MANY)]
        started = perf_counter()
        await asyncio.gather(*(self._through(fed[number::SIXTEEN]) for number in range(SIXTEEN)))
        self._note("shared_rate", _MANY / (perf_counter() - started))
        each = {name: list(islice(entries, _MANY // SIXTEEN)) for name, entries in self._entries.items()}
        started = perf_counter()
        await asyncio.gather(*(self._into(name, entries) for name, entries in each.items()))
        spread = _MANY / (perf_counter() - started)
        self._note("spread_rate", spread)
        self._note("spread_baselines", spread / rate)

    async def clean(self) -> None:
        for session_id in (*self._entries, self._manager.session_id, self._lone.session_id):
            await self._store.delete(session_id)
        await self._store.close()

    def _lines(self, count: int) -> list[str]:
        return [message_json(message).decode() for message in islice(self._messages, count)]

    def _note(self, name: str, value: float) -> None:
        self.noted.setdefault(name, []).append(value)

    async def _single(self, name: str, work: Callable[[Any], Awaitable[object]], fed: Sequence[Any]) -> float:
        """Do the work with one after the other; note and return the median of the microseconds."""
        times: list[float] = []
        for one in fed:
            started = perf_counter()
            await work(one)
            times.append((perf_counter() - started) * 1e6)
        self._note(f"{name}_us", median(times))
        return median(times)

    async def _through(self, fed: Sequence[dict[str, object]]) -> None:
        for message in fed:
            await self._manager.add_message(message)

    async def _into(self, session_id: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            await self._store.append(session_id, [entry])


if __name__ == "__main__":
    main()
