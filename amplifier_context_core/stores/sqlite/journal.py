"""How SQLite keeps a transaction whole: by a log beside the file, or on network file systems by a journal.

The log (WAL) needs memory that all programs share. Across a network there is none, and a database would be damaged
(https://www.sqlite.org/wal.html, "Overview"). The journal needs locks only. It is slower,
and a writer waits for readers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

JournalMode = Literal["WAL", "TRUNCATE"]
_NAMED = "?journal=truncate"  # at the end of a URL, where the file system is not recognised
_MOUNTS = Path("/proc/self/mountinfo")  # of Linux; see proc_pid_mountinfo(5)
# Types of file systems that several machines share, or that have no shared memory.
_NETWORK = re.compile(
    r"9p|afs|beegfs|ceph|cifs|davfs|drvfs|fuse\..*|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|smb3|smbfs|virtiofs"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def journal_in(path: str) -> tuple[str, JournalMode | None]:
    """Return the path of a URL, and the mode that the URL names; None if it names none."""
    if path.endswith(_NAMED):
        return path.removesuffix(_NAMED), "TRUNCATE"
    return path, None


def journal_mode(path: Path) -> JournalMode:
    """Return the mode for a database at a path, by its file system. One that is not recognised is taken for local."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return "WAL"
    return "TRUNCATE" if _NETWORK.fullmatch(file_system(os.path.realpath(path.parent), mounts)) else "WAL"


def file_system(path: str, mounts: str) -> str:
    """Return the type of the file system that holds an absolute path without links; empty if it is not known. `mounts`
    is as in ``/proc/self/mountinfo``.
    """
    found, longest = "", -1
    for line in mounts.splitlines():
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        if len(fields) < 5 or not tail:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two at one place, the later one is on top
            found, longest = tail.split(" ")[0], len(point)
    return found
