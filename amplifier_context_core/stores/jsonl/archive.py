"""The archive beside the main file: what once belonged to the history, and a record of each edit.

Each line is a JSON object that begins with the checksum of the rest of the line. The entries that an edit takes out are
appended first, its record last: entries without a record after them belong to an edit that never was. A damaged line
counts as a record, for it may have been one. The record also holds the highest seq ever given, for those that nothing
else remembers.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import orjson

from ...errors import StoreError
from ...transcript.transcript import Entry
from ..codec import decode_entry, encode_extra, loads, message_json
from .file_ops import FileOps, chunks, open_file, open_if_there, read_at, reading, size_of, write_at
from .index import IndexRecord

_TAIL = 1024  # bytes that surely hold a record
_SEAL = re.compile(rb'\{"crc32":(\d{1,10}),')
_SEQ = re.compile(rb'"(?:last_)?seq":(\d{1,15})\b')  # what a damaged line may have held is not given again
_UNSEALED = (b'{"seq":', b'{"edited":')  # how lines began before they held checksums


def record_of(keep: int, last_seq: int, count: int) -> bytes:
    """The record of an edit: kept up to where, highest seq given so far, entries taken out."""
    return _sealed(orjson.dumps({"edited": _now(), "keep": keep, "last_seq": last_seq, "archived": count}))


def archived_line(row: IndexRecord, content: bytes) -> bytes:
    """A message of the history as the archive keeps it, its JSON as it stood."""
    head = {"seq": row.seq, "turn": row.turn, "tokens": row.tokens, "extra": row.extra, "replaced": _now()}
    return _sealed(message_json(head)[:-1] + b',"message":' + content.replace(b"\n", b" ") + b"}")


def rewritten_line(line: bytes, entry: Entry, session_id: str) -> bytes:
    """A line of the archive with another entry in it."""
    extra = encode_extra(entry, session_id) or None
    head = {"seq": entry.seq, "turn": entry.turn, "tokens": entry.tokens, "extra": extra}
    replaced = (_parsed(line) or {}).get("replaced")
    return _sealed(message_json({**head, "replaced": replaced, "message": entry.message}))


class ArchiveLine(NamedTuple):
    """A sound line of an archive, with its entry; None: it is a record."""

    data: bytes
    entry: Entry | None


@dataclass(slots=True)
class ArchiveContents:
    """What an archive holds.

    Attributes:
        lines: the sound lines, up to `end`.
        damaged: the lines that are not as they were written, each with its offset.
        end: where the last record ends.
        last_seq: the highest seq ever given, as far as the archive knows.
        size: bytes of the file. Those after `end` are of an edit that never was.
    """

    lines: list[ArchiveLine] = field(default_factory=list[ArchiveLine])
    damaged: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    end: int = 0
    last_seq: int = 0
    size: int = 0

    @property
    def entries(self) -> list[Entry]:
        """The entries, oldest edit first."""
        return [line.entry for line in self.lines if line.entry is not None]


class Archive:
    """The archive of one session."""

    def __init__(self, session_id: str, path: str, disk: FileOps) -> None:
        self._session_id = session_id
        self._path = path
        self._disk = disk

    def committed(self) -> ArchiveContents:
        """Where the last record ends, and the highest seq ever given; all of it only if the last line is no record."""
        with reading(self._path) as descriptor:
            size = size_of(descriptor)
            tail = b"" if descriptor is None else read_at(descriptor, max(0, size - _TAIL), _TAIL)
        last_seq = _last_seq(_parsed(tail[tail.rfind(b"\n", 0, -1) + 1 :]))
        return self.read() if last_seq is None else ArchiveContents(end=size, last_seq=last_seq, size=size)

    def add(self, lines: Iterable[bytes]) -> int:
        """Append entries that are going to be taken out, on disk; they count once a record follows. Gives the end."""
        start = self.committed().end
        descriptor = open_file(self._path, os.O_WRONLY | os.O_CREAT)
        try:
            end = start
            for line in lines:
                write_at(descriptor, end, line)
                end += len(line)
            os.ftruncate(descriptor, end)
            self._disk.sync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(descriptor, start)
            raise
        finally:
            os.close(descriptor)
        return end

    def cut(self) -> None:
        """Take back what `add` wrote for an edit that could not be begun."""
        end = self.committed().end
        descriptor = open_if_there(self._path, os.O_WRONLY)
        if descriptor is not None:
            try:
                os.ftruncate(descriptor, end)
            finally:
                os.close(descriptor)

    def read(self) -> ArchiveContents:
        """Read all of it, and check every line."""
        found = ArchiveContents()
        waiting: list[ArchiveLine] = []  # no record follows them yet
        with reading(self._path) as descriptor:
            found.size = size_of(descriptor)
            for begin, data in () if descriptor is None else _lines(descriptor, found.size):
                line = self._line(data)
                if not data.endswith(b"\n"):
                    line = self._line(data[:-1] + b"\n") or self._line(data + b"\n")
                    if line is None or line.entry is not None:
                        break  # of an edit that never was; it is not all there
                    found.damaged.append((begin + len(data), b""))  # a record of which only the end was hit
                if line is not None:
                    waiting.append(line)
                else:
                    found.damaged.append((begin, data))
                if line is None or line.entry is None:
                    found.lines += waiting
                    found.end = begin + len(data)
                    waiting = []
        seqs = (line.entry.seq if line.entry else _last_seq(_parsed(line.data)) or 0 for line in found.lines)
        lost = (int(seq) for _, data in found.damaged for seq in _SEQ.findall(data))
        found.last_seq = max((*seqs, *lost), default=0)
        return found

    def _line(self, data: bytes) -> ArchiveLine | None:
        """A line with what it holds; None if it is damaged."""
        held = _parsed(data)
        if held is None:
            return None
        if _last_seq(held) is not None:
            return ArchiveLine(data, None)
        seq, turn, tokens, extra = (held.get(name) for name in ("seq", "turn", "tokens", "extra"))
        if "message" not in held or not all(isinstance(one, int) for one in (seq, turn, tokens)):
            return None
        known = cast("dict[str, Any]", extra) if isinstance(extra, dict) else None
        try:
            message = message_json(held["message"])
            return ArchiveLine(
                data,
                decode_entry(
                    self._session_id, cast("int", seq), cast("int", turn), cast("int", tokens), message, known
                ),
            )
        except StoreError:
            return None


def _lines(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The lines, each with where it begins; the last one may have no end."""
    left = b""
    begin = 0
    for data in chunks(descriptor, 0, size):
        lines = (left + data).split(b"\n")
        left = lines.pop()
        for line in lines:
            yield begin, line + b"\n"
            begin += len(line) + 1
    if left:
        yield begin, left


def _sealed(data: bytes) -> bytes:
    """A JSON object as a line that begins with the checksum of the rest."""
    return b'{"crc32":%d,%s\n' % (zlib.crc32(data[1:]), data[1:])


def _parsed(line: bytes) -> dict[str, Any] | None:
    """What a line says; None if it is not as it was written."""
    seal = _SEAL.match(line)
    if seal is not None:
        if zlib.crc32(line[seal.end() : -1]) != int(seal[1]):
            return None
    elif not line.startswith(_UNSEALED):
        return None
    try:
        held = loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", held) if isinstance(held, dict) and line.endswith(b"}\n") else None


def _last_seq(held: dict[str, Any] | None) -> int | None:
    """The highest seq ever given, as a record says it; None: this is no record."""
    found = None if held is None or "message" in held else held.get("last_seq")
    return found if isinstance(found, int) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
