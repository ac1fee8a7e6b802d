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

import orjson

from amplifier_context_core import ContextManager, HeuristicTokenCounter, count_message_tokens
from amplifier_context_core.messages.parsing import copy_message

from .process import emit, percentile, resident_bytes, say
from .sessions import Message, Reports, manager, messages, rounds

Figures = dict[str, float]

_BATCH = 500  # messages that are created before they are measured
_TOGETHER = 20_000  # messages in all sessions that are in memory at once: one small session is not measurable
_ASKED_FOR_MEMORY = 10_000  # messages up to which a view is made before memory is read; above it is negligible
_REQUESTS = 1_500  # requests in steady state, including compactions


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    emit(asyncio.run(_measured(int(sys.argv[1]))))


async def _measured(size: int) -> Figures:
    warm = manager()  # what a process does once, before anything is measured
    for message in messages(600, seed=999):
        await warm.add_message(message)
    await warm.get_messages_for_request()
    figures: Figures = {"messages": size}
    say("adding")
    session = await _grow(size, figures)
    say("the whole history")
    history = await session.get_messages()
    del session
    gc.collect()
    hooks = Reports()
    imported = manager(hooks=hooks)
    await imported.set_messages(history)
    del history
    await imported.get_messages_for_request()
    hooks.took.clear()
    hooks.own.clear()
    say("steady state")
    await _steady(imported, figures)
    figures["per_compaction"] = figures["requests"] / len(hooks.took) if hooks.took else math.nan
    figures["compaction_p50"] = percentile(hooks.took, 0.5)
    figures["compaction_max"] = max(hooks.took, default=math.nan)
    figures["compaction_own"] = max(hooks.own, default=math.nan)
    return figures


async def _grow(size: int, figures: Figures) -> ContextManager:
    counter = HeuristicTokenCounter()
    sessions: list[ContextManager] = []
    streams = [messages(size, seed) for seed in range(max(1, _TOGETHER // size))]
    made = [next(stream) for stream in streams]  # the source text does not count as memory of the sessions
    before = resident_bytes()
    in_json = 0
    adding = counting = baseline = 0.0
    for first, stream in zip(made, streams, strict=True):
        session = manager()
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
            started = perf_counter()
            for message in batch:
                await session.add_message(message)
            adding += perf_counter() - started
    made.clear()
    if size <= _ASKED_FOR_MEMORY:
        for session in sessions:
            await session.get_messages_for_request()
    held = resident_bytes() - before
    total = size * len(sessions)
    figures["add_us"] = adding / total * 1e6
    figures["beyond_us"] = (adding - counting) / total * 1e6
    figures["beyond_baselines"] = (adding - counting) / baseline
    figures["memory_mb"] = held / len(sessions) / 1e6
    figures["memory_ratio"] = held / in_json
    return sessions[-1]


async def _steady(session: ContextManager, figures: Figures) -> None:
    """Measure requests, each after one new round."""
    plain: list[float] = []
    copying: list[float] = []
    stream = rounds(messages(_REQUESTS * 6, seed=7))
    for group in islice(stream, _REQUESTS):
        for message in group:
            await session.add_message(message)
        compactions = session.compactor.compactions
        started = perf_counter()
        view = await session.get_messages_for_request()
        took = perf_counter() - started
        if session.compactor.compactions == compactions:
            plain.append(took)
        started = perf_counter()
        _ = [copy_message(message) for message in view]
        copying.append(perf_counter() - started)
    figures["requests"] = _REQUESTS
    figures["request_p50"] = percentile(plain, 0.5) * 1000
    figures["request_p99"] = percentile(plain, 0.99) * 1000
    figures["request_baselines"] = percentile(plain, 0.5) / percentile(copying, 0.5)


if __name__ == "__main__":
    main()
