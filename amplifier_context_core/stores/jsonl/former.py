"""Read a session as commit 37ba2a6 kept it: in text files, an index, an archive, a checkpoint and a redo journal.

A transaction of the journal that was committed and not applied is applied to the bytes in memory. Once the database
holds what the files say, they are moved into a folder of their own. The first message that is erased erases them too.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson

from ...errors import StoreError
from ...messages.parsing import ParsedMessage, parse_message
from ...transcript.entry import Entry
from ..codec import decode_entry, loads, message_json
from ..sqlite.schema import sync_folder
from .comparison import adopted, parsed_lines
from .files import exists, open_file, remove
from .paths import FORMER_PARTS, Part, SessionFiles

_JOURNAL = b"amplifier-context-pending 1"
_ANCHOR_BYTES = 4096  # before the offset of an edit; their checksum ties the journal to the main file
_CHECKSUM = re.compile(rb'\{"crc32":(\d{1,10}),')


class _Record(NamedTuple):
    entry_index: int
    seq: int
    offset: int
    length: int
    crc: int
    turn: int
    tokens: int
    extra: dict[str, Any] | None = None
    stated_max_seq: int | None = None


class FormerSession(NamedTuple):
    entries: list[Entry]
    archived: list[Entry]  # what edits removed
    last_seq: int
    checkpoint: tuple[int, bytes] | None  # what the checkpoint covers, and its bytes; None without an intact one
    is_outdated: bool  # the journal changes the text file that is on the disk
    lost: int  # messages that the index knows and the text file does not hold
    unreadable: list[bytes]  # lines of the text file that are no messages


def read_former(files: SessionFiles) -> FormerSession | None:
    """Return the session that a text file and files beside it hold; None if there is no text file."""
    all_parts: tuple[Part, ...] = ("main", *FORMER_PARTS)
    parts: dict[Part, bytes] = {part: data for part in all_parts if (data := _content(files.path(part))) is not None}
    on_disk = parts.get("main")
    _apply_journal(parts, files)
    if "main" not in parts:
        return None
    records = [record for line in parts.get("index", b"").split(b"\n") if (record := _decode_record(line))]
    archived, last_seq = _read_archive(parts.get("archive", b""), files.session_id)
    last_seq = max(last_seq, *(max(one.seq, one.stated_max_seq or 0) for one in records), 0)
    order, unreadable, lost = _read_main(parts["main"], records, files.session_id)
    entries = adopted(files.session_id, order, last_seq)
    return FormerSession(
        entries,
        archived,
        max(last_seq, *(entry.seq for entry in entries), 0),
        _checkpoint(parts.get("checkpoint", b""), entries, records),
        on_disk != parts["main"],
        lost,
        unreadable,
    )


def former_files(files: SessionFiles) -> list[str]:
    """Return the files of the former version that lie beside the text file, the journal last."""
    paths = [files.path(part) for part in FORMER_PARTS]
    return [path for one in paths for path in (f"{one}.new", one) if exists(path)]


def put_away(files: SessionFiles) -> None:
    """Move the files of the former version into their folder. If the journal replaces them, remove them."""
    if (_content(files.path("pending")) or b"").startswith(_JOURNAL):
        for path in former_files(files):
            remove(path)
    else:
        with suppress(FileExistsError):
            os.mkdir(files.path("former"), 0o700)
        for path in former_files(files):
            os.replace(path, os.path.join(files.path("former"), os.path.basename(path)))
        sync_folder(Path(files.path("former")))
    sync_folder(Path(files.folder))


def remove_former(files: SessionFiles) -> None:
    for path in former_files(files):
        remove(path)
    with suppress(FileNotFoundError):
        shutil.rmtree(files.path("former"))


def _content(path: str) -> bytes | None:
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_main(
    data: bytes, records: Sequence[_Record], session_id: str
) -> tuple[list[Entry | ParsedMessage], list[bytes], int]:
    """Return the messages of the text file, the lines that are none, and how many of the index are missing."""
    by_crc: dict[int, deque[_Record]] = {}
    for one in records:
        by_crc.setdefault(one.crc, deque()).append(one)

    def entry_or_message(content: bytes) -> Entry | ParsedMessage:
        if known := by_crc.get(zlib.crc32(content)):
            one = known.popleft()
            return decode_entry(session_id, one.seq, one.turn, one.tokens, content, one.extra)
        return parse_message(loads(content))

    order, unreadable = parsed_lines(data, entry_or_message)
    return order, unreadable, max(sum(map(len, by_crc.values())), len(unreadable))


def _decode_record(line: bytes) -> _Record | None:
    """Return the record of a line; None if any part of it is invalid."""
    try:
        values: Any = loads(line.strip())
        record = _Record(*values[:7], *values[8:])
        covered = b"%d,%d,%d,%d,%d,%d,%d" % record[:7]
        if len(values) > 8:
            covered += b"," + (message_json(record.extra) if record.extra else b"null")
        if record.stated_max_seq is not None:
            covered += b",%d" % record.stated_max_seq
        is_intact = values[7] == 10_000 + zlib.crc32(covered) % 90_000
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return record if is_intact else None


def _checkpoint(data: bytes, entries: Sequence[Entry], records: Sequence[_Record]) -> tuple[int, bytes] | None:
    """Return a checkpoint if it is intact and its last covered entry is the one that it was saved with."""
    head, _, content = data.partition(b"\n")
    try:
        header = orjson.loads(head)
        figures, crc = header["amplifier_context_checkpoint"], header["crc32"]
        _, covered, *last = cast("list[int]", figures)
        is_intact = zlib.crc32(content, zlib.crc32(orjson.dumps(figures))) == crc
        if covered:
            seq, _, last_crc = last
            is_known = (seq, last_crc) in {(one.seq, one.crc) for one in records}
            is_intact = is_intact and is_known and entries[covered - 1].seq == seq
    except (ValueError, TypeError, LookupError):
        return None
    return (covered, content) if is_intact else None


# -- the archive -------------------------------------------------------------------------------------------------------


def _read_archive(data: bytes, session_id: str) -> tuple[list[Entry], int]:
    """Return the entries of committed edits, and the highest seq that the archive knows."""
    entries: list[Entry] = []
    staged: list[Entry] = []  # no edit record follows them yet
    last_seq = 0
    for line in data.split(b"\n"):
        fields = _archive_fields(line)
        if "message" in fields:
            with suppress(StoreError, KeyError):
                seq, turn, tokens, message = (fields[name] for name in ("seq", "turn", "tokens", "message"))
                staged.append(decode_entry(session_id, seq, turn, tokens, message_json(message), fields["extra"]))
        elif line:  # an edit record, or a damaged line, which may have been one
            entries += staged
            staged = []
            last_seq = max(last_seq, fields.get("last_seq", 0))
    return entries, max(last_seq, *(entry.seq for entry in entries), 0)


def _archive_fields(line: bytes) -> dict[str, Any]:
    """Return what a line of the archive says; nothing if it is damaged."""
    checksum = _CHECKSUM.match(line)
    if checksum is not None and zlib.crc32(line[checksum.end() :]) == int(checksum[1]):
        with suppress(ValueError, RecursionError):
            return cast("dict[str, Any]", loads(line))
    return {}


# -- the journal -------------------------------------------------------------------------------------------------------


def _apply_journal(parts: dict[Part, bytes], files: SessionFiles) -> None:
    """Apply a transaction that was committed, if it belongs to this text file."""
    head, _, body = parts.pop("pending", b"").partition(b"\n")
    figures = head.removeprefix(_JOURNAL).split()
    if not head.startswith(_JOURNAL) or len(figures) != 2 or not figures[0].isdigit():
        return
    body = body[: int(figures[0])]
    if len(body) != int(figures[0]) or b"%08x" % zlib.crc32(body) != figures[1]:
        return
    header, _, data = body.partition(b"\n")
    fields = cast("dict[str, Any]", orjson.loads(header))
    steps: list[tuple[str, Part, int, bytes]] = []
    for kind, part, offset, length in fields["steps"]:
        steps.append((kind, part, offset, data[:length]))
        data = data[length:]
    main = parts.get("main", b"")
    start, new = next((step[2:] for step in steps if step[:2] == ("put", "main")), (0, b""))
    if zlib.crc32(main[max(0, start - _ANCHOR_BYTES) : start]) != fields["anchor"]:
        return
    if fields["grows"] and len(main) > start + len(new) and main.startswith(new, start):
        return  # it was applied, and the history goes on after it
    for kind, part, offset, content in steps:
        before = parts.get(part, b"")
        if kind == "put":
            parts[part] = before[:offset] + content
        elif kind == "patch":
            parts[part] = before[:offset] + content + before[offset + len(content) :]
        elif kind == "drop":
            parts.pop(part, None)
        elif (new := _content(f"{files.path(part)}.new")) is not None:
            parts[part] = new
