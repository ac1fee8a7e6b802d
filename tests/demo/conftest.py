"""A folder with a plan in it, and the command run there."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_cli.app import main

PLAN = Path(__file__).parents[2] / "examples" / "explore.yaml"

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`amplifier-context run ...` in a folder of its own, also its home, 110 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "110")
    return lambda *arguments: CliRunner().invoke(main, ["run", *map(str, arguments)])


def clone_at(folder: Path) -> Path:
    """What the demo needs of a clone: its plan, and something to explore."""
    (folder / "examples").mkdir()
    shutil.copy(PLAN, folder / "examples")
    for number in range(12):
        lines = [f"def step_{number}_{line}(value): return helper_{number}.apply(value, {line})" for line in range(40)]
        (folder / f"part_{number}.py").write_text("\n".join(lines))
    return folder
