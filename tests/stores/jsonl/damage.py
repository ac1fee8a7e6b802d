"""Damage of bytes of a file, and which seqs are left."""

from __future__ import annotations

from pathlib import Path

from amplifier_context_core.stores.jsonl.store import JsonlStore
from tests.stores.jsonl.files import Files


def seqs(last: int, *without: int) -> list[int]:
    return [seq for seq in range(1, last + 1) if seq not in without]


def hit(path: Path, offset: int, data: bytes) -> None:
    """Overwrite some bytes of a file."""
    whole = bytearray(path.read_bytes())
    whole[offset : offset + len(data)] = data
    path.write_bytes(whole)


def line_start(files: Files, number: int) -> int:
    """Return the offset of a line, counted from 0."""
    return sum(len(line) for line in files.lines[:number])


async def assert_looks(root: Path, expected: list[int]) -> None:
    """A reader without the lock sees what is readable, and changes nothing."""
    before = {path: path.read_bytes() for path in sorted((root / "s").iterdir())}
    store = JsonlStore(root)
    assert [one.seq for one in await store.read("s")] == expected
    await store.close()
    assert {path: path.read_bytes() for path in sorted((root / "s").iterdir())} == before
