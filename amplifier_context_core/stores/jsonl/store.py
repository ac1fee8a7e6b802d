"""Sessions as files: one message a line, in the format of the module that this package replaces, plus sidecar files.

    ROOT/<session id>/context-messages.jsonl             the history: one current message a line (paths)
                      context-messages.index.jsonl       location, seq, turn and tokens of each message (index)
                      context-messages.archive.jsonl     entries that edits removed (archive)
                      context-messages.checkpoint        the checkpoint (checkpoint)
                      context-messages.pending           the redo journal of the current edit (journal)
                      context-messages.damaged           the quarantine: bytes that were no messages (repair)
                      context-messages.lock              the writer (stores/session_lock.py)

All but the main file may be missing. One thread (worker) executes all calls in order (engine), so that a caller waits
on its own event loop. aiofiles is no alternative: it hands every single read and write to some thread of a pool, and
this store depends on their order.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConfigError
from ...transcript.entry import Entry
from ..protocol import Durability, Extent, OnRepair, SessionInfo
from ..validation import check_session_id, url_path
from .engine import JsonlEngine
from .paths import SessionPaths, is_sidecar_name
from .worker import JsonlWorker

_stores: weakref.WeakSet[JsonlStore] = weakref.WeakSet()


class JsonlStore:
    """Keeps each session in a folder of its own, or one session in one file."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        file: str | os.PathLike[str] | None = None,
        durability: Durability = "fsync",
        archive: bool = True,
    ) -> None:
        """Open nothing yet.

        Args:
            root: Folder of the sessions' folders; created with the first message.
            file: The file of the session, whatever its id; the sidecar files are kept beside it.
            durability: What an acknowledgement promises: on disk (``fsync``), with the operating system (``flush``), or
                nothing (``none``).
            archive: Keep what edits and interrupts remove from a history.

        Raises:
            ConfigError: A path is invalid.
        """
        paths = SessionPaths(_path("store", root), None if file is None else _path("transcript_path", file))
        if paths.file is not None and is_sidecar_name(paths.file):
            raise ConfigError(
                "transcript_path", f"names {paths.file.name}: files beside another session end like this; use *.jsonl"
            )
        self._engine = JsonlEngine(paths, durability, archive=archive)
        self._worker = JsonlWorker(self._engine.append_all, self._engine.take_notifications)
        # A store without references releases its locks. The thread refers to the engine, not to the store.
        weakref.finalize(self, self._worker.stop, self._engine.abandon).atexit = False
        _stores.add(self)

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "fsync", archive: bool = True) -> JsonlStore:
        """Return the store at ``jsonl:PATH``, PATH being the folder of the sessions.

        Raises:
            ConfigError: The URL holds no valid path.
        """
        path = url_path(url, "the folder of the sessions", "jsonl:~/sessions or jsonl:/var/lib/sessions")
        return cls(path, durability=durability, archive=archive)

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        check_session_id(session_id)
        return await self._worker.run(lambda: self._engine.open(session_id, on_repair))

    async def release(self, session_id: str) -> None:
        check_session_id(session_id)
        await self._worker.run(lambda: self._engine.release(session_id))

    async def extent(self, session_id: str) -> Extent:
        check_session_id(session_id)
        return await self._worker.run(lambda: self._engine.extent(session_id))

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        check_session_id(session_id)
        if entries:
            given = tuple(entries)
            await self._worker.append(session_id, (given,) if atomic else [(entry,) for entry in given])

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        check_session_id(session_id)
        return await self._worker.run(lambda: self._engine.read(session_id, start, stop))

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        check_session_id(session_id)
        wanted = frozenset(seqs)
        return await self._worker.run(lambda: self._engine.find(session_id, tuple(wanted))) if wanted else []

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        given = tuple(entries)
        await self._worker.run(lambda: self._engine.replace(session_id, keep, given))

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        given = tuple(entries)
        await self._worker.run(lambda: self._engine.rewrite(session_id, given))

    async def archived(self, session_id: str) -> list[Entry]:
        check_session_id(session_id)
        return await self._worker.run(lambda: self._engine.archived(session_id))

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        check_session_id(session_id)
        await self._worker.run(lambda: self._engine.save_checkpoint(session_id, covered, data))

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        check_session_id(session_id)
        return await self._worker.run(lambda: self._engine.load_checkpoint(session_id))

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        check_session_id(session_id)
        check_session_id(new_id)
        await self._worker.run(lambda: self._engine.fork(session_id, new_id, length))

    async def sessions(self) -> list[SessionInfo]:
        return await self._worker.run(self._engine.sessions)

    async def delete(self, session_id: str) -> None:
        check_session_id(session_id)
        await self._worker.run(lambda: self._engine.delete(session_id))

    async def verify(self, session_id: str) -> list[str]:
        check_session_id(session_id)
        return await self._worker.run(lambda: self._engine.verify(session_id))

    async def close(self) -> None:
        try:
            await self._worker.run(self._engine.close)
        finally:
            self._worker.stop(self._engine.abandon)

    def _end(self) -> None:
        """Write buffered entries and release all locks before the process ends."""
        thread = self._worker.stop(self._engine.abandon)
        if thread is not None:
            thread.join(5)


def _path(key: str, given: str | os.PathLike[str]) -> Path:
    text = os.fspath(given)
    if not text or "\0" in text:
        raise ConfigError(key, "is no path of a file or folder")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(key, "names the home folder of a user that does not exist") from None


@atexit.register
def _end_all() -> None:
    for store in list(_stores):
        store._end()  # pyright: ignore[reportPrivateUsage]
