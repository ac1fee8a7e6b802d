"""The guard of views: hashes of every view of whole sessions, so that a change that must change nothing is seen to.

A session is replayed message by message, with the clock frozen, in windows of a tenth, a quarter and half of it. At the
end the history is what was added. The first hash covers each view as it is sent, the second the reports of `explain`.
Before a hash is recorded, its views are held to the rules of providers and to their budget. Sessions that use what a
replay does not are in `scenarios.py`, each with one pair of hashes. `make guard` records all again, after a change that
is meant to change them.
"""

import asyncio
import hashlib
import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from amplifier_context_core import ContextManager, Plugins, approx_token_counter, count_tokens, load_config
from amplifier_context_core.messages.parsing import SYSTEM_ROLES, text_of
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import checked, coding_session, conversations, read_transcripts
from tests.conftest import DATA
from tests.data import scenarios
from tests.messages import bare

Message = dict[str, Any]

SHARES = (0.1, 0.25, 0.5)
RECORDED = Path(__file__).with_name("guard.json")
EVERY = 10  # requests between two reports that are hashed; the last one always is
_NOW = "2026-01-01T00:00:00.000+00:00"


async def fingerprint(messages: Sequence[Message], share: float, *, judges: bool = True) -> str:
    """Return the hashes of all views and of all reports of one session in a window of this share of its tokens.

    Views of which the hash is known were judged when it was recorded: to compare them, a caller need not judge them.
    """
    shared_cache.clear()
    budget = max(200, int(count_tokens(list(messages), approx_token_counter) * share))
    config = load_config({"token_counter": "heuristic", "max_tokens": budget})
    manager = ContextManager(config, plugins=Plugins(), clock=lambda: _NOW)
    views, reports = hashlib.sha256(), hashlib.sha256()
    requests = 0
    for message in messages:
        if message["role"] == "assistant":
            requests += 1
            view = await manager.get_messages_for_request()
            if judges:
                _judge(manager, view, budget)
            _feed(views, view)
            if requests % EVERY == 0:
                _feed(reports, await manager.explain())
        await manager.add_message(dict(message))
    _feed(views, await manager.get_messages_for_request())
    _feed(reports, await manager.explain())
    assert bare(await manager.get_messages()) == bare(list(messages))
    return f"{views.hexdigest()[:16]} {reports.hexdigest()[:16]}"


def _judge(manager: ContextManager, view: list[Message], budget: int) -> None:
    """Hold a view to the rules of providers and to its budget; the newest words of a person are in it."""
    if all(message["role"] in SYSTEM_ROLES for message in view):
        return  # no loop requests an empty conversation
    checked(view)
    warnings = manager.warnings.texts
    within = count_tokens(view, approx_token_counter) <= budget
    assert within or any("what must be kept needs" in warning for warning in warnings)
    people = (one for one in reversed(manager.history.snapshot()) if one.human and not is_left_out(one.message))
    if (newest := next(people, None)) is not None:
        wanted = _text(newest.message).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        shown = [_text(message) for message in view if message["role"] == "user"]
        is_clipped = bool(warnings) and any(f"{newest.mark} ..." in text or text[:4] == wanted[:4] for text in shown)
        assert is_clipped or any(wanted in text for text in shown), f"{newest.mark} of a person is not in the view"


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = [block for block in content if isinstance(block, dict) and block.get("type") == "text"]
    return text_of(content).strip()


def _feed(digest: Any, value: object) -> None:
    digest.update(json.dumps(value, sort_keys=True).encode())


def made_sessions() -> Mapping[str, Sequence[Message]]:
    """Return the sessions made for the tests: a long one, and all odd conversations one after the other."""
    odd = [message for conversation in conversations() for message in conversation.messages]
    return {"made/coding": list(coding_session(400, 7)), "made/odd": odd}


@cache
def recorded_sessions() -> dict[str, Sequence[Message]]:
    """Return the recorded sessions by set and id."""
    return {
        f"{file.name.removesuffix('.jsonl.gz')}/{transcript.id}": transcript.messages
        for file in sorted(DATA.glob("*.jsonl.gz"))
        if not file.name.startswith("reuse_probes")
        for transcript in read_transcripts(file)
    }


async def fingerprints(sessions: Mapping[str, Sequence[Message]]) -> dict[str, list[str]]:
    return {name: [await fingerprint(messages, share) for share in SHARES] for name, messages in sessions.items()}


async def scenario(name: str) -> list[str]:
    """Return the hashes of a scenario, of one that is stored in memory."""
    if name in scenarios.STORED:
        return [await scenarios.STORED[name](scenarios.in_memory(), "guarded")]
    return [await scenarios.SCENARIOS[name]()]


async def recordings() -> dict[str, list[str]]:
    played = {f"scenario/{name}": await scenario(name) for name in (*scenarios.SCENARIOS, *scenarios.STORED)}
    return {**await fingerprints({**made_sessions(), **recorded_sessions()}), **played}


def main() -> None:
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
