"""Files as the JSONL store wants them: private, reached through no link, never waited for, on disk when it says so.

What goes wrong here leaves as `OSError`; `store_error` turns it into words with a next step, in one place for all.
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
_SAFE_FLAGS = (
    os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)  # O_NONBLOCK: a pipe cannot hang us
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
    """What the operating system said of a session's file, and what to do about it."""
    where = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, "see that its folder is there and can be written")
    return StoreError(f"session {session_id!r}: {where}{reason}; {advice}")


def open_file(path: str, flags: int) -> int:
    """A descriptor of an ordinary file; one that is made is for its owner only, whatever the umask.

    Raises:
        OSError: it cannot be opened, or is a link, a pipe, a device or a folder.
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
    """Raise `OSError` if something else than an ordinary file stands here, for those who open it themselves."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            code = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}.get(stat.S_IFMT(mode), errno.ENXIO)
            raise OSError(code, "is no ordinary file", path)


def _open(path: str, flags: int) -> tuple[int, bool]:
    """A descriptor, and whether the file was made for it."""
    if flags & os.O_CREAT:
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_EXCL | _SAFE_FLAGS, 0o600), True
    return os.open(path, flags & ~os.O_CREAT | _SAFE_FLAGS), False


def open_if_exists(path: str, flags: int) -> int | None:
    """A descriptor of a file, or None if there is none."""
    try:
        return open_file(path, flags)
    except FileNotFoundError:
        return None


def restrict_permissions(descriptor: int) -> None:
    """Take from others the rights to a file that was there before us."""
    if os.fstat(descriptor).st_mode & 0o077:
        with suppress(PermissionError):  # it is somebody else's, who lets us write to it
            os.fchmod(descriptor, 0o600)


def exists(path: str | os.PathLike[str]) -> bool:
    """True if something has this path, a broken link included.

    Raises:
        OSError: the system cannot say. `os.path.lexists` answers False then, and what is there would be taken for gone.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def open_for_reading(path: str) -> Generator[int | None]:
    """A descriptor to read from, closed afterwards; None if there is no such file."""
    descriptor = open_if_exists(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def size_of(descriptor: int | None) -> int:
    """Bytes of an open file; 0 without one."""
    return 0 if descriptor is None else os.fstat(descriptor).st_size


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """These bytes of a file; fewer only where it ends."""
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
    """The bytes of a file from one place to another, a piece at a time."""
    while start < stop and (data := read_at(descriptor, start, min(CHUNK_BYTES, stop - start))):
        yield data
        start += len(data)
        yield_gil()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; a write that is cut short is gone on with until nothing is left, or it fails."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def write_at(descriptor: int, offset: int, data: bytes) -> None:
    """Write in place. The descriptor must not be one that appends."""
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


@dataclass(frozen=True, slots=True)
class FileOps:
    """Writes files so that they are whole or not there, and on disk if `durable`."""

    durable: bool

    def sync(self, descriptor: int) -> None:
        """Have what was written to a file on disk."""
        if self.durable:
            _sync(descriptor)

    def start_writeback(self, descriptor: int, offset: int, length: int) -> None:
        """Have the system begin to write these bytes to disk: whoever syncs many files finds less to wait for."""
        if self.durable and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # it is but advice
                # Linux: pages that are not needed are written, and written ones dropped, but those just written stay.
                os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def sync_folder(self, path: str) -> None:
        """Have on disk which files there are in a folder."""
        if self.durable:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def make_folder(self, path: str) -> None:
        """Make a folder, and those it is in, for its owner only."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
            return
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if parent in ("", path) or os.path.isdir(parent):
                raise  # a file system that takes no folders answers so, /proc for one
            self.make_folder(parent)
            self.make_folder(path)
            return
        os.chmod(path, 0o700)
        self.sync_folder(os.path.dirname(path) or ".")

    def write_new(self, path: str, parts: Iterable[bytes]) -> int:
        """Write a whole file beside the one it shall replace, at `path` with ``.new``; give its size."""
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

    def replace_file(self, path: str, parts: Iterable[bytes]) -> None:
        """Put a whole file in the place of another, or of none."""
        self.write_new(path, parts)
        try:
            rename_into_place(path)
            self.sync_folder(os.path.dirname(path))
        except BaseException:
            with suppress(OSError):
                os.unlink(f"{path}.new")
            raise

    def overwrite(self, path: str, offset: int, data: bytes, *, truncate: bool = True) -> None:
        """Write bytes over what is at an offset; with `cut` the file ends after them."""
        descriptor = open_file(path, os.O_WRONLY | os.O_CREAT)
        try:
            write_at(descriptor, offset, data)
            if truncate:
                os.ftruncate(descriptor, offset + len(data))
            self.sync(descriptor)
        finally:
            os.close(descriptor)


def _sync(descriptor: int) -> None:
    # fdatasync leaves out times, never the size. macOS has neither it nor an fsync that reaches the disk.
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
    """Give the file written by `write_new` its name; it has that already if this was done before."""
    with suppress(FileNotFoundError):
        os.replace(f"{path}.new", path)


def close(descriptor: int | None) -> None:
    """Close a file, if there is one. What was promised of it was synced before, and it is closed in any case."""
    if descriptor is not None:
        with suppress(OSError):
            os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file that may be there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


_last_yield = time.perf_counter()


def start_yield_timer() -> None:
    """A thread begins with something: until now it kept nobody waiting."""
    global _last_yield
    _last_yield = time.perf_counter()


def yield_gil() -> None:
    """Called in long work: now and then let other threads run, that wait for this one at the interpreter's lock."""
    global _last_yield
    if time.perf_counter() - _last_yield > 0.0004:
        time.sleep(0.000001)  # as short as there is, some 60 us on Linux; 0 may give the lock back to this thread
        _last_yield = time.perf_counter()
