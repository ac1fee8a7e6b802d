"""One process, one size: ``python -m bench.measure 10000`` measures and prints JSON.

A fresh process, because memory is read off the process and because sessions of one process know of each other's counts
and checkpoints (which would make an import look cheaper than it is).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import sys
from itertools import chain, islice
from time import perf_counter
from typing import Any

import orjson

from amplifier_context_core import (
    ContextManager,
    HeuristicTokenCounter,
    TokenCounter,
    count_message_tokens,
    exact_token_counter,
)
from amplifier_context_core.messages.parsing import copy_message

from .sessions import Message, Reports, manager, messages, rounds
from .timers import Stall, collector, percentile, resident_bytes, run

Figures = dict[str, float]

LARGE = 5_000_000  # characters of the one large message
_CALL = {"id": "call_large", "tool": "Bash", "arguments": {"command": "cat everything"}}
_BATCH = 500  # messages that are created before they are measured
_TOGETHER = 20_000  # messages in all sessions that are in memory at once: one small session is not measurable
_ASKED_FOR_MEMORY = 10_000  # messages up to which a view is made before memory is read; above it is negligible
_REQUESTS = 1_500  # requests in steady state, including compactions
_AGAIN = 5  # repetitions of short spans; the median is used, also of stalls, because the machine is shared


def main() -> None:
    """Measure what the first argument names: a number of messages, or ``large``."""
    logging.basicConfig(level=logging.ERROR)
    what = sys.argv[1]
    figures = run(measure_large() if what == "large" else measure_session(int(what)))
    print(json.dumps({key: None if math.isnan(value) else value for key, value in figures.items()}))


async def measure_session(size: int) -> Figures:
    """Return all figures of sessions of one size."""
    await _warm_up()
    figures: Figures = {"messages": size}
    say("adding")
    session = await _grow(size, figures)
    say("get_messages and its echoes")
    history = await _hand_back(session, figures)
    del session
    gc.collect()
    say("importing")
    hooks = Reports()
    imported, strategies = manager(hooks=hooks)
    async with Stall() as stall:
        await imported.set_messages(history)
    del history
    _note(figures, "import", stall)
    say("the first request")
    async with Stall() as stall:
        await imported.get_messages_for_request()
    _note(figures, "first", stall)
    hooks.clear()
    for strategy in strategies:
        strategy.seconds = 0.0
    say("steady state")
    await _steady(imported, size, figures)
    figures["compactions"] = len(hooks.took)
    figures["compaction_p50"] = percentile(hooks.took, 0.5)
    figures["compaction_max"] = max(hooks.took, default=math.nan)
    figures["compaction_own"] = max(hooks.own, default=math.nan)
    total = sum(hooks.took) / 1000
    figures["ladder_share"] = sum(strategy.seconds for strategy in strategies) / total if total else math.nan
    for strategy in strategies:
        figures[f"strategy_{strategy.name}"] = strategy.seconds / total if total else math.nan
    return figures


async def measure_large() -> Figures:
    """Measure one message of 5 MB with exact counts: adding it, and the request that shows its beginning."""
    await _warm_up()
    counter = exact_token_counter()
    text = "\n".join(str(message["content"]) for message in messages(9_000))[:LARGE]
    figures: Figures = {"characters": len(text)}
    started = perf_counter()
    counter(text)
    figures["count_ms"] = (perf_counter() - started) * 1000
    records = json.dumps([{"id": number, "value": "xxxxx"} for number in range(LARGE // 30)])
    taken: dict[str, list[Stall]] = {"add": [], "request": [], "records": [], "human": []}
    for _ in range(_AGAIN):
        session = await _calling(counter)
        async with Stall() as stall:
            await session.add_message({"role": "tool", "tool_call_id": _CALL["id"], "content": text})
        taken["add"].append(stall)
        async with Stall() as stall:
            await session.get_messages_for_request()
        taken["request"].append(stall)
        session = await _calling(counter)
        async with Stall() as stall:
            await session.add_message({"role": "tool", "tool_call_id": _CALL["id"], "content": records})
            await session.get_messages_for_request()
        taken["records"].append(stall)
        context, _ = manager(counter)
        async with Stall() as stall:
            await context.add_message({"role": "user", "content": text})
            await context.get_messages_for_request()
        taken["human"].append(stall)
    for name, stalls in taken.items():
        _note(figures, name, *stalls)
    return figures


async def _calling(counter: TokenCounter) -> ContextManager:
    """Return a session that waits for the result of a call."""
    session, _ = manager(counter)
    for message in messages(100):
        await session.add_message(message)
    await session.get_messages_for_request()
    await session.add_message({"role": "assistant", "content": "", "tool_calls": [_CALL]})
    return session


def say(what: str) -> None:
    """Print progress for the parent process."""
    print(f"... {what}", flush=True)


async def _warm_up() -> None:
    """Do the work that a process does once, before anything is measured."""
    session, _ = manager()
    for message in messages(600, seed=999):
        await session.add_message(message)
    await session.get_messages_for_request()


async def _grow(size: int, figures: Figures) -> ContextManager:
    """Create sessions of this size by `add_message`; return the last one."""
    counter = HeuristicTokenCounter()
    sessions: list[ContextManager] = []
    streams = [messages(size, seed) for seed in range(max(1, _TOGETHER // size))]
    made = [next(stream) for stream in streams]  # the source text does not count as memory of the sessions
    before = resident_bytes()
    in_json = 0
    adding: list[float] = []
    counting = baseline = collecting = 0.0
    for first, stream in zip(made, streams, strict=True):
        session, _ = manager()
        sessions.append(session)
        stream = chain([first], stream)
        while batch := list(islice(stream, _BATCH)):
            in_json += sum(len(json.dumps(message)) for message in batch)
            started = perf_counter()
            for message in batch:
                count_message_tokens(message, counter)
            counting += perf_counter() - started
            kept: list[Message] = []
            started = perf_counter()
            for message in batch:
                kept.append(orjson.loads(orjson.dumps(message)))  # noqa: PERF401 - append is what is measured
            baseline += perf_counter() - started
            del kept
            collected, started = collector.seconds, perf_counter()
            for message in batch:
                await session.add_message(message)
            adding.append((perf_counter() - started) / len(batch))
            collecting += collector.seconds - collected
    made.clear()
    if size <= _ASKED_FOR_MEMORY:
        for session in sessions:
            await session.get_messages_for_request()
    held = resident_bytes() - before
    total = size * len(sessions)
    figures["add_us"] = sum(adding) / len(adding) * 1e6
    figures["count_us"] = counting / total * 1e6
    figures["add_gc_us"] = collecting / total * 1e6
    figures["baseline_us"] = baseline / total * 1e6
    figures["beyond_us"] = figures["add_us"] - figures["count_us"]
    figures["beyond_baselines"] = (figures["beyond_us"] - figures["add_gc_us"]) / figures["baseline_us"]
    tenth = max(1, len(adding) // 10)
    figures["add_drift"] = percentile(adding[-tenth:], 0.5) / percentile(adding[:tenth], 0.5)
    figures["memory_mb"] = held / len(sessions) / 1e6
    figures["json_mb"] = in_json / len(sessions) / 1e6
    figures["memory_ratio"] = held / in_json
    return sessions[-1]


async def _hand_back(session: ContextManager, figures: Figures) -> list[Message]:
    """Measure `get_messages`, its echo, and the echo of a resuming host, which is filtered and read from a file."""
    taken: list[Stall] = []
    handed_back: list[Stall] = []
    history: list[Message] = []
    for _ in range(_AGAIN if figures["messages"] <= 100_000 else 1):
        async with Stall() as stall:
            history = await session.get_messages()
        taken.append(stall)
        async with Stall() as stall:
            await session.set_messages(history)
        handed_back.append(stall)
    _note(figures, "get", *taken)
    _note(figures, "echo", *handed_back)
    resumed = [
        {key: value for key, value in message.items() if value is not None}
        for message in history
        if message["role"] not in ("system", "developer")
    ]
    for message in resumed[::10]:  # a host's filter drops unknown keys; any difference ends the fast comparison
        message.pop("metadata", None)
    async with Stall() as stall:
        await session.set_messages(resumed)
    _note(figures, "resume", stall)
    return history


async def _steady(session: ContextManager, size: int, figures: Figures) -> None:
    """Measure requests, each after one new round."""
    plain: list[float] = []
    compacting: list[float] = []
    copying: list[float] = []
    stream = rounds(messages(_REQUESTS * 6, seed=7))
    async with Stall() as stall:
        for group in islice(stream, _REQUESTS):
            for message in group:
                await session.add_message(message)
            compactions = session.compactor.compactions
            started = perf_counter()
            view = await session.get_messages_for_request()
            took = perf_counter() - started
            (plain if session.compactor.compactions == compactions else compacting).append(took)
            started = perf_counter()
            _ = [copy_message(message) for message in view]
            copying.append(perf_counter() - started)
            await asyncio.sleep(0)  # let the ticking task run
    figures["requests"] = len(plain) + len(compacting)
    figures["request_p50"] = percentile(plain, 0.5) * 1000
    figures["request_p99"] = percentile(plain, 0.99) * 1000
    figures["all_p50"] = percentile([*plain, *compacting], 0.5) * 1000
    figures["all_p99"] = percentile([*plain, *compacting], 0.99) * 1000
    figures["copy_p50"] = percentile(copying, 0.5) * 1000
    figures["request_baselines"] = percentile(plain, 0.5) / percentile(copying, 0.5)
    figures["compacting_p50"] = percentile(compacting, 0.5) * 1000
    figures["steady_stall"] = stall.longest * 1000
    figures["steady_gc"] = stall.collecting * 1000


def _note(figures: dict[str, Any], name: str, *stalls: Stall) -> None:
    figures[f"{name}_ms"] = percentile([stall.seconds for stall in stalls], 0.5) * 1000
    figures[f"{name}_stall"] = percentile([stall.longest for stall in stalls], 0.5) * 1000
    figures[f"{name}_gc"] = percentile([stall.collecting for stall in stalls], 0.5) * 1000


if __name__ == "__main__":
    main()
