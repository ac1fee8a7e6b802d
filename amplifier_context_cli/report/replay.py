"""The requests of a stored session, made once more: what each was sent, and what each compaction did.

Past views are not stored. They follow from the history, the settings and the requests, so a replay makes them again:
before each answer, one request of the session's budget to the provider that answered, whose reported usage is learned
from as it was then. What handlers, commands or a model that wrote chapters changed is not in it. The newest view is
therefore read from the session itself, as the next request would be sent it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from amplifier_context_core import ContextManager, Entry
from amplifier_context_core.events import COMPACTION
from amplifier_context_core.messages.usage import Response, measured

STATES = ("kept", "clipped", "cleared", "superseded", "folded", "dropped")


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        shows: number of messages of the history that there were.
        reported: tokens that the provider reported when the session ran; None if that is not known.
        compaction: number of the newest compaction.
    """

    shows: int
    used: int
    reported: int | None
    compaction: int


@dataclass(slots=True)
class Replay:
    """What a replay found.

    Attributes:
        requests: in order; the last is the view of the session as it is stored.
        compactions: reports of ``context:compaction``, the first one empty; each has ``chapters``, numbers of these.
        chapters: as `ContextManager.chapters` returns them, each text once.
        states: for each message that did not stay as it was, by its index: pairs of the compaction and the state.
        size: budget of a request in tokens.
    """

    requests: list[Request] = field(default_factory=list[Request])
    compactions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    chapters: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    states: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    size: int = 0


class _Compactions:
    """Takes the events of a session, in place of the kernel's hooks."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        if event == COMPACTION:
            self.reports.append(data)


async def replay(entries: Iterable[Entry], now: ContextManager, progress: Callable[[int], None]) -> Replay:
    """Return what the requests of a session were sent.

    Args:
        now: a manager of a copy of the session, with its settings and its state.
        progress: called with 1 for each message that is done.
    """
    config, hooks = now.config, _Compactions()
    manager = ContextManager(config, session_id=now.session_id, hooks=hooks)
    made, indices = Replay(compactions=[{"chapters": []}]), _Indices()
    for count, entry in enumerate(entries):
        if entry.role == "assistant":
            sent = await manager.requests.view(config.max_tokens, _provider_of(entry.response))
            if len(hooks.reports) >= len(made.compactions):
                await _note(made, manager, dict(hooks.reports[-1]), indices)
            used = sent.limits.units.request(sent.counted)
            reported = measured(entry.response.usage) if entry.response and entry.response.usage else None
            made.requests.append(Request(count, used, reported, len(made.compactions) - 1))
            if entry.response:
                manager.on_response(entry.response)
        await manager.add_message(entry.message)
        indices.add(entry.seq)
        progress(1)
    usage = await now.usage()
    made.size = usage["size"]
    await _note(made, now, {"trigger": "now"}, indices, stored=True)
    made.requests.append(Request(len(indices), usage["used"], usage["reported"], len(made.compactions) - 1))
    return made


def _provider_of(response: Response | None) -> SimpleNamespace | None:
    return SimpleNamespace(name=response.provider or "", default_model=response.model or "") if response else None


class _Indices:
    """Indices of messages by their seqs: in a replay these are counted from 1, in the stored session they have gaps."""

    def __init__(self) -> None:
        self._stored: list[int] = []

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, seq: int) -> None:
        self._stored.append(seq)

    def between(self, mark: str, to: str, *, stored: bool) -> range:
        first, last = int(mark[1:]), int(to[1:])
        if not stored:
            return range(first - 1, min(last, len(self)))
        return range(bisect_left(self._stored, first), bisect_right(self._stored, last))


async def _note(
    made: Replay, manager: ContextManager, report: dict[str, Any], indices: _Indices, *, stored: bool = False
) -> None:
    """Note what a compaction made of the messages, and its chapters."""
    number = len(made.compactions)
    known = {chapter["text"]: place for place, chapter in enumerate(made.chapters)}
    places: list[int] = []
    report |= {"chapters": places, "request": len(made.requests)}
    for chapter in await manager.chapters():
        place = known.setdefault(chapter["text"], len(made.chapters))
        if place == len(made.chapters):
            span = indices.between(chapter["mark"], chapter["to"], stored=stored)
            made.chapters.append({**chapter, "start": span.start, "stop": span.stop})
        places.append(place)
    made.compactions.append(report)
    now: dict[int, int] = {}
    for row in (await manager.explain())["rounds"]:
        state = STATES.index(row["state"])
        for index in indices.between(row["mark"], row["to"], stored=stored):
            now[index] = state
    for index in sorted(now.keys() | made.states.keys()):
        state, former = now.get(index, 0), made.states.get(index)
        if state != (former[-1][1] if former else 0):
            made.states.setdefault(index, []).append((number, state))
