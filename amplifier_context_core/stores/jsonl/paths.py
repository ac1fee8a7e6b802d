"""Paths of a session's files.

A session is a folder of the root, named by its id. Where a host names one file, the session is that file, with the
other files beside it. The main file, the mirror, has the name and the format of the module that this package replaces:
one message a line, and nothing else.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ...errors import ConfigError, StoreError
from ..sqlite.schema import SIDECARS
from ..validation import check_session_id
from .files import exists

MAIN_NAME = "context-messages.jsonl"
DATABASE_NAME = "context.db"

Part = Literal["main", "index", "archive", "checkpoint", "pending", "damaged", "lock", "owner"]
FORMER_PARTS: tuple[Part, ...] = ("index", "archive", "checkpoint", "owner", "pending")  # of commit 37ba2a6
FORMER_NAME = "former"  # the folder of those files, once they were carried over
_DATABASE_SUFFIX = ".db"  # beside a file that a host names
_DATABASE_SUFFIXES = (_DATABASE_SUFFIX, *(_DATABASE_SUFFIX + ending for ending in SIDECARS))
_FORMER_SUFFIX = f".{FORMER_NAME}"
_JSON_LINES: tuple[Part, ...] = ("index", "archive")  # JSON Lines files
_SUFFIXES: dict[Part, str] = {
    part: f".{part}{'.jsonl' if part in _JSON_LINES else ''}" for part in get_args(Part) if part != "main"
}
# Names that Windows takes for a device or for another name, and characters that no name there has (Microsoft, "Naming
# Files, Paths, and Namespaces"; Python 3.13 has `os.path.isreserved`).
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\..*)?|.*[. ]|.*[<>:\"|?*].*",
    re.IGNORECASE,
)
_IS_WINDOWS = sys.platform == "win32"


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """The paths of one session's files.

    Attributes:
        session_id: The session.
        main: The mirror: the messages, one a line.
        own_folder: True if the folder holds only this session.
    """

    session_id: str
    main: str
    own_folder: bool

    @property
    def folder(self) -> str:
        """The folder of the files."""
        return os.path.dirname(self.main)

    @property
    def name(self) -> str:
        """The name of the main file, for messages to people."""
        return os.path.basename(self.main)

    @property
    def database(self) -> str:
        """The database."""
        if self.own_folder:
            return os.path.join(self.folder, DATABASE_NAME)
        return self.main.removesuffix(".jsonl") + _DATABASE_SUFFIX

    @property
    def former_folder(self) -> str:
        """The folder of the files of a former version."""
        if self.own_folder:
            return os.path.join(self.folder, FORMER_NAME)
        return self.main.removesuffix(".jsonl") + _FORMER_SUFFIX

    @property
    def exists(self) -> bool:
        """True if there is a database or a mirror."""
        return exists(self.database) or exists(self.main)

    def path(self, part: Part) -> str:
        """Return the path of one file."""
        return self.main if part == "main" else self.main.removesuffix(".jsonl") + _SUFFIXES[part]


# Names of the files that a session may have in a folder of its own, but for the database.
FILE_NAMES = frozenset(SessionFiles("", MAIN_NAME, own_folder=True).path(part) for part in get_args(Part))


@dataclass(frozen=True, slots=True)
class SessionPaths:
    """Where sessions are: folders of a root, or one file and the forks made from it."""

    root: Path
    file: Path | None = None

    def files_of(self, session_id: str) -> SessionFiles:
        """Return the files of a session.

        Raises:
            ConfigError: The session id is invalid, or the file system has the files of another session under it.
            StoreError: The session's folder is a link out of the root.
        """
        check_session_id(session_id)
        if _IS_WINDOWS and _RESERVED.fullmatch(session_id):
            raise ConfigError("session_id", f"{session_id!r} is no name of a folder on Windows; choose another id")
        _check_spelling(session_id, self.root / session_id if self.file is None else self._fork_path(session_id))
        if self.file is not None:
            fork = self._fork_path(session_id)
            files = SessionFiles(session_id, str(fork), own_folder=False)
            is_fork = not is_sidecar_name(fork) and files.exists
            return files if is_fork else SessionFiles(session_id, str(self.file), own_folder=False)
        folder = self.root / session_id
        if folder.is_symlink():
            root = os.path.realpath(self.root)
            if os.path.commonpath([root, os.path.realpath(folder)]) != root:
                raise StoreError(
                    f"session {session_id!r}: its folder is a link out of {self.root}; put the folder itself there"
                )
        return SessionFiles(session_id, str(folder / MAIN_NAME), own_folder=True)

    def files_of_fork(self, session_id: str) -> SessionFiles:
        """Return the files of a new fork. In single-file mode, a fork has a file of its own beside the one file.

        Raises:
            ConfigError: The id would give the fork the file name of another session's index or archive.
        """
        files = self.files_of(session_id)
        if self.file is None or files.main != str(self.file):
            return files
        fork = self._fork_path(session_id)
        if is_sidecar_name(fork):
            raise ConfigError("session_id", f"{session_id!r}: files of other forks end like this; choose another id")
        return SessionFiles(session_id, str(fork), own_folder=False)

    def all_sessions(self) -> list[SessionFiles]:
        """Return the files of every session."""
        if self.file is not None:
            return self._all_forks(self.file)
        try:
            with os.scandir(self.root) as found:
                names = [one.name for one in found if not one.name.startswith(".") and one.is_dir()]
        except FileNotFoundError:
            return []
        made = [SessionFiles(name, str(self.root / name / MAIN_NAME), own_folder=True) for name in names]
        return [files for files in made if _may_exist(files)]

    def _all_forks(self, file: Path) -> list[SessionFiles]:
        start, names = f"{_stem(file)}.fork-", set[str]()
        for one in sorted(file.parent.iterdir()) if file.parent.is_dir() else ():
            for end in (".jsonl", _DATABASE_SUFFIX):
                name = one.name.removeprefix(start).removesuffix(end)
                if one.name == f"{start}{name}{end}" and not is_sidecar_name(one.with_suffix(".jsonl")):
                    names.add(name)
        main = SessionFiles(_stem(file), str(file), own_folder=False)
        forks = [SessionFiles(name, str(self._fork_path(name)), own_folder=False) for name in sorted(names)]
        return [files for files in (main, *forks) if files.exists]

    def _fork_path(self, session_id: str) -> Path:
        file = self.file or self.root
        return file.with_name(f"{_stem(file)}.fork-{session_id}.jsonl")


def is_sidecar_name(path: Path) -> bool:
    """True if a file name is that of an index, an archive, a checkpoint or another file beside a main file."""
    return path.name.endswith((*_SUFFIXES.values(), _FORMER_SUFFIX, *_DATABASE_SUFFIXES))


def _check_spelling(session_id: str, path: Path) -> None:
    """Check that a path is not that of another session's files on a file system that ignores case."""
    other = path.with_name(path.name.swapcase())
    try:
        if other.name == path.name or not os.path.samefile(path, other) or path.name in os.listdir(path.parent):
            return
    except OSError:  # one of them does not exist
        return
    raise ConfigError("session_id", f"{session_id!r} differs from the id of another session in case only; use that one")


def _may_exist(files: SessionFiles) -> bool:
    """False if no file exists. One that cannot be examined is listed, and reported when it is read."""
    try:
        return files.exists
    except OSError:
        return True


def _stem(file: Path) -> str:
    return file.name.removesuffix(".jsonl")
