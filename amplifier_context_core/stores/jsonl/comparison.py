"""Compare a text file with the history that it should show.

The file is one of three:

- The same, byte for byte. Nothing is done.
- Behind: a beginning of what it must be, torn, the same messages written otherwise, or a former state of this session.
  It is written again.
- Another program's: it holds messages that this session never had, or lacks some. They are taken over, and the file is
  written again. If it may lack messages that were never written, or has lines that are none, nothing is removed.

A message that was erased since is recognised by its ids and its timestamp, and taken for what is left of it.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import BinaryIO, Literal, TypeVar

from ...errors import InvalidMessage, StoreError
from ...messages.parsing import Message, MessageInfo, ParsedMessage, parse_message
from ...messages.timestamps import timestamp_of
from ...transcript.alignment import align
from ...transcript.entry import Entry
from ...transcript.redaction import is_redacted
from ..codec import decode_entry, loads, message_json
from ..protocol import UNCOUNTED
from ..sqlite import queries
from ..sqlite.errors import damage_error
from ..sqlite.rows import SessionRow, is_intact_row
from .files import open_file

T = TypeVar("T")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\0"
_Echo = tuple[str, tuple[str, ...], tuple[str, ...], str]  # role, ids of calls and of answers, timestamp
_BATCH = 1_000  # rows that are compared or written at once


@dataclass(frozen=True, slots=True)
class Theirs:
    """What another program made of a history."""

    entries: Sequence[Entry]  # of the history
    order: Sequence[Entry | ParsedMessage]  # what it becomes: entries that stay, and new messages
    unreadable: Sequence[bytes]  # lines of the file that are no messages


def compare(
    db: sqlite3.Connection, session_id: str, path: str, *, is_complete: bool
) -> Literal["same", "behind"] | Theirs:
    """Compare a file with the history, in a transaction. Unless it `is_complete`, messages that it lacks may never have
    been written to it, and are kept.
    """
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        if kind := _compare_bytes(db, queries.find_session(db, session_id), file):
            return kind
        file.seek(0)
        messages, unreadable = parsed(file.read())
    history, archive = queries.read(db, session_id), queries.archived(db, session_id)
    if history.damaged:
        raise damage_error("messages are damaged")
    entries = history.entries
    messages = _as_erased(messages, [*entries, *archive.entries])
    current = {message_json(entry.message) for entry in entries}
    former = {message_json(entry.message) for entry in archive.entries} - current
    lines = {message_json(message) for message, _ in messages}
    is_former = lines <= current | former and not lines.isdisjoint(former)
    if is_former or [message for message, _ in messages] == [entry.message for entry in entries[: len(messages)]]:
        return "behind"
    only_added = unreadable or not is_complete
    if only_added:
        messages = [one for one in messages if message_json(one[0]) not in former]
    order = align(entries, messages)
    if only_added:
        order = _with_all(entries, order)
    return Theirs(entries, order, unreadable) if order != entries else "behind"


def _compare_bytes(
    db: sqlite3.Connection, session: SessionRow | None, file: BinaryIO
) -> Literal["same", "behind"] | None:
    """Compare with what this module would write; None if the file has to be parsed."""
    for lines in lines_of(db, session) if session else ():
        data = file.read(len(lines))
        if data != lines:
            return "behind" if lines.startswith(data) else None
    return None if file.read(1) else "same"


def lines_of(db: sqlite3.Connection, session: SessionRow) -> Iterator[bytes]:
    """Yield the lines that show a history, many at once. A damaged row raises."""
    lines: list[bytes] = []
    for row in queries.iterate_rows(db, session.key_of(0), session.key_of(session.length)):
        if not is_intact_row(row):
            raise damage_error("a message is damaged")
        lines += (row[6], b"\n")
        if len(lines) > 2 * _BATCH:
            yield b"".join(lines)
            lines = []
    yield b"".join(lines)


def parsed(data: bytes) -> tuple[list[ParsedMessage], list[bytes]]:
    """Return the messages of a text file, one a line, and the lines that are none."""
    return parsed_lines(data, lambda content: parse_message(loads(content)))


def parsed_lines(data: bytes, parse: Callable[[bytes], T]) -> tuple[list[T], list[bytes]]:
    """Return what a function makes of the lines of a text file, and the lines that are no messages."""
    found: list[T] = []
    unreadable: list[bytes] = []
    for line in data.removeprefix(_BYTE_ORDER_MARK).split(b"\n"):
        if content := line.strip(_BLANK):
            try:
                found.append(parse(content))
            except (StoreError, ValueError, InvalidMessage, RecursionError):
                unreadable.append(line)
    return found, unreadable


def _with_all(entries: Sequence[Entry], order: Sequence[Entry | ParsedMessage]) -> list[Entry | ParsedMessage]:
    """Return an order of `align` with all entries. Messages that come after those that it has go to the end."""
    everything: list[Entry | ParsedMessage] = []
    new: list[ParsedMessage] = []
    rest = iter(entries)
    for one in order:
        if isinstance(one, Entry):
            everything += (*takewhile(lambda entry, one=one: entry is not one, rest), *new, one)
            new = []
        else:
            new.append(one)
    return [*everything, *rest, *new]


def adopted(session_id: str, order: Sequence[Entry | ParsedMessage], last_seq: int) -> list[Entry]:
    """Return messages of another program, between known entries, as entries: uncounted, with new turns, and seqs after
    `last_seq`.
    """
    entries: list[Entry] = []
    turn = 0
    for one in order:
        if isinstance(one, Entry):
            turn = max(turn, one.turn)
            entries.append(one)
            continue
        message, info = one
        turn, last_seq = turn + info.human, last_seq + 1
        entries.append(decode_entry(session_id, last_seq, turn, UNCOUNTED, message_json(message)))
    return entries


def _as_erased(messages: list[ParsedMessage], known: Sequence[Entry]) -> list[ParsedMessage]:
    """Return messages, and in place of those that were erased what is left of them. See `history.redactions`."""
    count = Counter(_echo(entry.message, entry) for entry in known)
    erased = {
        echo: parse_message(entry.message)
        for entry in known
        if is_redacted(entry.message) and any((echo := _echo(entry.message, entry))[1:]) and count[echo] == 1
    }
    return [erased.get(_echo(*one), one) for one in messages]


def _echo(message: Message, info: Entry | MessageInfo) -> _Echo:
    """Return what a message and a copy of it share, whatever was erased of one of them."""
    return info.role, info.call_ids, info.answered_ids, timestamp_of(message) or ""
