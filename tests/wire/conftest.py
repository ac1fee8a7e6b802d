"""What an agent explores in the sessions of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the scripted agent explores."""
    folder = tmp_path / "project"
    folder.mkdir()
    for part in range(12):
        lines = [f"def function_{part}_{line}(value): return function_{(part + 5) % 12}_{line}" for line in range(60)]
        (folder / f"part_{part}.py").write_text("\n".join(lines) + "\n")
    return folder
