"""Default paths of a project's sessions: the same folder and file name as those of the replaced module."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path


def sessions_folder(project: Path | None = None) -> Path:
    """``~/.amplifier/projects/<name>-<first 8 of sha256 of the path>/sessions`` (the default of docs/kernel.md).

    The project is a folder; the current one when not given.
    """
    folder = (project or Path.cwd()).resolve()
    return Path.home() / ".amplifier" / "projects" / f"{folder.name}-{_digest(folder)}" / "sessions"


def project_name(project: Path | None = None) -> str:
    """Return a name of a project's folder that every store takes as part of a session id."""
    folder = (project or Path.cwd()).resolve()
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', folder.name)[:60]}-{_digest(folder)}"


def _digest(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:8]


def in_project(path: str, project: Path | None = None) -> str:
    """Replace ``{project}`` in a path or a URL by the name that Amplifier's hosts give a project's folder.

    It is the folder's path with ``-`` for each separator, as in hooks-logging's `session_log_template`.
    """
    if "{project}" not in path:
        return path
    folder = str((project or Path.cwd()).resolve())
    name = folder.replace("/", "-").replace("\\", "-").replace(":", "")
    return path.replace("{project}", name if name.startswith("-") else f"-{name}")
