"""Sessions as folders: a database of each, and a text file that mirrors it, one message a line.

    ROOT/<session id>/context.db                the session: history, archive, checkpoint, search index (stores/sqlite)
                      context-messages.jsonl    the mirror, in the format of the module that this one replaces
                      context-messages.lock     the writer, while there is one (stores/session_lock.py)
                      context-messages.damaged  lines of another program that are no messages

One thread executes the calls of all sessions. `session` joins the files of one, `mirror` has the rules of the text
file, and `former` reads sessions of commit 37ba2a6.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ...errors import ConfigError, NotErased, StoreError
from ...transcript.entry import Entry
from ..protocol import Durability, Extent, KeptVector, OnRepair, SessionInfo, report_repair
from ..sqlite.errors import store_error
from ..sqlite.journal import JournalMode, journal_in
from ..sqlite.queries import find_session
from ..sqlite.store import SqliteStore
from ..validation import check_index, check_session_id, no_session, session_exists, url_path
from .listing import listed
from .paths import SessionPaths, is_sidecar_name
from .session import MirroredSession
from .sessions import Sessions

T = TypeVar("T")
_stores: weakref.WeakSet[JsonlStore] = weakref.WeakSet()


class JsonlStore:
    """Keeps each session in a folder of its own, or one session in one file.

    See `Store`, `Searchable`, `KeepsVectors`, `Checkable` and `Repairable` for what the methods promise.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        file: str | os.PathLike[str] | None = None,
        durability: Durability = "fsync",
        archive: bool = True,
        journal: JournalMode | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            root: Folder of the sessions' folders; created with the first message.
            file: The mirror of the session, whatever its id; the other files are kept beside it.
            durability: What an acknowledgement promises: on disk (``fsync``), with the operating system (``flush``), or
                nothing (``none``).
            archive: Keep what edits and interrupts remove from a history.
            journal: How databases keep a transaction whole; None for what the file system needs.

        Raises:
            ConfigError: A path is invalid.
        """
        paths = SessionPaths(_path("store", root), None if file is None else _path("transcript_path", file))
        if paths.file is not None and is_sidecar_name(paths.file):
            raise ConfigError(
                "transcript_path", f"names {paths.file.name}: files beside another session end like this; use *.jsonl"
            )
        self._paths = paths
        self._sessions = Sessions(paths, durability, archive=archive, journal=journal)
        self._listeners: dict[str, OnRepair] = {}
        # A store without references releases its locks. The thread refers to the sessions, not to the store.
        weakref.finalize(self, self._sessions.abandon).atexit = False
        _stores.add(self)

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "fsync", archive: bool = True) -> JsonlStore:
        """Return the store at ``jsonl:PATH``, PATH being the folder of the sessions. See `SqliteStore.from_url`.

        Raises:
            ConfigError: The URL holds no valid path.
        """
        examples = "jsonl:~/sessions or jsonl:/var/lib/sessions"
        path, journal = journal_in(url_path(url, "the folder of the sessions", examples))
        return cls(path, durability=durability, archive=archive, journal=journal)

    # -- opening -------------------------------------------------------------------------------------------------------

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        session = self._of(session_id)
        before = self._listeners.get(session_id)
        if on_repair is not None:
            self._listeners[session_id] = on_repair
        is_new = False
        try:
            is_new = await self._run(session, session.open)
            extent = await session.store.open(session_id, on_repair)
        except StoreError:
            if is_new:
                await self.release(session_id)
            elif before is None:
                self._listeners.pop(session_id, None)
            raise
        self._deliver(session)
        return extent

    async def release(self, session_id: str) -> None:
        session = self._of(session_id)
        await self._run(session, session.release)
        await session.store.release(session_id)
        self._forget(session_id)

    async def close(self) -> None:
        self._listeners.clear()
        await self._sessions.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent:
        return await self._call(session_id, lambda store: store.extent(session_id))

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        return await self._call(session_id, lambda store: store.read(session_id, start, stop))

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        return await self._call(session_id, lambda store: store.find(session_id, seqs))

    async def archived(self, session_id: str) -> list[Entry]:
        return await self._call(session_id, lambda store: store.archived(session_id))

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        return await self._call(session_id, lambda store: store.load_checkpoint(session_id))

    async def sessions(self) -> list[SessionInfo]:
        return await self._sessions.run(lambda: listed(self._paths, self._sessions.connected()))

    async def search(self, session_id: str, query: str, limit: int) -> list[int]:
        """See `Searchable`."""
        return await self._call(session_id, lambda store: store.search(session_id, query, limit))

    async def vectors(self, session_id: str, model: str) -> list[KeptVector]:
        """See `KeepsVectors`."""
        return await self._call(session_id, lambda store: store.vectors(session_id, model))

    # -- writing -------------------------------------------------------------------------------------------------------

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        given = tuple(entries)
        if given:
            await self._change(self._of(session_id), lambda store: store.append(session_id, given, atomic=atomic))

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        given = tuple(entries)
        session = self._of(session_id)
        if not given and not self._exists(session):
            check_index(session_id, keep, 0)
            return
        await self._change(session, lambda store: store.replace(session_id, keep, given))

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        given = tuple(entries)
        session = self._of(session_id)
        if not self._exists(session):
            return
        problem: NotErased | None = None
        try:
            await self._change(session, lambda store: store.rewrite(session_id, given))
        except NotErased as raised:
            problem = raised
        await self._run(session, session.finish_erasing)
        if problem is not None:
            raise problem

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        session = self._of(session_id)
        await self._change(session, lambda store: store.save_checkpoint(session_id, covered, data))

    async def save_vectors(self, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
        """See `KeepsVectors`."""
        given = tuple(vectors)
        if self._exists(self._of(session_id)):
            await self._call(session_id, lambda store: store.save_vectors(session_id, model, given))

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        source = self._of(session_id)
        child = self._sessions.at(self._paths.files_of_fork(check_session_id(new_id)))
        if await source.engine.read(lambda db: find_session(db, session_id)) is None:
            raise no_session(session_id)
        # An empty database may be left of a fork that failed.
        if session_id == new_id or await child.engine.read(lambda db: find_session(db, new_id)) is not None:
            raise session_exists(new_id)
        await self._change(child, lambda _: child.engine.write(lambda db: child.fork_from(source, length, db), new_id))

    async def delete(self, session_id: str) -> None:
        session = self._of(session_id)
        await self._run(session, session.delete)
        self._forget(session_id)

    # -- checking ------------------------------------------------------------------------------------------------------

    async def verify(self, session_id: str) -> list[str]:
        """See `Checkable`."""
        session = self._of(session_id)
        problems = await self._call(session_id, lambda store: store.verify(session_id))
        return [*problems, *(await self._run(session, session.unreadable_lines))]

    async def repair(self, session_id: str | None, on_repair: OnRepair | None = None) -> None:
        """See `Repairable`. Sessions share nothing."""
        if session_id is None:
            return
        session = self._of(session_id)
        await session.engine.run(session.repair)
        for repair in session.take_reports():
            report_repair(repair, on_repair)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _of(self, session_id: str) -> MirroredSession:
        check_session_id(session_id)
        with _translated(self._paths.root):
            return self._sessions.of(session_id)

    @staticmethod
    def _exists(session: MirroredSession) -> bool:
        with _translated(session.engine.path):
            return session.files.exists

    async def _call(self, session_id: str, call: Callable[[SqliteStore], Awaitable[T]]) -> T:
        session = self._of(session_id)
        try:
            return await call(session.store)
        finally:
            self._deliver(session)

    async def _change(self, session: MirroredSession, call: Callable[[SqliteStore], Awaitable[None]]) -> None:
        try:
            await call(session.store)
        except StoreError:
            await self._run(session, session.tidy)
            raise
        finally:
            self._deliver(session)

    async def _run(self, session: MirroredSession, work: Callable[[], T]) -> T:
        try:
            return await session.engine.run(work)
        finally:
            self._deliver(session)

    def _deliver(self, session: MirroredSession) -> None:
        for repair in session.take_reports():
            report_repair(repair, self._listeners.get(session.files.session_id))

    def _forget(self, session_id: str) -> None:
        self._listeners.pop(session_id, None)

    def _end(self) -> None:
        """Release all locks before the process ends."""
        thread = self._sessions.abandon()
        if thread is not None:
            thread.join(5)


@contextmanager
def _translated(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as problem:
        raise store_error(problem, path) from problem


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
