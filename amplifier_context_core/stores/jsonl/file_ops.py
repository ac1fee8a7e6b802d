"""File operations of the JSONL store: private files, no links followed, no blocking opens, synced on request.

Failures leave here as `OSError`; `store_error` translates all of them into a `StoreError` with a next step.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ...errors import StoreError

CHUNK_BYTES = 1 << 20
# O_NONBLOCK: opening a pipe must not block
_SAFE_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_ADVICE = {
    errno.ENOSPC: "there is no room, free some space; nothing that was acknowledged is lost",
    errno.EDQUOT: "raise the quota or free some space; nothing that was acknowledged is lost",
    errno.EFBIG: "the largest size of a file is reached (`ulimit -f`, or the file system's own)",
    errno.EACCES: "give this user the right to read and write it",
    errno.EPERM: "give this user the right to read and write it",
    errno.EROFS: "the file system is mounted read-only; mount it for writing, or choose another folder",
    errno.EIO: "the disk reports a fault; see the system's log, and copy the sessions elsewhere",
    errno.ELOOP: "links are not followed; put the file itself there",
    errno.EISDIR: "a folder is in its place; move it away",
    errno.ENOTDIR: "a file is in the place of a folder; move it away",
    errno.ENXIO: "a pipe or device is in its place; move it away",
    errno.EMFILE: "this process has too many files open; release sessions, or raise `ulimit -n`",
    errno.ENFILE: "the system has too many files open; close some",
    errno.ENAMETOOLONG: "choose a shorter session id or folder",
    errno.ENOENT: "it was removed meanwhile; release the session and open it again",
}


def store_error(session_id: str, error: OSError) -> StoreError:
    """Return the `StoreError` for an error of the operating system, with advice."""
    where = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, "make sure that its folder exists and is writable")
    return StoreError(f"session {session_id!r}: {where}{reason}; {advice}")


def open_file(path: str, flags: int) -> int:
    """Return a descriptor of a regular file. A created file is accessible to its owner only, whatever the umask.

    Raises:
        OSError: The file cannot be opened, or is a link, a pipe, a device or a folder.
    """
    descriptor, made = _open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
            raise OSError(code, "is no ordinary file", path)
        if made and mode & 0o777 != 0o600:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular_file(path: str) -> None:
    """Raise `OSError` if the path exists and is no regular file, for a caller that opens it by other means."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            code = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}.get(stat.S_IFMT(mode), errno.ENXIO)
            raise OSError(code, "is no ordinary file", path)


def _open(path: str, flags: int) -> tuple[int, bool]:
    """Return a descriptor, and whether the file was created."""
    if flags & os.O_CREAT:
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_EXCL | _SAFE_FLAGS, 0o600), True
    return os.open(path, flags & ~os.O_CREAT | _SAFE_FLAGS), False


def open_if_exists(path: str, flags: int) -> int | None:
    """Return a descriptor of a file, or None if it does not exist."""
    try:
        return open_file(path, flags)
    except FileNotFoundError:
        return None


def restrict_permissions(descriptor: int) -> None:
    """Remove the permissions of group and others from a file that existed before."""
    if os.fstat(descriptor).st_mode & 0o077:
        with suppress(PermissionError):  # another user owns the file and lets us write to it
            os.fchmod(descriptor, 0o600)


def exists(path: str | os.PathLike[str]) -> bool:
    """True if the path exists, even as a broken link.

    Raises:
        OSError: The system cannot find out. `os.path.lexists` returns False then, and an existing file would count as
            gone.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def open_for_reading(path: str) -> Generator[int | None]:
    """Yield a descriptor for reading and close it afterwards; None if the file does not exist."""
    descriptor = open_if_exists(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def size_of(descriptor: int | None) -> int:
    """Return the bytes of an open file; 0 without one."""
    return 0 if descriptor is None else os.fstat(descriptor).st_size


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Return these bytes of a file; fewer only at its end."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    missing = length - len(data)
    while missing > 0 and (data := os.pread(descriptor, missing, offset + length - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def chunks(descriptor: int, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a range of a file, one chunk at a time."""
    while start < stop and (data := read_at(descriptor, start, min(CHUNK_BYTES, stop - start))):
        yield data
        start += len(data)
        yield_gil()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; continue after a short write."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def write_at(descriptor: int, offset: int, data: bytes) -> None:
    """Write at an offset. The descriptor must not be in append mode."""
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


@dataclass(frozen=True, slots=True)
class FileOps:
    """Writes files that are complete or absent, and synced if `durable`."""

    durable: bool

    def sync(self, descriptor: int) -> None:
        """Sync the data of a file."""
        if self.durable:
            _sync(descriptor)

    def start_writeback(self, descriptor: int, offset: int, length: int) -> None:
        """Start writing these bytes to disk, so that syncing many files afterwards waits less."""
        if self.durable and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # it is only advice
                # Linux writes pages that are not needed and drops those already written; freshly written ones stay.
                os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def sync_folder(self, path: str) -> None:
        """Sync the directory entries of a folder."""
        if self.durable:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents, accessible to their owner only."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
            return
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if parent in ("", path) or os.path.isdir(parent):
                raise  # a file system without folders answers like this, for example /proc
            self.make_folder(parent)
            self.make_folder(path)
            return
        os.chmod(path, 0o700)
        self.sync_folder(os.path.dirname(path) or ".")

    def write_new(self, path: str, parts: Iterable[bytes]) -> int:
        """Write a whole file at `path` with ``.new``, beside the one that it will replace. Return its size."""
        descriptor = open_file(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        size = 0
        try:
            for part in parts:
                write_all(descriptor, part)
                size += len(part)
            self.sync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(f"{path}.new")
            raise
        finally:
            os.close(descriptor)
        return size

    def overwrite(self, path: str, offset: int, data: bytes, *, truncate: bool = True) -> None:
        """Write bytes at an offset; with `truncate`, end the file after them."""
        descriptor = open_file(path, os.O_WRONLY | os.O_CREAT)
        try:
            write_at(descriptor, offset, data)
            if truncate:
                os.ftruncate(descriptor, offset + len(data))
            self.sync(descriptor)
        finally:
            os.close(descriptor)


def _sync(descriptor: int) -> None:
    # fdatasync omits times, never the size. macOS has no fdatasync, and its fsync does not reach the disk.
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # pragma: no cover - macOS
        import fcntl

        full = getattr(fcntl, "F_FULLFSYNC", None)
        if full is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, full)


def rename_into_place(path: str) -> None:
    """Rename the file written by `write_new`. Does nothing if that was done before."""
    with suppress(FileNotFoundError):
        os.replace(f"{path}.new", path)


def close(descriptor: int | None) -> None:
    """Close a file, if there is one. Errors are ignored: what must be durable was synced before."""
    if descriptor is not None:
        with suppress(OSError):
            os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(path)


_last_yield = time.perf_counter()


def start_yield_timer() -> None:
    """Restart the timer of `yield_gil` when a thread begins a task: it has not blocked other threads yet."""
    global _last_yield
    _last_yield = time.perf_counter()


def yield_gil() -> None:
    """Let waiting threads take the GIL now and then; called in long loops."""
    global _last_yield
    if time.perf_counter() - _last_yield > 0.0004:
        time.sleep(0.000001)  # seconds; the shortest sleep, some 60 us on Linux; 0 may give the GIL back to this thread
        _last_yield = time.perf_counter()
