"""A folder with a plan in it, and the command run there."""

from __future__ import annotations

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


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The folder of `run`, made like a clone."""
    return clone_at(tmp_path)


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small plan; the parts may be replaced by any YAML."""

    def write(*, context: str = "context-simple", orchestrator: str = "loop-replay", more: str = "") -> Path:
        file = tmp_path / "plan.yaml"
        file.write_text(
            f"session: {{orchestrator: {orchestrator}, context: {context}}}\n"
            f"providers: [{{module: provider-replay, config: {{script: [Hello.]}}}}]\n{more}\n"
        )
        return file

    return write


def lines_with(result: Result, text: str) -> list[str]:
    """The lines of the output that hold a text."""
    return [line for line in result.output.splitlines() if text in line]
