"""The search index over messages in PostgreSQL: its own full text, filled by the first search.

A row of the table `search` holds the words of a message, or of a piece of a long one, as a `tsvector` of stems. One
index over all sessions finds the rows. So that a word of one session is not looked for among those of all others, each
word begins with the session's key: ``q12qparser`` is `parser` in session 12. Nothing of a text or a query is syntax
for the server: both are sent as letters and digits.

`sessions.indexed` counts the messages that are in the index. A transaction adds about a megabyte of messages, or one
message that is larger, and what it has added stays. It locks the session's row only at its end, so that no append
waits for it. `sessions.edits` changes with whatever takes messages out: a transaction that read messages before that
is rolled back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from psycopg import Rollback

from amplifier_context_core.errors import StoreError
from amplifier_context_core.futures import in_thread
from amplifier_context_core.stores.codec import decode_entry, decode_extra
from amplifier_context_core.stores.yielding import INDEXED, yield_gil, yielding
from amplifier_context_core.transcript.candidates import Wanted, find_candidates
from amplifier_context_core.transcript.ranking import UNSPACED, Query, Term, Text, fold, grams, rank, spelled
from amplifier_context_core.transcript.search import ranked_text

from . import queries
from .pool import Connection, PostgresPool

_BATCH_ROWS, _BATCH_BYTES = 500, 1_000_000  # of messages that one transaction adds; the last one may be larger
_STATEMENT = 1_000_000  # characters of rows that one statement adds, about; it takes a second
_POLL = 0.05  # seconds between looks whether another process has ended its transaction
_PIECE_WORDS, _PIECE_CHARACTERS = 15_000, 200_000  # of a row; a tsvector has 16,383 positions and 1 MB
_OVERLAP = 64  # words that two pieces share: a phrase of a query has no more, so one between two pieces is found
_LONGEST_WORD = 200  # characters of a word that count; PostgreSQL ignores words above 2,046 bytes
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")


class IndexState(NamedTuple):
    """How far the index of a session is filled.

    Attributes:
        key: of the session's rows.
        length: messages of the history.
        indexed: messages in the index.
        edits: changes with whatever took messages out of the history.
        is_missing: True if the index should have messages and has none.
        is_writable: True if this user may fill it on this server.
    """

    key: int
    length: int
    indexed: int
    edits: int
    is_missing: bool
    is_writable: bool


class PostgresSearch:
    """Fills the index and asks it. Its methods run on the driver's loop thread."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._filling = asyncio.Semaphore(max(1, pool.settings.pool_size // 2))  # the other connections are for appends

    async def index_next_batch(self, session_id: str) -> bool | None:
        """Add the next messages of a session. Return True if there may be more, None if the index cannot be filled."""
        async with self._filling:
            state = await self._state(session_id)
            if state is None or (state.indexed >= state.length and not state.is_missing):
                return False
            if not state.is_writable:
                return None
            if state.is_missing:
                await self._pool.count(queries.FORGET_INDEX, {"key": state.key})
            elif not await self._pool.run(lambda connection: self._index(connection, session_id, state)):
                await asyncio.sleep(_POLL)
            return True

    async def _index(self, connection: Connection, session_id: str, state: IndexState) -> bool:
        """Add the next messages in one transaction. Return False if another process is adding some."""
        execute, key, start = self._pool.execute, {"key": state.key}, state.indexed
        async with connection.transaction():
            locked = await (await execute(connection, queries.LOCK_INDEX, key)).fetchall()
            if locked == [(False,)]:
                return False
            stop = min(start + _BATCH_ROWS, state.length)
            values = key | {"start": start, "stop": stop, "bytes": _BATCH_BYTES}
            rows = await (await execute(connection, queries.UNINDEXED, values)).fetchall()
            stop = rows[-1][0] + 1 if rows else stop
            statements = _statements(state.key, session_id, rows)
            while taken := await in_thread(next, statements, None):
                places, parts, texts = map(list, zip(*taken, strict=True))
                await execute(connection, queries.INDEX, key | {"places": places, "parts": parts, "texts": texts})
            values = key | {"start": start, "stop": stop, "edits": state.edits}
            if not (await execute(connection, queries.COUNT_INDEXED, values)).rowcount:
                raise Rollback
        if stop == state.length:
            await execute(connection, queries.MERGE_INDEX, {})
        return True

    async def matching_seqs(self, session_id: str, query: str, limit: int) -> list[int]:
        """Return the seqs of the matching entries, best first."""
        parsed, state = Query(query), await self._state(session_id)
        if state is None or not parsed or limit < 1:
            return []
        asking = find_candidates(parsed, state.indexed, limit)
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send(await self._answers(state.key, wanted))
        except StopIteration as end:
            found = end.value
        rows = await self._pool.ask(queries.MESSAGES_AT, {"key": state.key, "places": list(found.keys)})

        def ranked() -> list[int]:
            texts = ((place, _text(session_id, message, extra)) for place, _, message, extra in rows)
            seqs = {place: seq for place, seq, *_ in rows}
            best = rank(parsed, yielding(texts), found.frequency, found.nearby, state.indexed)[:limit]
            return [seqs[place] for place in best]

        return await in_thread(ranked)

    async def _state(self, session_id: str) -> IndexState | None:
        found = await self._pool.ask(queries.INDEX_STATE, {"id": session_id})
        return IndexState(*found[0]) if found else None

    async def _answers(self, key: int, wanted: Sequence[Wanted]) -> Sequence[Sequence[int]]:
        """Return the places of messages that have what is wanted."""
        answers: list[Sequence[int]] = [()] * len(wanted)
        for is_newest, statement in ((False, queries.MATCHING), (True, queries.NEWEST_MATCHING)):
            numbers = [number for number, one in enumerate(wanted) if one.is_newest is is_newest]
            if numbers:
                values: dict[str, Any] = {
                    "queries": [tsquery(key, wanted[number].terms) for number in numbers],
                    "limits": [wanted[number].limit for number in numbers],
                }
                for number, (places,) in zip(numbers, await self._pool.ask(statement, values), strict=True):
                    answers[number] = list(dict.fromkeys(places))
        return answers


