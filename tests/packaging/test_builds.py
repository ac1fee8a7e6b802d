"""What the build backend makes of each package's folder, and what a package index shows of it."""

import os
import shutil
import subprocess
import sys
import tarfile
import warnings
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Literal

import pytest
from build import ProjectBuilder
from pyproject_hooks import quiet_subprocess_runner

from tests.pages import ROOT

PACKAGES = [path.parent for path in sorted(ROOT.glob("*/pyproject.toml"))]


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def build(folder: Path, what: Literal["wheel", "sdist", "editable"], out: Path) -> Path:
    """Build by the folder's own backend, in the environment as it is; return the file that was built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # setuptools warns of each editable build
        return Path(ProjectBuilder(folder, runner=quiet_subprocess_runner).build(what, out))


@dataclass(frozen=True)
class Built:
    """A copy of a package's folder, and what was built in it."""

    folder: Path
    before: set[str]  # its files before anything was built
    wheel: Path
    sdist: Path

    @property
    def top(self) -> str:
        return self.wheel.name.split("-")[0]

    def in_the_wheel(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


LEFTOVERS = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")


@pytest.fixture(scope="session", params=PACKAGES, ids=lambda folder: folder.name)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Each package: the source archive of its folder, and the wheel that is built from the archive, as for an index."""
    scratch = tmp_path_factory.mktemp("built")
    folder = scratch / request.param.name
    shutil.copytree(request.param, folder, ignore=LEFTOVERS)
    before = files_of(folder)
    sdist = build(folder, "sdist", scratch / "out")
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "unpacked", filter="data")
    [unpacked] = (scratch / "unpacked").iterdir()
    return Built(folder, before, build(unpacked, "wheel", scratch / "out"), sdist)


ABOUT_THE_FOLDER = {"pyproject.toml", "setup.py", "README.md", "LICENSE"}


def only(*names: str) -> pytest.MarkDecorator:
    folders = [folder for folder in PACKAGES if folder.name in {f"amplifier_context_{name}" for name in names}]
    return pytest.mark.parametrize("built", folders, indirect=True, ids=lambda folder: folder.name)


def test_a_wheel_holds_the_files_of_the_folder_and_no_others_and_nothing_is_left_there(built: Built) -> None:
    packed = {name.split("/", 1)[1] for name in built.in_the_wheel() if name.startswith(f"{built.top}/")}
    assert packed == built.before - ABOUT_THE_FOLDER
    assert "py.typed" in packed
    assert files_of(built.folder) == built.before


@only("simple", "core")
def test_a_module_that_was_removed_is_not_in_the_next_wheel(built: Built, tmp_path: Path) -> None:
    stale = built.folder / "stale_module.py"
    stale.write_text("")
    build(built.folder, "editable", tmp_path / "editable")
    assert f"{built.top}/stale_module.py" in zipfile.ZipFile(build(built.folder, "wheel", tmp_path)).namelist()
    stale.unlink()
    assert f"{built.top}/stale_module.py" not in zipfile.ZipFile(build(built.folder, "wheel", tmp_path)).namelist()
    assert files_of(built.folder) == built.before


def test_a_package_index_shows_licence_and_readme_and_no_place_of_the_machine_that_built_it(built: Built) -> None:
    files = built.in_the_wheel()
    [info] = {name.split("/")[0] for name in files if name.split("/")[0].endswith(".dist-info")}
    text = files[f"{info}/METADATA"].decode("utf-8")
    metadata = Parser().parsestr(text)
    with tarfile.open(built.sdist) as archive:
        packed = archive.extractfile(f"{built.sdist.name.removesuffix('.tar.gz')}/LICENSE")
        assert packed is not None
        assert packed.read() == files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert (metadata["License-Expression"], metadata["Description-Content-Type"]) == ("MIT", "text/markdown")
    readme = (built.folder / "README.md").read_text(encoding="utf-8")
    assert metadata.get_payload().strip() == readme.strip()
    assert "](" not in readme.replace("](http", ""), "a relative link leads nowhere on a package index"
    assert not [place for place in ("file:", str(Path.home()), str(built.folder.parent)) if place in text]


_SESSIONS = """
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


@pytest.mark.kernel
@only("simple", "persistent")
def test_each_session_takes_a_source_folder_before_the_installed_copy(built: Built, tmp_path: Path) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(tmp_path)  # as `pip install FOLDER` leaves it in site-packages
    folder, module = ROOT / built.folder.name, built.top.removeprefix("amplifier_").replace("_", "-")
    command = [sys.executable, "-c", _SESSIONS, built.top, module, str(folder), str(folder), ""]
    here = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == [str(folder / "__init__.py")], done.stderr
