"""The checkpoint file: a header line that says which entries the checkpoint covers, then the caller's opaque bytes."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import cast

import orjson

from .file_ops import open_for_reading, read_at, size_of
from .index import IndexRecord

_VERSION = 1


class CheckpointDamaged(Exception):
    """The bytes of the checkpoint file are not those that were saved."""


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint as it was saved.

    Attributes:
        covered: Number of entries that the checkpoint covers.
        last_seq: Seq of the last covered entry; 0 without one.
        main_end: Offset in the main file after the last covered entry.
        record_crc: Checksum of the last covered entry.
        data: The caller's bytes.
    """

    covered: int
    last_seq: int
    main_end: int
    record_crc: int
    data: bytes

    def matches(self, record: IndexRecord | None) -> bool:
        """True if the record before index `covered` is the one that the checkpoint was saved with."""
        if self.covered == 0:
            return True
        return record is not None and (record.seq, record.end, record.crc) == (
            self.last_seq,
            self.main_end,
            self.record_crc,
        )


def checkpoint_at(record: IndexRecord | None, data: bytes) -> SavedCheckpoint:
    """Return a checkpoint that covers all entries up to a record."""
    return (
        SavedCheckpoint(record.entry_index + 1, record.seq, record.end, record.crc, data)
        if record
        else SavedCheckpoint(0, 0, 0, 0, data)
    )


def encode_checkpoint(checkpoint: SavedCheckpoint) -> list[bytes]:
    """Return the bytes of the checkpoint file."""
    figures = [_VERSION, checkpoint.covered, checkpoint.last_seq, checkpoint.main_end, checkpoint.record_crc]
    crc = zlib.crc32(checkpoint.data, zlib.crc32(orjson.dumps(figures)))
    return [orjson.dumps({"amplifier_context_checkpoint": figures, "crc32": crc}) + b"\n", checkpoint.data]


def load_checkpoint(path: str) -> SavedCheckpoint | None:
    """Return the checkpoint, or None without one.

    Raises:
        CheckpointDamaged: The bytes changed or are incomplete.
    """
    with open_for_reading(path) as descriptor:
        if descriptor is None:
            return None
        header, _, data = read_at(descriptor, 0, size_of(descriptor)).partition(b"\n")
    return _decode(header, data)


def covered_count(path: str) -> int:
    """Return how many entries the checkpoint covers, reading only the header; 0 if it is missing or damaged."""
    with open_for_reading(path) as descriptor:
        header = b"" if descriptor is None else read_at(descriptor, 0, 512).partition(b"\n")[0]
    figures = _figures(header)[0]
    return figures[1] if figures else 0


def _decode(header: bytes, data: bytes) -> SavedCheckpoint:
    figures, crc = _figures(header)
    if not figures or zlib.crc32(data, zlib.crc32(orjson.dumps(figures))) != crc:
        raise CheckpointDamaged
    _, covered, upto, end, line = figures
    return SavedCheckpoint(covered, upto, end, line, data)


def _figures(line: bytes) -> tuple[list[int], object]:
    try:
        header = orjson.loads(line)
        figures, crc = header["amplifier_context_checkpoint"], header["crc32"]
    except (ValueError, TypeError, KeyError):
        return [], 0
    is_valid = isinstance(figures, list) and all(type(one) is int for one in cast("list[object]", figures))
    if not is_valid or len(cast("list[int]", figures)) != 5 or figures[0] != _VERSION:
        return [], 0
    return cast("list[int]", figures), crc
