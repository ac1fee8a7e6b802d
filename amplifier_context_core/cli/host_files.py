"""Files of Amplifier's hosts that hold a text: transcripts, event logs and prompt histories of a session.

A host keeps them below ``~/.amplifier/projects``, in folders named after the session. They are not ours to change. They
are found by reading what is there, within limits of time and number, and without following links.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 10.0  # seconds
MOST = 10_000  # files
SHORTEST = 6  # characters: a shorter message stands in any file
PROBE = 200  # characters: of a longer text its beginning is looked for, for a log may cut it
_CHUNK = 1 << 20  # bytes read at once


@dataclass(slots=True)
class Search:
    """What a search for a text found.

    Attributes:
        holding: files that hold it.
        left_out: files that were not read to their end, for want of time or of rights.
    """

    holding: list[Path] = field(default_factory=list[Path])
    left_out: int = 0


def forms_in_files(texts: Collection[str], *, whole: bool = False) -> list[bytes]:
    """Return the bytes to look for in files: texts as they are, in JSON, and as a prompt history breaks their lines.

    Args:
        texts: what to look for.
        whole: look for each as it is, however short or long.
    """
    from ..transcript.redaction import forms_of

    found: set[str] = set()
    for text in texts:
        text = text if whole else text.strip()[:PROBE].strip()
        if text and (whole or len(text) >= SHORTEST):
            found |= {*forms_of(text), text.replace("\n", "\n+")}
    return [form.encode("utf-8", "surrogatepass") for form in found]


def search(sessions: Collection[str], forms: Collection[bytes]) -> Search:
    """Look through the files of hosts for any of these bytes.

    Args:
        sessions: ids of the sessions whose files are read, and those of the projects they are in.
        forms: what to look for.
    """
    found = Search()
    until = time.monotonic() + PATIENCE
    for number, path in enumerate(_files(sessions) if forms else ()):
        if number >= MOST or time.monotonic() > until:
            found.left_out += 1
            continue
        holds = _holds(path, forms, until)
        if holds:
            found.holding.append(path)
        found.left_out += holds is None
    return found


def _files(sessions: Collection[str]) -> Iterator[Path]:
    """The regular files in the folders of sessions, and those beside the sessions in their projects."""
    for project in _entries(Path.home() / ".amplifier" / "projects"):
        folders = [Path(project) / "sessions" / name for name in sorted(sessions)]
        folders = [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]
        if not project.is_dir(follow_symlinks=False) or not folders:
            continue
        yield from (Path(one) for one in _entries(Path(project)) if one.is_file(follow_symlinks=False))
        for folder in folders:
            yield from _below(folder)


def _below(folder: Path) -> Iterator[Path]:
    for one in _entries(folder):
        if one.is_dir(follow_symlinks=False):
            yield from _below(Path(one))
        elif one.is_file(follow_symlinks=False):
            yield Path(one)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda one: one.name)
    except OSError:
        return []


def _holds(path: Path, forms: Collection[bytes], until: float) -> bool | None:
    """True if a file holds one of these; None if that could not be found out."""
    overlap = max(map(len, forms)) - 1
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was exchanged meanwhile
                return None
            before = b""
            while data := file.read(_CHUNK):
                data = before + data
                if any(form in data for form in forms):
                    return True
                if time.monotonic() > until:
                    return None
                before = data[len(data) - overlap :] if overlap else b""
    except OSError:
        return None
    return False
