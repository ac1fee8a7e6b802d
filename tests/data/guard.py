"""The guard of views: hashes of every view of whole sessions, so that a change that must change nothing is seen to.

A session is replayed message by message, with the clock frozen, in windows of a tenth, a quarter and half of it. The
first hash covers each view as it is sent, the second the reports of `explain`. Sessions that use what a replay does not
are in `scenarios.py`, each with one pair of hashes. `make guard` records all again, after a change that is meant to
change them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from amplifier_context_core import ContextManager, Plugins, approx_token_counter, count_tokens, load_config
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import coding_session, conversations, read_transcripts
from tests.conftest import DATA
from tests.data import scenarios

Message = dict[str, Any]

SHARES = (0.1, 0.25, 0.5)
RECORDED = Path(__file__).with_name("guard.json")
EVERY = 10  # requests between two reports that are hashed; the last one always is
SUITE = ("cline_session", "swe_agent_demos")  # sets of which the suite replays the first session; `make soak`: all
_NOW = "2026-01-01T00:00:00.000+00:00"


async def fingerprint(messages: Sequence[Message], share: float) -> str:
    """Return the hashes of all views and of all reports of one session in a window of this share of its tokens."""
    shared_cache.clear()
    budget = max(200, int(count_tokens(list(messages), approx_token_counter) * share))
    config = load_config({"token_counter": "heuristic", "max_tokens": budget})
    manager = ContextManager(config, plugins=Plugins(), clock=lambda: _NOW)
    views, reports = hashlib.sha256(), hashlib.sha256()
    requests = 0
    for message in messages:
        if message["role"] == "assistant":
            requests += 1
            _feed(views, await manager.get_messages_for_request())
            if requests % EVERY == 0:
                _feed(reports, await manager.explain())
        await manager.add_message(dict(message))
    _feed(views, await manager.get_messages_for_request())
    _feed(reports, await manager.explain())
    return f"{views.hexdigest()[:16]} {reports.hexdigest()[:16]}"


def _feed(digest: Any, value: object) -> None:
    digest.update(json.dumps(value, sort_keys=True).encode())


def made_sessions() -> Mapping[str, Sequence[Message]]:
    """Return the sessions made for the tests: a long one, and all odd conversations one after the other."""
    odd = [message for conversation in conversations() for message in conversation.messages]
    return {"made/coding": list(coding_session(400, 7)), "made/odd": odd}


def recorded_sessions(sets: Iterable[str] | None = None) -> dict[str, Sequence[Message]]:
    """Return recorded sessions by set and id: the first of each of these sets, or all of all sets."""
    found: dict[str, Sequence[Message]] = {}
    for file in sorted(DATA.glob("*.jsonl.gz")):
        name = file.name.removesuffix(".jsonl.gz")
        if name == "reuse_probes" or (sets is not None and name not in sets):
            continue
        for transcript in read_transcripts(file):
            found[f"{name}/{transcript.id}"] = transcript.messages
            if sets is not None:
                break
    return found


async def fingerprints(sessions: Mapping[str, Sequence[Message]]) -> dict[str, list[str]]:
    """Return the hashes of sessions, one for each share."""
    return {name: [await fingerprint(messages, share) for share in SHARES] for name, messages in sessions.items()}


async def scenario(name: str) -> list[str]:
    """Return the hashes of a scenario, of one that is stored in memory."""
    if name in scenarios.STORED:
        return [await scenarios.STORED[name](scenarios.in_memory(), "guarded")]
    return [await scenarios.SCENARIOS[name]()]


async def recordings() -> dict[str, list[str]]:
    """Return all hashes that can be had here."""
    played = {f"scenario/{name}": await scenario(name) for name in (*scenarios.SCENARIOS, *scenarios.STORED)}
    return {**await fingerprints({**made_sessions(), **recorded_sessions()}), **played}


def main() -> None:
    """Record the hashes of all sessions at hand."""
    logging.disable(logging.WARNING)
    known: dict[str, list[str]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    fresh = asyncio.run(recordings())
    views, reports = (
        sum(_part(fresh[name], part) != _part(known.get(name, ()), part) for name in fresh) for part in (0, 1)
    )
    RECORDED.write_text(json.dumps(dict(sorted({**known, **fresh}.items())), indent=1) + "\n")
    sys.stdout.write(f"{len(fresh)} sessions: the views of {views} changed, the reports of {reports}\n")


def _part(hashes: Iterable[str], part: int) -> list[str]:
    return [both.partition(" ")[2 * part] for both in hashes]


if __name__ == "__main__":
    main()
