"""The kernel's own suites for context modules, inherited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from amplifier_core.validation.behavioral import ContextBehaviorTests
from amplifier_core.validation.structural import ContextStructuralTests

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
