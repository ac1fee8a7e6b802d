"""The kernel's own suites for context modules, inherited."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from amplifier_core.validation.behavioral import ContextBehaviorTests
from amplifier_core.validation.structural import ContextStructuralTests

from tests.places import MARKS

pytestmark = pytest.mark.kernel


class TestBehaviour(ContextBehaviorTests):
    """What the kernel asks of a mounted context."""


class TestStructure(ContextStructuralTests):
    """What the kernel asks of the package."""


def test_the_suites_are_there() -> None:
    """An empty suite would pass as well."""
    assert len([name for name in dir(TestBehaviour) if name.startswith("test_")]) >= 10
    assert [name for name in dir(TestStructure) if name.startswith("test_")]


def test_the_kernels_validator_passes_the_folder(module_path: Path) -> None:
    command = [Path(sys.executable).with_name("amplifier-core"), "validate", "context", f"./{module_path.name}"]
    for _ in range(3):
        done = subprocess.run(
            command,
            cwd=module_path.parent,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "NO_COLOR": "1"},
            check=False,
        )
        if done.returncode >= 0:  # below: the kernel's engine died of its own threads when the interpreter closed
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout


def outcome(conftest: Path, *marks: pytest.MarkDecorator) -> str:
    """What a conftest makes of a test that skipped."""
    spec = importlib.util.spec_from_file_location("conftest_under_test", conftest)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {decorator.name: decorator.mark for decorator in marks}
    item = SimpleNamespace(nodeid="test_it", get_closest_marker=found.get)
    report = SimpleNamespace(skipped=True, outcome="skipped", longrepr="nothing to test")
    hook = module.pytest_runtest_makereport(item, None)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    return report.outcome


def test_a_skip_in_this_folder_is_a_failure() -> None:
    assert outcome(Path(__file__).with_name("conftest.py")) == "failed"


@pytest.mark.parametrize(("ci", "expected"), [("true", "failed"), ("", "skipped")])
def test_in_ci_a_skipped_test_of_the_kernel_or_a_server_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, ci: str, expected: str
) -> None:
    monkeypatch.setenv("CI", ci)
    conftest = Path(__file__).parents[1] / "conftest.py"
    for mark in (pytest.mark.kernel, *MARKS.values()):
        assert outcome(conftest, mark) == expected
    assert outcome(conftest) == "skipped"
