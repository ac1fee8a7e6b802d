"""A module's folder is named as `source` where the module is installed as well: the plan's folder is what is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from build import ProjectBuilder
from pyproject_hooks import quiet_subprocess_runner

from tests.kernel.mounted import CURRENT

pytestmark = pytest.mark.kernel

_SESSION = """
import asyncio, importlib, os, sys
from amplifier_context_testing import mount_plan, session

package, module, *sources = sys.argv[1:]

async def main():
    for source in sources:
        context = {"module": module, "config": {"max_tokens": 9_000}} | ({"source": source} if source else {})
        async with session(mount_plan(context, script=["Hello."])) as running:
            assert await running.execute("Hi.") == "Hello."
    print(importlib.import_module(package).__file__)

asyncio.run(main())
sys.stdout.flush()
os._exit(0)  # the kernel's engine can end a process that finalizes with "PyGILState_Release"; seen in one run of many
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The wheel of a package's folder, built once."""

    @cache
    def wheel_of(folder: Path) -> Path:
        out = tmp_path_factory.mktemp("wheels")
        return Path(ProjectBuilder(folder, runner=quiet_subprocess_runner).build("wheel", out))

    return wheel_of


@pytest.fixture
def installed(module_path: Path, tmp_path: Path, wheels: Callable[[Path], Path]) -> Path:
    """A folder for `sys.path` with a copy of the module, as `pip install FOLDER` leaves it in site-packages."""
    with zipfile.ZipFile(wheels(module_path)) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def output_of(installed: Path, *arguments: str) -> str:
    """What Python prints where that copy is installed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def loaded_from(installed: Path, *sources: str) -> Path:
    """The file of the module after sessions with these sources, one after the other; "" is a plan without one."""
    return Path(output_of(installed, "-c", _SESSION, CURRENT.package, CURRENT.module, *sources).splitlines()[-1])


def test_each_session_takes_a_source_folder_before_the_installed_copy(installed: Path, module_path: Path) -> None:
    assert loaded_from(installed, str(module_path), str(module_path), "") == module_path / "__init__.py"
