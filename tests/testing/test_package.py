"""The package as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import amplifier_context_testing

FOLDER = Path(amplifier_context_testing.__file__ or "").parent


def test_importing_the_package_imports_no_kernel_and_no_core() -> None:
    program = (
        "import sys, amplifier_context_testing\n"
        "heavy = ('amplifier_core', 'amplifier_context_core', 'pydantic')\n"
        "print(sorted(name for name in sys.modules if name.startswith(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_exported_is_there_and_sorted() -> None:
    names = amplifier_context_testing.__all__
    assert names == sorted(names)
    assert all(hasattr(amplifier_context_testing, name) for name in names)


def test_the_judge_asks_neither_core_nor_replay_modules() -> None:
    source = "".join((FOLDER / "checks" / f"{name}.py").read_text() for name in ("request_checker", "message_shapes"))
    assert "amplifier_context_core" not in source
    assert "import amplifier_context" not in source
