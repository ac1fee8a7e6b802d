"""Compare a text file with the history that it should show.

The file is one of five:

- The same. Nothing is done.
- Behind: a beginning of what it must be, torn, or a former state of this session. It is written again.
- Longer: after all that it must hold, whole lines that are messages. Another program appended them; they are added.
- Another one, every line of which is a message. Another program wrote it; `align` finds out what it changed.
- Another one, some lines of which are no messages. What another program added goes to the end, as of a longer file.

A message that was erased since is recognised by its ids and its timestamp, and taken for what is left of it.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import BinaryIO, Literal, NamedTuple

from ...errors import InvalidMessage
from ...messages.parsing import Message, ParsedMessage, parse_message
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

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_BATCH = 1_000  # rows that are compared or written at once
_READ_BYTES = 1 << 20  # at once


@dataclass(frozen=True, slots=True)
class Base:
    """The beginning of the mirror, as another program wrote it: this module would write the same messages otherwise.

    Attributes:
        count: Messages in it.
        size: Its bytes.
        crc: Their checksum.
        written: The bytes that this module would write.
    """

    count: int = 0
    size: int = 0
    crc: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """How a file differs from what the database says.

    Attributes:
        kind: What it is; see the head of this module.
        messages: Those of another program.
        unreadable: Number of lines after the end that are no messages.
        base: What the file is from now on, if it is not written again.
        is_whole: It can be appended to.
    """

    kind: Literal["same", "behind", "longer", "other"]
    messages: Sequence[ParsedMessage] = ()
    unreadable: int = 0
    base: Base = field(default_factory=Base)
    is_whole: bool = True


class _Echo(NamedTuple):
    """What a message and a copy of it share, whatever was erased of one of them."""

    role: str
    call_ids: tuple[str, ...]
    answered_ids: tuple[str, ...]
    timestamp: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The history of a session, in a transaction.

    Attributes:
        db: Its database.
        session: Its row; None if there is no history yet.
        session_id: The session.
        base: What the file began with when it was compared last.
    """

    db: sqlite3.Connection
    session: SessionRow | None
    session_id: str
    base: Base

    def difference(self, path: str) -> Difference:
        """Compare a file with the history.

        Raises:
            OSError: It cannot be read.
            sqlite3.Error: The database is damaged, or cannot be read.
        """
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            kind, crc = self._compare_bytes(file)
            if kind == "prefix":
                return Difference("behind")
            if kind == "whole":
                rest = file.read()
                return self._longer(rest, file.tell(), zlib.crc32(rest, crc))
            file.seek(0)
            return self._compare_messages(file.read())

    def _compare_bytes(self, file: BinaryIO) -> tuple[Literal["whole", "prefix", "other"], int]:
        """Compare the bytes that this module would write. Return also the checksum of those."""
        crc, left = 0, self.base.size
        while left:
            data = file.read(min(left, _READ_BYTES))
            if not data:
                return "other", 0
            crc, left = zlib.crc32(data, crc), left - len(data)
        if crc != self.base.crc:
            return "other", 0
        for lines in lines_of(self.db, self.session, self.base.count) if self.session else ():
            data = file.read(len(lines))
            if data != lines:
                return ("prefix" if lines.startswith(data) else "other"), 0
            crc = zlib.crc32(data, crc)
        return "whole", crc

    def _longer(self, rest: bytes, size: int, crc: int) -> Difference:
        if not rest:
            return Difference("same", base=self.base)
        messages, unreadable = parsed(rest)
        if not messages:
            return Difference("behind")
        entries, archived = self.entries(), self._archived()
        known = _as_erased(messages, [*entries, *archived])
        if _is_former(known, entries, archived):
            return Difference("behind")
        is_whole = rest.endswith(b"\n") and not unreadable and known is messages
        return Difference("longer", known, len(unreadable), Base(size=size, crc=crc), is_whole)

    def _compare_messages(self, data: bytes) -> Difference:
        messages, unreadable = parsed(data)
        if unreadable or not messages:
            return self._beside_unreadable(messages, len(unreadable))
        entries = self.entries()
        base = Base(size=len(data), crc=zlib.crc32(data))
        if _begins(entries, messages):
            if len(messages) < len(entries) or self.session is None or not data.endswith(b"\n"):
                return Difference("behind")
            return Difference("same", base=Base(len(messages), base.size, base.crc, written_size(self.session)))
        archived = self._archived()
        known = _as_erased(messages, [*entries, *archived])
        if _begins(entries, known) or _is_former(known, entries, archived):
            return Difference("behind")
        return Difference("other", known, base=base, is_whole=data.endswith(b"\n") and known is messages)

    def _beside_unreadable(self, messages: list[ParsedMessage], unreadable: int) -> Difference:
        """Return what another program added to a file that is torn: it goes to the end of the history."""
        entries, archived = self.entries(), self._archived()
        order = align(entries, _as_erased(messages, [*entries, *archived])).order
        former = {message_json(entry.message) for entry in archived}
        new = [one for one in order if not isinstance(one, Entry) and message_json(one[0]) not in former]
        return Difference("longer", new, unreadable, is_whole=False) if new else Difference("behind")

    def entries(self) -> list[Entry]:
        """Return the history.

        Raises:
            sqlite3.Error: It is damaged, or cannot be read.
        """
        found = queries.read(self.db, session_id=self.session_id)
        if found is not None and found.damaged:
            raise damage_error(f"{len(found.damaged):,} messages are damaged")
        return found.entries if found is not None else []

    def _archived(self) -> list[Entry]:
        found = queries.archived(self.db, session_id=self.session_id)
        return found.entries if found is not None else []


