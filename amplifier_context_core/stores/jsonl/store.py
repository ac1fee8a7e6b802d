"""Sessions as folders: a database of each, and a text file that mirrors it, one message a line.

    ROOT/<session id>/context.db                the session: history, archive, checkpoint, search index (stores/sqlite)
                      context-messages.jsonl    the mirror, in the format of the module that this one replaces
                      context-messages.lock     the writer, while there is one (stores/sqlite/locks.py)
                      context-messages.damaged  lines of another program that are no messages

One thread executes the calls of all sessions. `session` joins the files of one, `mirror` has the rules of the text
file, and `former` reads sessions of commit 37ba2a6.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from ...errors import ConfigError
from ..protocol import Durability, OnRepair, SessionInfo, report_repair
from ..sqlite.engine import SqliteEngine
from ..sqlite.errors import store_error
from ..sqlite.journal import JournalMode, journal_in
from ..sqlite.queries import find_session
from ..sqlite.store import DatabaseStore
from ..validation import check_session_id, no_session, session_exists, url_path
from .listing import listed
from .paths import SessionPaths, is_sidecar_name
from .session import MirroredSession
from .sessions import Sessions


class JsonlStore(DatabaseStore):
    """Keeps each session in a folder of its own, or one session in one file. See also `Repairable`."""

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
            root: folder of the sessions' folders; created with the first message.
            file: the mirror of the session, whatever its id; the other files are kept beside it.
            durability: what an acknowledged message has reached: the disk (``fsync``), the operating system
                (``flush``), or neither (``none``).
            archive: keep what edits and interrupts remove from a history.
            journal: how databases keep a transaction whole; None for what the file system needs.

        Raises:
            ConfigError: a path is invalid.
        """
        paths = SessionPaths(_path("store", root), None if file is None else _path("transcript_path", file))
        if paths.file is not None and is_sidecar_name(paths.file):
            raise ConfigError(
                "transcript_path", f"names {paths.file.name}: files beside another session end like this; use *.jsonl"
            )
        super().__init__(archive=archive)
        self._paths = paths
        self._sessions = Sessions(paths, durability, archive=archive, journal=journal)
        # A store without references releases its locks. The thread refers to the sessions, not to the store.
        weakref.finalize(self, self._sessions.abandon).atexit = False

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "fsync", archive: bool = True) -> JsonlStore:
        """Return the store at ``jsonl:PATH``, PATH being the folder of the sessions. See `SqliteStore.from_url`."""
        examples = "jsonl:~/sessions or jsonl:/var/lib/sessions"
        path, journal = journal_in(url_path(url, "the folder of the sessions", examples))
        return cls(path, durability=durability, archive=archive, journal=journal)

    async def close(self) -> None:
        self._listeners.clear()
        self._damaged.clear()
        await self._sessions.close()

    async def sessions(self) -> list[SessionInfo]:
        return await self._sessions.run(lambda: listed(self._paths))

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        source = self._session(session_id)
        child = self._sessions.at(self._paths.files_of_fork(check_session_id(new_id)))
        if not await self._exists(session_id):
            raise no_session(session_id)
        # An empty database may be left of a fork that failed.
        if session_id == new_id or await child.engine.read(lambda db: find_session(db, new_id)) is not None:
            raise session_exists(new_id)
        await child.engine.write(lambda db: child.fork_from(source, length, db), new_id)

    async def delete(self, session_id: str) -> None:
        session = self._session(session_id)
        await self._run(session.engine, session.delete)
        self._forget(session_id)

    async def repair(self, session_id: str | None, on_repair: OnRepair | None = None) -> None:
        """See `Repairable`. Sessions share nothing."""
        if session_id is None:
            return
        session = self._session(session_id)
        await session.engine.run(session.repair)
        self._damaged.pop(session_id, None)
        while session.engine.reports:
            report_repair(session.engine.reports.pop(0), on_repair)

    def _session(self, session_id: str) -> MirroredSession:
        check_session_id(session_id)
        try:
            return self._sessions.of(session_id)
        except OSError as problem:
            raise store_error(problem, self._paths.root) from problem

    def _engine_of(self, session_id: str) -> SqliteEngine:
        return self._session(session_id).engine


def _path(key: str, given: str | os.PathLike[str]) -> Path:
    text = os.fspath(given)
    if not text or "\0" in text:
        raise ConfigError(key, "is no path of a file or folder")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(key, "names the home folder of a user that does not exist") from None
