"""Where sessions of a project are kept: the same folder, and the same file name, as the module we replace uses."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sessions_folder(project: Path | None = None) -> Path:
    """``~/.amplifier/projects/<name>-<first 8 of sha256 of the path>/sessions`` (KERNEL.md's default).

    Args:
        project: folder of the project; the current one when not given.
    """
    folder = (project or Path.cwd()).resolve()
    digest = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return Path.home() / ".amplifier" / "projects" / f"{folder.name}-{digest}" / "sessions"