def _statements(key: int, session_id: str, rows: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, int, str]]]:
    """Yield the pieces of messages with their place and number, as many at once as a statement adds.

    Other threads run between two of them.
    """
    taken: list[tuple[int, int, str]] = []
    size = 0
    for place, text in yielding(((place, text_of_message(session_id, message)) for place, message in rows), INDEXED):
        for part, piece in enumerate(pieces(key, text)):
            taken.append((place, part, piece))
            size += len(piece)
            yield_gil()
            if size > _STATEMENT:
                yield taken
                taken, size = [], 0
    if taken:
        yield taken


def pieces(key: int, text: str) -> Iterator[str]:
    """Yield a text as rows of the index take it: words of letters and digits, each after its session's key."""
    words: list[str] = []
    size = 0
    for word in chain(_words(fold(text)), _words(grams(text))):
        words.append(f"q{key}q{word[:_LONGEST_WORD]}")
        size += len(words[-1])
        if len(words) > _PIECE_WORDS or size > _PIECE_CHARACTERS:
            yield " ".join(words[:-1])
            words = words[-_OVERLAP - 1 :]
            size = sum(map(len, words))
    yield " ".join(words)


def _words(text: str) -> Iterator[str]:
    """Yield words one by one: one call for a long text would stop other threads."""
    return (found.group() for found in _WORD.finditer(text))


def tsquery(key: int, terms: Sequence[Term]) -> str:
    """Return what `to_tsquery` takes for texts that have all of some terms. Its words are letters and digits only."""
    return " & ".join(f"({_phrase(key, term)})" for term in terms)


def _phrase(key: int, term: Term) -> str:
    parts = spelled("".join(term.parts)).split() if term.is_inside else term.parts
    words = [f"'q{key}q{part[:_LONGEST_WORD]}'" for part in parts]
    return " <-> ".join(words) + (":*" if term.is_prefix else "")


def text_of_message(session_id: str, message: str) -> str:
    """Return the text of a message that is searched; empty if it is damaged, which the next read reports."""
    return _text(session_id, message, None).text


def _text(session_id: str, message: str, extra: str | None) -> Text:
    try:
        return ranked_text(decode_entry(session_id, 0, 0, 0, message, decode_extra(None, extra)))
    except StoreError:
        return Text("")