def lines_of(db: sqlite3.Connection, session: SessionRow, start: int) -> Iterator[bytes]:
    """Yield the lines that show a history from an index on, many at once.

    Raises:
        sqlite3.Error: A row is damaged: it must not be copied.
    """
    lines: list[bytes] = []
    for row in queries.iterate_rows(db, session.key_of(start), session.key_of(session.length)):
        if not is_intact_row(row):
            raise damage_error("a message is damaged")
        lines += (row[6], b"\n")
        if len(lines) > 2 * _BATCH:
            yield b"".join(lines)
            lines = []
    yield b"".join(lines)


def written_size(session: SessionRow) -> int:
    """Return the bytes of all lines that show a history."""
    return session.size + session.length


def parsed(data: bytes) -> tuple[list[ParsedMessage], list[bytes]]:
    """Return the messages of a text file, one a line, and the lines that are none."""
    messages: list[ParsedMessage] = []
    unreadable: list[bytes] = []
    for line in data.removeprefix(BYTE_ORDER_MARK).split(b"\n"):
        content = line.strip(_BLANK)
        if not content:
            continue
        try:
            messages.append(parse_message(loads(content)))
        except (ValueError, InvalidMessage, RecursionError):
            unreadable.append(line)
    return messages, unreadable


def with_all(entries: Sequence[Entry], order: Sequence[Entry | ParsedMessage]) -> list[Entry | ParsedMessage]:
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


def adopted(
    session_id: str, order: Sequence[Entry | ParsedMessage], before: Sequence[Entry], last_seq: int
) -> list[Entry]:
    """Return entries for messages of another program, uncounted and with new seqs, between those that are known.

    Args:
        session_id: Their session.
        order: The messages and the known entries.
        before: The entries before them.
        last_seq: The highest seq ever given.
    """
    entries: list[Entry] = []
    turn = before[-1].turn if before else 0
    for one in order:
        if isinstance(one, Entry):
            turn = max(turn, one.turn)
            entries.append(one)
            continue
        message, info = one
        turn, last_seq = turn + info.human, last_seq + 1
        entries.append(decode_entry(session_id, last_seq, turn, UNCOUNTED, message_json(message)))
    return entries


def _begins(entries: Sequence[Entry], messages: Sequence[ParsedMessage]) -> bool:
    """True if the history begins with these messages."""
    return [message for message, _ in messages] == [entry.message for entry in entries[: len(messages)]]


def _is_former(messages: Sequence[ParsedMessage], entries: Sequence[Entry], archived: Sequence[Entry]) -> bool:
    """True if these messages are all ours, and an edit removed some of them: a former state of this session."""
    current = {message_json(entry.message) for entry in entries}
    former = {message_json(entry.message) for entry in archived} - current
    lines = {message_json(message) for message, _ in messages}
    return lines <= current | former and not lines.isdisjoint(former)


def _as_erased(messages: list[ParsedMessage], known: Sequence[Entry]) -> list[ParsedMessage]:
    """Return messages, and in place of those that were erased what is left of them; the same list if there are none.

    As in `history.redactions`, an erased one is recognised by its role, the ids of its calls, and its timestamp.
    """
    echoes = [_Echo(one.role, one.call_ids, one.answered_ids, timestamp_of(one.message) or "") for one in known]
    count = Counter(echoes)
    erased: dict[_Echo, Message] = {
        echo: entry.message
        for echo, entry in zip(echoes, known, strict=True)
        if is_redacted(entry.message) and any(echo[1:]) and count[echo] == 1
    }
    found: list[ParsedMessage] = []
    for message, info in messages:
        echo = _Echo(info.role, info.call_ids, info.answered_ids, timestamp_of(message) or "")
        left = erased.get(echo)
        found.append((message, info) if left is None or left == message else parse_message(left))
    return messages if found == messages else found
