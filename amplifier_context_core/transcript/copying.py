"""Snapshots for callers, who may change what they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

from ..messages.parsing import copy_message
from .transcript import Entry, Snapshot


class Lent(Snapshot):
    """A snapshot of which every entry that is read holds a copy of its message."""

    __slots__ = ()

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot._entries, snapshot._held, snapshot.revision, snapshot.gap)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        found = super().__getitem__(index)
        return lent(found) if isinstance(found, Entry) else [lent(entry) for entry in found]

    def __iter__(self) -> Iterator[Entry]:
        return (lent(entry) for entry in super().__iter__())

    def find(self, seq: int) -> Entry | None:
        found = super().find(seq)
        return None if found is None else lent(found)


def lent(entry: Entry) -> Entry:
    """An entry with a copy of its message."""
    return entry._replace(message=copy_message(entry.message))
