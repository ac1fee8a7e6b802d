"""A folder with a plan in it, and the command run there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from amplifier_context_cli.app import main

PLAN = Path(__file__).parents[2] / "examples" / "explore.yaml"

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: commands look into what hosts keep there."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`amplifier-context run ...` in an empty folder, 110 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")

    def command(*arguments: object, typed: str | None = None) -> Result:
        return CliRunner().invoke(main, ["run", *map(str, arguments)], input=typed)

    return command


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
    """The current folder of `run`, made like a clone."""
    return clone_at(tmp_path)


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small plan; the parts may be replaced by any YAML."""

    def write(
        *,
        context: str = "context-simple",
        orchestrator: str = "loop-replay",
        providers: str = "[{module: provider-replay, config: {script: [Hello.]}}]",
        more: str = "",
    ) -> Path:
        file = tmp_path / "plan.yaml"
        file.write_text(
            f"session: {{orchestrator: {orchestrator}, context: {context}}}\nproviders: {providers}\n{more}\n"
        )
        return file

    return write


@pytest.fixture
def faulty_context(tmp_path: Path) -> Generator[Callable[[str], str]]:
    """Makes a context module of a class body, over a list that never compacts; returns its entry for a plan."""
    path, modules = list(sys.path), set(sys.modules)

    def make(body: str) -> str:
        folder = tmp_path / "faulty_context"
        folder.mkdir()
        (folder / "__init__.py").write_text(
            "from amplifier_context_testing.fakes import ListContext\n"
            "__amplifier_module_type__ = 'context'\n"
            f"class Faulty(ListContext):\n    {body}\n"
            "async def mount(coordinator, config=None):\n"
            "    await coordinator.mount('context', Faulty())\n"
        )
        return f"{{module: context-faulty, source: {folder}}}"

    yield make
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("faulty_context"):
            del sys.modules[name]


def lines_with(result: Any, text: str) -> list[str]:
    """The lines of the output that hold a text."""
    return [line for line in result.output.splitlines() if text in line]
