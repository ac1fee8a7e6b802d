"""Find files of Amplifier's hosts that contain a text: transcripts, event logs and prompt histories of a session.

A host keeps them below ``~/.amplifier/projects``, in folders named after the session. They are only read, never
changed. The search is limited in time and number of files, and follows no links.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from itertools import chain, islice
from pathlib import Path

from amplifier_context_core.stores.jsonl.paths import DATABASE_NAME, FILE_NAMES, FORMER_NAME
from amplifier_context_core.stores.sqlite.schema import APPLICATION_ID, ONE_SESSION_ID
from amplifier_context_core.transcript.redaction import forms_of, probe_of

TIME_LIMIT = 10.0  # seconds
MAX_FILES = 10_000
_CHUNK = 1 << 20  # bytes of one read
_SIDE_FILE = re.compile(r"-(?:wal|shm|journal)\Z")  # files beside a database: https://www.sqlite.org/tempfiles.html
_SQLITE_HEAD = 72  # bytes up to the end of the application id: https://www.sqlite.org/fileformat.html


def forms_in_files(texts: Collection[str], *, whole: bool = False) -> list[bytes]:
    """Return the bytes to search for: each text unchanged, in JSON, and with line breaks as a prompt history has them.

    With `whole` the whole texts are searched for, whatever their length.
    """
    probes = {text if whole else probe_of(text) for text in texts} - {""}
    found = {form for text in probes for form in (*forms_of(text), text.replace("\n", "\n+"))}
    return [form.encode("utf-8", "surrogatepass") for form in found]


def search(sessions: Collection[str], forms: Collection[bytes]) -> tuple[list[Path], int]:
    """Search the files of sessions and of their projects for any of `forms`.

    Returns:
        The files that contain one, and the number of files that were not read completely, because of the time limit
        or missing permissions.
    """
    matches, left_out = list[Path](), 0
    until = time.monotonic() + TIME_LIMIT
    for number, path in enumerate(_files(sessions) if forms else ()):
        is_late = number >= MAX_FILES or time.monotonic() > until
        contains = None if is_late else _contains(path, forms, until)
        matches += [path] if contains else []
        left_out += contains is None
    return matches, left_out


def store_of(path: Path) -> tuple[str, str] | None:
    """Return the URL of the store of this program that a file is part of, and the session if it holds only one.

    None if it is of no store. A file of another name is of none, although it may be a copy: no store erases what is in
    it. A copy of a database is a store of its own.
    """
    if path.name in FILE_NAMES:
        folder = path.parent.parent if path.parent.name == FORMER_NAME else path.parent
        return f"jsonl:{folder.parent}", folder.name
    database = path.with_name(_SIDE_FILE.sub("", path.name))
    try:
        with database.open("rb") as file:
            head = file.read(_SQLITE_HEAD)
    except OSError:
        return None
    application = int.from_bytes(head[-4:], "big")
    if application == ONE_SESSION_ID and database.name == DATABASE_NAME:
        return f"jsonl:{path.parent.parent}", path.parent.name
    return (f"sqlite:{database}", "") if application == APPLICATION_ID else None


def _files(sessions: Collection[str]) -> Iterator[Path]:
    for project in sorted(Path.home().glob(".amplifier/projects/*")):
        folders = [project / "sessions" / name for name in sorted(sessions)]
        folders = [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]
        if not folders or project.is_symlink():
            continue
        for place, inner, names in chain(islice(os.walk(project), 1), *map(os.walk, folders)):
            inner.sort()
            paths = (Path(place, name) for name in sorted(names))
            yield from (path for path in paths if path.is_file() and not path.is_symlink())


def _contains(path: Path, forms: Collection[bytes], until: float) -> bool | None:
    """Return None if the file was not read completely."""
    overlap = max(map(len, forms)) - 1
    before = b""
    try:  # it may have been replaced since it was listed, by a link or a pipe
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                data = before + data
                if any(form in data for form in forms):
                    return True
                if time.monotonic() > until:
                    return None
                before = data[max(0, len(data) - overlap) :]
    except OSError:
        return None
    return False
