"""Sessions as files: one message a line, as the module we replace writes them, with what else we need beside it.

    ROOT/<session id>/context-messages.jsonl             the history: one current message a line (paths)
                      context-messages.index.jsonl       where each stands, and its seq, turn and tokens (index)
                      context-messages.archive.jsonl     what edits took out (archive)
                      context-messages.checkpoint        (checkpoint)
                      context-messages.pending           an edit that is being carried out (journal)
                      context-messages.damaged           bytes that were no messages (repair)
                      context-messages.lock, .owner      who writes (lock)

All but the main file can be missing. Calls are handed to one thread (worker), which does them in order
(engine): whoever waits, waits on his own event loop. (aiofiles is no help here: it hands every single read and
write to some thread of a pool, and order is what this store is about.)
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConfigError
from ...transcript.transcript import Entry
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
            root: folder of the sessions' folders; made when the first message comes.
            file: the file that is the session, whatever its id; what else belongs to it is kept beside it.
            durability: what acknowledged means: on disk (``fsync``), with the operating system (``flush``), or neither.
            archive: keep what edits and interrupts take out of a history.

        Raises:
            ConfigError: a path that cannot be one.
        """
        paths = SessionPaths(_path("store", root), None if file is None else _path("transcript_path", file))
        if paths.file is not None and is_sidecar_name(paths.file):
            raise ConfigError(
                "transcript_path", f"names {paths.file.name}: files beside another session end like this; use *.jsonl"
            )
        self._engine = JsonlEngine(paths, durability, archive=archive)
        self._worker = JsonlWorker(self._engine.append_all, self._engine.take_notifications)
        # A store nobody has any more gives its claims back; the thread knows the desk, not the store.
        weakref.finalize(self, self._worker.stop, self._engine.abandon).atexit = False
        _stores.add(self)

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "fsync", archive: bool = True) -> JsonlStore:
        """The store at ``jsonl:PATH``, PATH being the folder of the sessions.

        Raises:
            ConfigError: there is no path in it that could be one.
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
        await self._worker.run(self._engine.close)
        self._worker.stop(self._engine.abandon)

    def _end(self) -> None:
        """Write what is kept back, and give all claims back, before the process ends."""
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
        raise ConfigError(key, "names the home of a user there is none of") from None


@atexit.register
def _end_all() -> None:
    for store in list(_stores):
        store._end()  # pyright: ignore[reportPrivateUsage]
