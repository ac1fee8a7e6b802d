"""Paths of a session's files.

A session is a folder of the root, named by its id. Where a host names one file, the session is that file, with the
other files beside it. The main file, the mirror, has the name and the format of the module that this package replaces:
one message a line, and nothing else.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ...errors import ConfigError, StoreError
from ..sqlite.schema import SIDECARS
from ..validation import check_session_id
from .files import exists

MAIN_NAME = "context-messages.jsonl"
DATABASE_NAME = "context.db"

Part = Literal["main", "database", "index", "archive", "checkpoint", "pending", "damaged", "lock", "owner", "former"]
FORMER_PARTS: tuple[Part, ...] = ("index", "archive", "checkpoint", "owner", "pending")  # of commit 37ba2a6
FORMER_NAME = "former"  # the folder of those files, once they were carried over
_SUFFIXES: dict[Part, str] = {
    "database": ".db",
    "index": ".index.jsonl",
    "archive": ".archive.jsonl",
    **{part: f".{part}" for part in ("checkpoint", "pending", "damaged", "lock", "owner", "former")},
}
_NAMES: dict[Part, str] = {"database": DATABASE_NAME, "former": FORMER_NAME}  # in a folder of their own
_SIDECAR_SUFFIXES = (*_SUFFIXES.values(), *(_SUFFIXES["database"] + ending for ending in SIDECARS))


@dataclass(frozen=True, slots=True)
class SessionFiles:
    session_id: str
    main: str  # the mirror: the messages, one a line
    own_folder: bool  # the folder holds only this session

    @property
    def folder(self) -> str:
        return os.path.dirname(self.main)

    @property
    def database(self) -> str:
        return self.path("database")

    @property
    def exists(self) -> bool:
        return exists(self.database) or exists(self.main)

    def path(self, part: Part) -> str:
        """Return the path of one file, or of the folder of former ones."""
        if self.own_folder and part in _NAMES:
            return os.path.join(self.folder, _NAMES[part])
        return self.main.removesuffix(".jsonl") + _SUFFIXES[part] if part != "main" else self.main


# Names of the files that a session may have in a folder of its own, but for the database.
FILE_NAMES = frozenset(
    SessionFiles("", MAIN_NAME, own_folder=True).path(part) for part in get_args(Part) if part not in _NAMES
)


@dataclass(frozen=True, slots=True)
class SessionPaths:
    """Where sessions are: folders of a root, or one file and the forks made from it."""

    root: Path
    file: Path | None = None

    def files_of(self, session_id: str) -> SessionFiles:
        """Raises `ConfigError`: the id is invalid, or the file system has the files of another session under it. Raises
        `StoreError`: the session's folder is a link out of the root.
        """
        check_session_id(session_id)
        if self.file is not None:
            fork = self._fork(session_id, self.file)
            _check_spelling(session_id, Path(fork.main))
            is_fork = not is_sidecar_name(Path(fork.main)) and fork.exists
            return fork if is_fork else SessionFiles(session_id, str(self.file), own_folder=False)
        folder = self.root / session_id
        _check_spelling(session_id, folder)
        if folder.is_symlink():
            root = os.path.realpath(self.root)
            if os.path.commonpath([root, os.path.realpath(folder)]) != root:
                raise StoreError(
                    f"session {session_id!r}: its folder is a link out of {self.root}; put the folder itself there"
                )
        return SessionFiles(session_id, str(folder / MAIN_NAME), own_folder=True)

    def files_of_fork(self, session_id: str) -> SessionFiles:
        """In single-file mode, a fork has a file of its own beside the one file.

        Raises:
            ConfigError: the id would give the fork the file name of another session's index or archive.
        """
        files = self.files_of(session_id)
        if self.file is None:
            return files
        fork = self._fork(session_id, self.file)
        if is_sidecar_name(Path(fork.main)):
            raise ConfigError("session_id", f"{session_id!r}: files of other forks end like this; choose another id")
        return fork

    def all_sessions(self) -> list[SessionFiles]:
        """Return the files that sessions may have: of every folder, or the one file and every fork of it."""
        if self.file is not None:
            stem = f"{_stem(self.file)}.fork-"
            beside = [one.with_suffix(".jsonl") for one in self.file.parent.glob(f"{glob.escape(stem)}*")]
            names = {one.stem.removeprefix(stem) for one in beside if not is_sidecar_name(one)}
            main = SessionFiles(_stem(self.file), str(self.file), own_folder=False)
            return [main, *(self._fork(name, self.file) for name in sorted(names))]
        try:
            with os.scandir(self.root) as found:
                names = [one.name for one in found if not one.name.startswith(".") and one.is_dir()]
        except FileNotFoundError:
            return []
        return [SessionFiles(name, str(self.root / name / MAIN_NAME), own_folder=True) for name in names]

    def _fork(self, session_id: str, file: Path) -> SessionFiles:
        return SessionFiles(session_id, str(file.with_name(f"{_stem(file)}.fork-{session_id}.jsonl")), own_folder=False)


def is_sidecar_name(path: Path) -> bool:
    """True if a file name is that of an index, an archive, a checkpoint or another file beside a main file."""
    return path.name.endswith(_SIDECAR_SUFFIXES)


def _check_spelling(session_id: str, path: Path) -> None:
    """Check that a path is not that of another session's files on a file system that ignores case."""
    other = path.with_name(path.name.swapcase())
    try:
        if other.name == path.name or not os.path.samefile(path, other) or path.name in os.listdir(path.parent):
            return
    except OSError:  # one of them does not exist
        return
    raise ConfigError("session_id", f"{session_id!r} differs from the id of another session in case only; use that one")


def _stem(file: Path) -> str:
    return file.name.removesuffix(".jsonl")
