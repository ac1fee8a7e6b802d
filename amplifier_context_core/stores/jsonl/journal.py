"""Redo journal for edits that touch several files: written completely first, then applied, repeatedly if necessary.

A transaction is committed once it is in the journal file. If a crash interrupts its application, the next opening of
the session applies it again; applying it twice does no harm. A torn journal was never acknowledged and is ignored. So
replacing the end of a history costs that end and not the whole file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

import orjson

from .file_ops import (
    FileOps,
    open_file,
    open_for_reading,
    open_if_exists,
    read_at,
    remove,
    rename_into_place,
    size_of,
    write_at,
)
from .paths import Part, SessionFiles

_MAGIC = b"amplifier-context-pending 1"
_MAX_KEPT_BYTES = 1 << 18  # bytes that the file may keep between two transactions
_ANCHOR_BYTES = 4096  # bytes before the offset of an edit; their checksum ties the journal to the main file


OperationKind = Literal["write", "patch", "rename", "delete"]
_KIND_ON_DISK: dict[OperationKind, str] = {"write": "put", "patch": "patch", "rename": "move", "delete": "drop"}
_KIND_FROM_DISK: dict[str, OperationKind] = {name: kind for kind, name in _KIND_ON_DISK.items()}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one file.

    Attributes:
        kind: ``write`` bytes at an offset and end the file after them; ``patch`` bytes in the middle of the file;
            ``rename`` the file that was written beside it into its place; ``delete`` it.
        part: The file.
        offset: Where the bytes go.
        data: The bytes.
    """

    kind: OperationKind
    part: Part
    offset: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Operations that are applied together.

    Attributes:
        operations: All operations, in order.
        appends_only: Nothing is removed. Once the bytes are in the main file, the transaction is applied, whatever was
            appended after them.
    """

    operations: Sequence[Operation]
    appends_only: bool = False


class RedoJournal:
    """The journal file of one session. It is empty, invalid or missing unless a transaction is being applied."""

    def __init__(self, files: SessionFiles, file_ops: FileOps) -> None:
        self._files = files
        self._file_ops = file_ops
        self._path = files.path("pending")
        self._folder_is_synced = False  # the folder was synced after the file was created
        self._holds_rejected = False  # the file may hold a transaction whose caller got an error

    def write(self, transaction: Transaction) -> None:
        """Commit a transaction. On return it will be applied; after an error it never will."""
        body = self._encode(transaction)
        try:
            descriptor = open_file(self._path, os.O_WRONLY | os.O_CREAT)
            try:
                write_at(descriptor, 0, b"%s %d %08x\n" % (_MAGIC, len(body), zlib.crc32(body)) + body)
                self._file_ops.sync(descriptor)
            finally:
                os.close(descriptor)
            if not self._folder_is_synced:
                self._file_ops.sync_folder(self._files.folder)
                self._folder_is_synced = True
        except BaseException:
            self.reject()
            with suppress(OSError):  # otherwise the next call does it first
                self.clear_rejected()
            raise

    def reject(self) -> None:
        """Mark the transaction in the file as failed. `clear_rejected` must run before any other change."""
        self._holds_rejected = True

    def clear_rejected(self) -> None:
        """Remove a transaction whose caller got an error, durably: a power failure must not bring it back."""
        if self._holds_rejected:
            self.clear(durably=True)
            self._holds_rejected = False

    def clear(self, *, durably: bool) -> None:
        """Mark the transaction as applied; with `durably`, so that a power failure cannot bring it back."""
        descriptor = open_file(self._path, os.O_WRONLY | os.O_CREAT)
        try:
            if durably or size_of(descriptor) > _MAX_KEPT_BYTES:
                os.ftruncate(descriptor, 0)
            else:
                # the next transaction reuses the allocated blocks, so that its fsync costs less
                write_at(descriptor, 0, bytes(len(_MAGIC)))
            if durably:
                self._file_ops.sync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file. No transaction may be pending."""
        remove(self._path)
        self._holds_rejected = self._folder_is_synced = False

    def load(self) -> Transaction | None:
        """Return the pending transaction if it is complete and belongs to this main file; None otherwise."""
        with open_for_reading(self._path) as descriptor:
            data = b"" if descriptor is None else read_at(descriptor, 0, size_of(descriptor))
        head, _, body = data.partition(b"\n")
        parts = head.rsplit(b" ", 2)
        if len(parts) != 3 or parts[0] != _MAGIC or not parts[1].isdigit():
            return None
        body = body[: int(parts[1])]
        if len(body) != int(parts[1]) or b"%08x" % zlib.crc32(body) != parts[2]:
            return None
        header, _, data = body.partition(b"\n")
        fields = cast("dict[str, Any]", orjson.loads(header))
        operations: list[Operation] = []
        for kind, part, offset, length in fields["steps"]:
            operations.append(Operation(_KIND_FROM_DISK[kind], part, offset, data[:length]))
            data = data[length:]
        transaction = Transaction(operations, fields["grows"])
        return transaction if fields["anchor"] == self._anchor_crc(transaction) else None

    def apply(self, transaction: Transaction) -> None:
        """Apply a transaction. A partly or completely applied one may be applied again."""
        if transaction.appends_only and self._is_superseded(transaction):
            return
        for operation in transaction.operations:
            path = self._files.path(operation.part)
            if operation.kind == "write":
                self._file_ops.overwrite(path, operation.offset, operation.data)
            elif operation.kind == "patch":
                self._file_ops.overwrite(path, operation.offset, operation.data, truncate=False)
            elif operation.kind == "rename":
                rename_into_place(path)
            else:
                remove(path)
        if any(operation.kind in ("rename", "delete") for operation in transaction.operations):
            self._file_ops.sync_folder(self._files.folder)

    def _encode(self, transaction: Transaction) -> bytes:
        operations = [
            [_KIND_ON_DISK[operation.kind], operation.part, operation.offset, len(operation.data)]
            for operation in transaction.operations
        ]
        header = orjson.dumps(
            {"steps": operations, "grows": transaction.appends_only, "anchor": self._anchor_crc(transaction)}
        )
        return b"\n".join([header, b"".join(operation.data for operation in transaction.operations)])

    def _anchor_crc(self, transaction: Transaction) -> int:
        """Return the checksum of the main file's bytes before the first write, which no edit touches."""
        offset = next(
            (
                operation.offset
                for operation in transaction.operations
                if operation.kind == "write" and operation.part == "main"
            ),
            0,
        )
        with open_for_reading(self._files.main) as descriptor:
            start = max(0, offset - _ANCHOR_BYTES)
            return zlib.crc32(b"" if descriptor is None else read_at(descriptor, start, offset - start))

    def _is_superseded(self, transaction: Transaction) -> bool:
        """True if the history goes on after the transaction: it was applied, but clearing it did not reach the disk."""
        main_write = next(operation for operation in transaction.operations if operation.part == "main")
        descriptor = open_if_exists(self._files.main, os.O_RDONLY)
        if descriptor is None:
            return False
        try:
            end = main_write.offset + len(main_write.data)
            return (
                size_of(descriptor) > end
                and read_at(descriptor, main_write.offset, len(main_write.data)) == main_write.data
            )
        finally:
            os.close(descriptor)
