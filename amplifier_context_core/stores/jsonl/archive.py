"""The archive beside the main file: entries that edits removed from the history, and one edit record per edit.

Each line is a JSON object that begins with the checksum of the rest of the line. An edit appends the entries that it
removes, then its edit record. Entries without an edit record after them belong to an edit that was never committed. A
damaged line counts as an edit record, because it may have been one. The edit record also holds the highest seq ever
assigned; no other file keeps it once the entry is gone.
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
from ...transcript.entry import Entry
from ..codec import decode_entry, encode_extra, loads, message_json
from .file_ops import FileOps, chunks, open_file, open_for_reading, open_if_exists, read_at, size_of, write_at
from .index import IndexRecord

_TAIL_BYTES = 1024  # bytes; at least one edit record fits
_CHECKSUM = re.compile(rb'\{"crc32":(\d{1,10}),')
_SEQ = re.compile(rb'"(?:last_)?seq":(\d{1,15})\b')  # seqs in a damaged line are never assigned again
_WITHOUT_CHECKSUM = (b'{"seq":', b'{"edited":')  # how lines began before they had checksums


def edit_record(keep: int, last_seq: int, count: int) -> bytes:
    """Return the record of an edit.

    Args:
        keep: Entries that the edit kept.
        last_seq: The highest seq ever assigned.
        count: Entries that the edit moved to the archive.
    """
    return _with_checksum(orjson.dumps({"edited": _now(), "keep": keep, "last_seq": last_seq, "archived": count}))


def archived_line(record: IndexRecord, content: bytes) -> bytes:
    """Return the archive line of a message, with its JSON unchanged."""
    fields = {
        "seq": record.seq,
        "turn": record.turn,
        "tokens": record.tokens,
        "extra": record.extra,
        "replaced": _now(),
    }
    return _with_checksum(message_json(fields)[:-1] + b',"message":' + content.replace(b"\n", b" ") + b"}")


def rewritten_line(line: bytes, entry: Entry, session_id: str) -> bytes:
    """Return an archive line with its entry replaced."""
    extra = encode_extra(entry, session_id) or None
    fields = {"seq": entry.seq, "turn": entry.turn, "tokens": entry.tokens, "extra": extra}
    replaced = (_parsed(line) or {}).get("replaced")
    return _with_checksum(message_json({**fields, "replaced": replaced, "message": entry.message}))


class ArchiveLine(NamedTuple):
    """An intact line of an archive and its entry. The entry is None for an edit record."""

    data: bytes
    entry: Entry | None


@dataclass(slots=True)
class ArchiveContents:
    """What an archive holds.

    Attributes:
        lines: The intact lines, up to `end`.
        damaged: The damaged lines, each with its offset.
        end: Offset after the last edit record.
        last_seq: The highest seq ever assigned, as far as the archive knows.
        size: Bytes of the file. Bytes after `end` belong to an edit that was never committed.
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

    def __init__(self, session_id: str, path: str, file_ops: FileOps) -> None:
        self._session_id = session_id
        self._path = path
        self._file_ops = file_ops

    def committed(self) -> ArchiveContents:
        """Return the end and the highest seq. Read the whole file only if its last line is no edit record."""
        with open_for_reading(self._path) as descriptor:
            size = size_of(descriptor)
            tail = b"" if descriptor is None else read_at(descriptor, max(0, size - _TAIL_BYTES), _TAIL_BYTES)
        last_seq = _last_seq(_parsed(tail[tail.rfind(b"\n", 0, -1) + 1 :]))
        return self.read() if last_seq is None else ArchiveContents(end=size, last_seq=last_seq, size=size)

    def stage(self, lines: Iterable[bytes]) -> int:
        """Append entries and sync them; they count once an edit record follows. Return the new end."""
        start = self.committed().end
        descriptor = open_file(self._path, os.O_WRONLY | os.O_CREAT)
        try:
            end = start
            for line in lines:
                write_at(descriptor, end, line)
                end += len(line)
            os.ftruncate(descriptor, end)
            self._file_ops.sync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(descriptor, start)
            raise
        finally:
            os.close(descriptor)
        return end

    def discard_staged(self) -> None:
        """Truncate what `stage` wrote for an edit that could not be committed."""
        end = self.committed().end
        descriptor = open_if_exists(self._path, os.O_WRONLY)
        if descriptor is not None:
            try:
                os.ftruncate(descriptor, end)
            finally:
                os.close(descriptor)

    def read(self) -> ArchiveContents:
        """Read the whole archive and check every line."""
        contents = ArchiveContents()
        staged: list[ArchiveLine] = []  # no edit record follows them yet
        with open_for_reading(self._path) as descriptor:
            contents.size = size_of(descriptor)
            for offset, data in () if descriptor is None else _lines(descriptor, contents.size):
                line = self._decode(data)
                if not data.endswith(b"\n"):
                    line = self._decode(data[:-1] + b"\n") or self._decode(data + b"\n")
                    if line is None or line.entry is not None:
                        break  # incomplete line of an edit that was never committed
                    # an edit record of which only the line end is damaged
                    contents.damaged.append((offset + len(data), b""))
                if line is not None:
                    staged.append(line)
                else:
                    contents.damaged.append((offset, data))
                if line is None or line.entry is None:
                    contents.lines += staged
                    contents.end = offset + len(data)
                    staged = []
        seqs = (line.entry.seq if line.entry else _last_seq(_parsed(line.data)) or 0 for line in contents.lines)
        lost = (int(seq) for _, data in contents.damaged for seq in _SEQ.findall(data))
        contents.last_seq = max((*seqs, *lost), default=0)
        return contents

    def _decode(self, data: bytes) -> ArchiveLine | None:
        """Return a line and its entry; None if the line is damaged."""
        fields = _parsed(data)
        if fields is None:
            return None
        if _last_seq(fields) is not None:
            return ArchiveLine(data, None)
        seq, turn, tokens, extra = (fields.get(name) for name in ("seq", "turn", "tokens", "extra"))
        if "message" not in fields or not all(isinstance(one, int) for one in (seq, turn, tokens)):
            return None
        extra_fields = cast("dict[str, Any]", extra) if isinstance(extra, dict) else None
        try:
            message = message_json(fields["message"])
            return ArchiveLine(
                data,
                decode_entry(
                    self._session_id, cast("int", seq), cast("int", turn), cast("int", tokens), message, extra_fields
                ),
            )
        except StoreError:
            return None


def _lines(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their offsets. The last line may lack its line end."""
    rest = b""
    offset = 0
    for data in chunks(descriptor, 0, size):
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield offset, line + b"\n"
            offset += len(line) + 1
    if rest:
        yield offset, rest


def _with_checksum(json: bytes) -> bytes:
    """Return a JSON object as a line that begins with the checksum of the rest."""
    return b'{"crc32":%d,%s\n' % (zlib.crc32(json[1:]), json[1:])


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None if the line is damaged."""
    checksum = _CHECKSUM.match(line)
    if checksum is not None:
        if zlib.crc32(line[checksum.end() : -1]) != int(checksum[1]):
            return None
    elif not line.startswith(_WITHOUT_CHECKSUM):
        return None
    try:
        fields = loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) and line.endswith(b"}\n") else None


def _last_seq(fields: dict[str, Any] | None) -> int | None:
    """Return the highest seq ever assigned from an edit record; None for any other line."""
    last_seq = None if fields is None or "message" in fields else fields.get("last_seq")
    return last_seq if isinstance(last_seq, int) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
