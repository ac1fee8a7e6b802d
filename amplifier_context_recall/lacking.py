"""Names that a view lacks: identifiers of the history that it does not hold, those first that are likely needed next.

A name counts by the messages that have it: newer ones, and those at or near a hit of a search, count more, and what the
agent wrote itself counts more than outputs of tools. Of two names that count the same, the shorter one comes first.
`docs/reports/evaluation.md` has the figures. None of the constants changes them much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from amplifier_context_core import ContextManager
from amplifier_context_core.arguments import checked_count
from amplifier_context_core.compaction.identifiers import identifiers
from amplifier_context_core.compaction.roots import with_full_paths
from amplifier_context_core.futures import in_thread
from amplifier_context_core.messages.parsing import SYSTEM_ROLES, Message, calls_of, metadata_of
from amplifier_context_core.stores.word_index import yield_gil
from amplifier_context_core.transcript.entry import Entry, seqs_of
from amplifier_context_core.transcript.recalled import RECALL_TOOL
from amplifier_context_core.transcript.searchable import message_text

from .recall_pages import Counter, Source

_RECENT = 2_000  # newest messages that are read for names; no measured session has more
_CHARACTERS = 2_000_000  # of all texts that are read; chosen by hand: 250 ms of a thread, with a view of 800,000
_SCANNED = 40_000  # characters of a message that are read
_HITS = 10  # hits of a search that count
_NEAR = 2  # messages on each side of a hit: the call, its result and the next message have what a sentence is about
_DECAY = 0.8  # for each message between
_BEFORE_FIRST = 3  # the first hit counts a quarter more than the second, not twice as much
_HIT = 0.1  # the first hit counts as much as a message of 20 messages ago
_AGE = 10  # messages; the newest counts twice as much as a message so long ago
_AGENTS = 3.0  # what the agent itself wrote: it used these names
_SHORT = 8  # characters; a name counts by its length beside these, since long names cost more tokens
_PIECE = 20_000  # characters that are read between two moments at which other threads may run
_MOST_TRIED = 2_000  # names that are looked for in a view; chosen by hand
_APART = 1  # tokens between two names beside the hits of a search
_HEADER = 6  # tokens of the line before the names of a message
_TRIED = 20  # names that are looked for in a view between two such moments


async def names_lacking_in(manager: ContextManager, marks: Sequence[str], limit: int = 200) -> list[dict[str, str]]:
    """Return names that the history has and the model does not see, those that are likely needed next first.

    Args:
        marks: of messages that a search found, the best first; names of these and near them come sooner.

    Returns:
        Identifiers as `name`, each with the `mark` of the newest message that has it.

    Raises:
        ValueError: one of `marks` is no mark.
    """
    hits, limit = seqs_of(marks), checked_count("limit", limit)
    await manager.ready()
    sent = await manager.requests.last_sent()
    history, last = manager.history.snapshot(), manager.history.last_seq
    wanted = {*_nearness(hits), *range(max(1, last - _RECENT + 1), last + 1)}
    found = await manager.history.find_all(sorted(wanted)) if history.gap else None
    shown = [one.message for one in (*sent.system, *sent.messages)]
    newest = max((one.seq for one in sent.messages), default=0)

    def names() -> list[tuple[str, int]]:
        entries = [entry for entry in history if entry.seq in wanted] if found is None else found
        view = [*shown, *(entry.message for entry in entries if entry.seq > newest)]  # as the next one will have them
        return lacking_names(entries, hits, view, limit)

    return [{"name": name, "mark": f"m{seq}"} for name, seq in await in_thread(names)]


def _nearness(hits: Sequence[int]) -> dict[int, float]:
    """Return what messages count for being at or near hits (the best first), by seq."""
    near: dict[int, float] = {}
    for rank, hit in enumerate(hits[:_HITS]):
        for seq in range(max(1, hit - _NEAR), hit + _NEAR + 1):
            near.setdefault(seq, _HIT * _DECAY ** abs(seq - hit) / (_BEFORE_FIRST + rank))
    return near


def lacking_names(
    history: Collection[Entry], hits: Sequence[int], view: Iterable[Message], most: int
) -> list[tuple[str, int]]:
    """Return names with the seq of the newest message that has each, those that count most first; at most `most`.
    `history`: the newest messages, and those near the hits.
    """
    held = "\n".join(_held(message) for message in view)
    holds = {RECALL_TOOL, *(name for piece in _pieces(held) for name in identifiers(piece))}
    near = _nearness(hits)
    newest = max((entry.seq for entry in history), default=0)
    weights: defaultdict[str, float] = defaultdict(float)
    found: dict[str, int] = {}
    for entry, text in _texts(history):
        weight = 1 / (_AGE + newest - entry.seq) + near.get(entry.seq, 0)
        weight *= _AGENTS if entry.role == "assistant" else 1
        for name in (name for piece in _pieces(text) for name in identifiers(piece)):
            if name not in holds:
                weights[name] += weight
                found.setdefault(name, entry.seq)
    chosen: list[tuple[str, int]] = []
    ranked = sorted(weights, key=lambda name: weights[name] / (_SHORT + len(name)), reverse=True)[:_MOST_TRIED]
    for number, name in enumerate(ranked):
        if len(chosen) >= most:
            break
        if number % _TRIED == 0:
            yield_gil()
        if name not in held:  # a part of a longer name is read there as well
            chosen.append((name, found[name]))
    return chosen


def _held(message: Message) -> str:
    text = message_text(message)
    return with_full_paths(text) if "chapter" in metadata_of(message) else text


def _texts(history: Iterable[Entry]) -> Iterator[tuple[Entry, str]]:
    """Yield messages with their texts, the newest first, without instructions and copies of other messages."""
    entries = sorted(history, key=lambda entry: entry.seq, reverse=True)
    calls = {call.id for one in entries for call in calls_of(one.message) if call.name == RECALL_TOOL}
    left = _CHARACTERS
    for entry in entries:
        if entry.role in SYSTEM_ROLES or not calls.isdisjoint(entry.answered_ids):
            continue
        text = message_text(entry.message)
        text = text[: _end(text, 0, _SCANNED)]
        left -= len(text)
        if left < 0:
            break
        yield entry, text


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        yield_gil()
        end = text.find("\n", start + _PIECE)
        end = len(text) if end < 0 else end
        end = _end(text, start, min(end, start + 2 * _PIECE))
        yield text[start:end]
        start = end


def _end(text: str, start: int, end: int) -> int:
    """Return where a piece ends that would end here, so that no name is cut: after the last white space."""
    if end >= len(text) or text[end].isspace():
        return end
    space = max(text.rfind(" ", start, end), text.rfind("\n", start, end), text.rfind("\t", start, end))
    return space + 1 if space >= start else end  # text without white space has no name that long


def name_sources(names: Iterable[tuple[str, str]], shown: str, tokens: int, counter: Counter) -> list[Source]:
    """Return names by message, in the order of the messages.

    Args:
        names: each with the mark of a message that has it; those that are wanted most first.
        tokens: that the names may cost, with a line for each message.
    """
    chosen: dict[str, list[str]] = {}
    for name, mark in names:
        if name in shown:
            continue
        tokens -= counter(name) + _APART + (0 if mark in chosen else _HEADER)
        if tokens < 0:
            break
        chosen.setdefault(mark, []).append(name)
    return [Source(mark, "", (", ".join(chosen[mark]),)) for mark in sorted(chosen, key=lambda mark: int(mark[1:]))]
