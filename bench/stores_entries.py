"""Entries as a history makes them, without a history: what fills a store in no time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.timestamps import utc_now, with_timestamp
from amplifier_context_core.messages.tokens import HeuristicTokenCounter, count_message_tokens
from amplifier_context_core.transcript.transcript import Entry

from .sessions import Message


def entries_of(session_id: str, of: Iterable[Message], seq: int = 0) -> Iterator[Entry]:
    """Messages as entries of a session, from the seq after this one on; the messages are the entries' from now on."""
    counter = HeuristicTokenCounter()
    turn = 0
    for raw in of:
        seq += 1
        message, info = parse_message(raw)
        now = utc_now()
        turn += info.human
        tokens = count_message_tokens(message, counter)
        with_timestamp(message, now)
        yield Entry(
            seq,
            message,
            info.role,
            turn,
            info.human,
            info.call_ids,
            info.answered_ids,
            tokens,
            session_id,
            now,
            now,
        )
