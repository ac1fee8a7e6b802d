"""Create entries as a history does, without a history, to fill a store quickly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.timestamps import utc_now, with_timestamp
from amplifier_context_core.messages.tokens import HeuristicTokenCounter, count_message_tokens
from amplifier_context_core.transcript.entry import Entry

from .sessions import Message


def entries_of(session_id: str, of: Iterable[Message], seq: int = 0) -> Iterator[Entry]:
    """Return messages as entries of a session with seqs above `seq`; the entries own the messages."""
    counter = HeuristicTokenCounter()
    turn = 0
    for raw in of:
        seq += 1
        message, info = parse_message(raw)
        now = utc_now()
        turn += info.human
        tokens = count_message_tokens(message, counter)
        with_timestamp(message, now)
        yield Entry.of(seq, message, info, turn=turn, tokens=tokens, session_id=session_id, created=now)
