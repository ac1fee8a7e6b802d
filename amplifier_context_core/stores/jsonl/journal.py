"""Edits that touch several files: written down whole first, then carried out, however often it takes.

An edit is done once it stands in the pending file: what a crash leaves half carried out is carried out when the session
is opened next, and doing it twice does no harm. A pending file that is torn was never acknowledged, and is ignored. So
replacing the end of a history costs that end, not the file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

import orjson

from .file_ops import FileOps, open_file, open_if_there, put_in_place, read_at, reading, remove, size_of, write_at
from .paths import Part, SessionFiles

_MAGIC = b"amplifier-context-pending 1"
_ROOM = 1 << 18  # bytes the file may keep between two edits
_ANCHOR = 4096  # bytes before the place of an edit, by which the file it was meant for is known again


@dataclass(frozen=True, slots=True)
class Operation:
    """One part of an edit.

    Attributes:
        do: ``put`` bytes at an offset, the file's end after them; ``patch`` bytes in its middle; ``move`` the file
            written beside it into its place; ``drop`` it.
        part: which file.
        offset: where bytes go.
        data: the bytes.
    """

    do: Literal["put", "patch", "move", "drop"]
    part: Part
    offset: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is to be done, in order.

    Attributes:
        steps: all of it.
        grows: nothing is taken away: once its bytes stand in the main file, it is done, whatever came after them.
    """

    steps: Sequence[Operation]
    grows: bool = False


class RedoJournal:
    """The pending file of one session; without meaning, or not there, unless an edit is under way."""

    def __init__(self, files: SessionFiles, disk: FileOps) -> None:
        self._files = files
        self._disk = disk
        self._path = files.path("pending")
        self._is_named = False  # the folder was synced since the file was made
        self._is_refused = False  # the file may hold an edit that its caller was refused

    def begin(self, edit: Transaction) -> None:
        """Write an edit down. When this returns it is going to be carried out; when it raises, it never is."""
        body = self._body(edit)
        try:
            descriptor = open_file(self._path, os.O_WRONLY | os.O_CREAT)
            try:
                write_at(descriptor, 0, b"%s %d %08x\n" % (_MAGIC, len(body), zlib.crc32(body)) + body)
                self._disk.sync(descriptor)
            finally:
                os.close(descriptor)
            if not self._is_named:
                self._disk.sync_folder(self._files.folder)
                self._is_named = True
        except BaseException:
            self.refuse()
            with suppress(OSError):  # the next call does it before anything else
                self.strike_out()
            raise

    def refuse(self) -> None:
        """Note that the edit in the file was refused to its caller. `strike_out` must come before any other change."""
        self._is_refused = True

    def strike_out(self) -> None:
        """Remove an edit that was refused from the file, if there is one; even a power cut must not bring it back."""
        if self._is_refused:
            self.end(surely=True)
            self._is_refused = False

    def end(self, *, surely: bool) -> None:
        """Note that it is carried out; `surely`: even a power cut must not bring it back."""
        descriptor = open_file(self._path, os.O_WRONLY | os.O_CREAT)
        try:
            if surely or size_of(descriptor) > _ROOM:
                os.ftruncate(descriptor, 0)
            else:
                write_at(descriptor, 0, bytes(len(_MAGIC)))  # the next one finds its room: its fsync costs less
            if surely:
                self._disk.sync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file, once nothing is under way."""
        remove(self._path)
        self._is_refused = self._is_named = False

    def found(self) -> Transaction | None:
        """The edit that is under way, if it was written down whole and this is the file it was meant for."""
        with reading(self._path) as descriptor:
            data = b"" if descriptor is None else read_at(descriptor, 0, size_of(descriptor))
        head, _, body = data.partition(b"\n")
        parts = head.rsplit(b" ", 2)
        if len(parts) != 3 or parts[0] != _MAGIC or not parts[1].isdigit():
            return None
        body = body[: int(parts[1])]
        if len(body) != int(parts[1]) or b"%08x" % zlib.crc32(body) != parts[2]:
            return None
        told, _, data = body.partition(b"\n")
        edit = cast("dict[str, Any]", orjson.loads(told))
        steps: list[Operation] = []
        for do, part, offset, length in edit["steps"]:
            steps.append(Operation(do, part, offset, data[:length]))
            data = data[length:]
        made = Transaction(steps, edit["grows"])
        return made if edit["anchor"] == self._anchor(made) else None

    def carry_out(self, edit: Transaction) -> None:
        """Do it, or the rest of it, or all of it again."""
        if edit.grows and self._outgrown(edit):
            return
        for step in edit.steps:
            path = self._files.path(step.part)
            if step.do == "put":
                self._disk.put(path, step.offset, step.data)
            elif step.do == "patch":
                self._disk.put(path, step.offset, step.data, cut=False)
            elif step.do == "move":
                put_in_place(path)
            else:
                remove(path)
        if any(step.do in ("move", "drop") for step in edit.steps):
            self._disk.sync_folder(self._files.folder)

    def _body(self, edit: Transaction) -> bytes:
        steps = [[step.do, step.part, step.offset, len(step.data)] for step in edit.steps]
        told = orjson.dumps({"steps": steps, "grows": edit.grows, "anchor": self._anchor(edit)})
        return b"\n".join([told, b"".join(step.data for step in edit.steps)])

    def _anchor(self, edit: Transaction) -> int:
        """The checksum of what stands before the edit's place in the main file, which no edit touches."""
        place = next((step.offset for step in edit.steps if step.do == "put" and step.part == "main"), 0)
        with reading(self._files.main) as descriptor:
            start = max(0, place - _ANCHOR)
            return zlib.crc32(b"" if descriptor is None else read_at(descriptor, start, place - start))

    def _outgrown(self, edit: Transaction) -> bool:
        """Has the history gone on after it? Then it was carried out, and was only not struck out on disk."""
        put = next(step for step in edit.steps if step.part == "main")
        descriptor = open_if_there(self._files.main, os.O_RDONLY)
        if descriptor is None:
            return False
        try:
            end = put.offset + len(put.data)
            return size_of(descriptor) > end and read_at(descriptor, put.offset, len(put.data)) == put.data
        finally:
            os.close(descriptor)
