"""The archive beside the main file: what once belonged to the history, and a record of each edit.

The entries an edit takes out are appended first, its record last: entries without a record after them belong to an edit
that never was. The record also holds the highest seq ever given, for those that nothing else remembers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import orjson

from ...errors import StoreError
from ...transcript import Entry
from ..rows import entry_of, extra_of, loads, message_json
from .disk import Disk, chunks, open_file, open_if_there, read_at, size_of, write_at
from .index import Row

_TAIL = 1024  # bytes that surely hold a record


def record_of(keep: int, last_seq: int, count: int) -> bytes:
    """The record of an edit: kept up to where, highest seq given so far, entries taken out."""
    return orjson.dumps({"edited": _now(), "keep": keep, "last_seq": last_seq, "archived": count}) + b"\n"


def archived_line(row: Row, content: bytes) -> bytes:
    """A message of the history as the archive keeps it, its JSON as it stood."""
    head = {"seq": row.seq, "turn": row.turn, "tokens": row.tokens, "extra": row.extra, "replaced": _now()}
    return message_json(head)[:-1] + b',"message":' + content.replace(b"\n", b" ") + b"}\n"


def _entry_line(entry: Entry, session_id: str, replaced: object) -> bytes:
    extra = extra_of(entry, session_id) or None
    head = {"seq": entry.seq, "turn": entry.turn, "tokens": entry.tokens, "extra": extra, "replaced": replaced}
    return message_json({**head, "message": entry.message}) + b"\n"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """An archive with other entries in it.

    Attributes:
        lines: all of it.
        differs: does any message say something else than before?
    """

    lines: list[bytes]
    differs: bool


class Archive:
    """The archive of one session."""

    def __init__(self, session_id: str, path: str, disk: Disk) -> None:
        self._session_id = session_id
        self._path = path
        self._disk = disk

    def committed(self) -> tuple[int, int]:
        """Up to where it is sound, and the highest seq ever given as far as it knows."""
        descriptor = open_if_there(self._path, os.O_RDONLY)
        if descriptor is None:
            return 0, 0
        try:
            size = size_of(descriptor)
            tail = read_at(descriptor, max(0, size - _TAIL), _TAIL)
            last = tail[tail.rfind(b"\n", 0, -1) + 1 :]
            record = _record(last)
            if record is not None:
                return size, record["last_seq"]
            end, last_seq = 0, 0
            for begin, line in self._lines(descriptor):
                if (record := _record(line)) is not None:
                    end, last_seq = begin + len(line), max(last_seq, record["last_seq"])
            return end, last_seq
        finally:
            os.close(descriptor)

    def add(self, lines: Iterable[bytes]) -> int:
        """Append entries that are going to be taken out, on disk; they count once a record follows. Gives the end."""
        start, _ = self.committed()
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
        end, _ = self.committed()
        descriptor = open_if_there(self._path, os.O_WRONLY)
        if descriptor is not None:
            try:
                os.ftruncate(descriptor, end)
            finally:
                os.close(descriptor)

    def entries(self) -> list[Entry]:
        """All it holds, oldest edit first; a damaged line is left out."""
        found: list[Entry] = []
        for line in self._sound_lines():
            with suppress(StoreError):
                entry = self._entry(line)
                if entry is not None:
                    found.append(entry)
        return found

    def rewritten(self, new: dict[int, Entry]) -> Rewritten | None:
        """Its lines with these entries in place of those of the same seqs; None if it holds none of them."""
        lines: list[bytes] = []
        touched = differs = False
        for line in self._sound_lines():
            try:
                entry = self._entry(line)
            except StoreError:
                lines.append(line)
                continue
            if entry is not None and entry.seq in new:
                touched = True
                differs = differs or entry.message != new[entry.seq].message
                line = _entry_line(new[entry.seq], self._session_id, _parsed(line).get("replaced"))
            lines.append(line)
        return Rewritten(lines, differs) if touched else None

    def damaged_lines(self) -> int:
        """How many lines cannot be read."""
        count = 0
        for line in self._sound_lines():
            try:
                count += self._entry(line) is None and _record(line) is None
            except StoreError:
                count += 1
        return count

    def _sound_lines(self) -> Iterator[bytes]:
        end, _ = self.committed()
        descriptor = open_if_there(self._path, os.O_RDONLY)
        if descriptor is not None:
            try:
                for begin, line in self._lines(descriptor):
                    if begin >= end:
                        return
                    yield line
            finally:
                os.close(descriptor)

    def _lines(self, descriptor: int) -> Iterator[tuple[int, bytes]]:
        left = b""
        begin = 0
        for data in chunks(descriptor, 0, size_of(descriptor)):
            lines = (left + data).split(b"\n")
            left = lines.pop()
            for line in lines:
                yield begin, line + b"\n"
                begin += len(line) + 1

    def _entry(self, line: bytes) -> Entry | None:
        """The entry a line holds; None for a record."""
        told = _parsed(line)
        if "message" not in told:
            return None
        head, turn, tokens = told.get("seq"), told.get("turn"), told.get("tokens")
        if not (isinstance(head, int) and isinstance(turn, int) and isinstance(tokens, int)):
            raise StoreError(f"a line of the archive of session {self._session_id!r} is damaged")
        extra = cast("dict[str, Any] | None", told.get("extra") if isinstance(told.get("extra"), dict) else None)
        return entry_of(self._session_id, head, turn, tokens, message_json(told["message"]), extra)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        told = loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}


def _record(line: bytes) -> dict[str, Any] | None:
    if b'"last_seq"' not in line or not line.endswith(b"}\n"):
        return None
    told = _parsed(line)
    return told if isinstance(told.get("last_seq"), int) and "message" not in told else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
