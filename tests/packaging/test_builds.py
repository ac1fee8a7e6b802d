"""What the build backend makes of each package's folder, and what a package index shows of it."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.packaging.builds import PACKAGES, ROOT, Built, build, files_of

ABOUT_THE_FOLDER = {"pyproject.toml", "setup.py", "README.md", "LICENSE"}


def only(*names: str) -> pytest.MarkDecorator:
    folders = [folder for folder in PACKAGES if folder.name in {f"amplifier_context_{name}" for name in names}]
    return pytest.mark.parametrize("built", folders, indirect=True, ids=lambda folder: folder.name)


def test_a_wheel_holds_the_files_of_the_folder_and_no_others_and_nothing_is_left_there(built: Built) -> None:
    packed = {name.split("/", 1)[1] for name in built.in_the_wheel() if name.startswith(f"{built.top}/")}
    assert packed == built.before - ABOUT_THE_FOLDER
    assert "py.typed" in packed
    assert files_of(built.folder) == built.before


def test_a_wheel_from_the_source_archive_is_the_wheel_from_the_folder(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [unpacked] = tmp_path.iterdir()
    rebuilt = build(unpacked, "wheel", tmp_path / "out")
    with zipfile.ZipFile(rebuilt) as one, zipfile.ZipFile(built.wheel) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


@only("simple", "core")
def test_a_module_that_was_removed_is_not_in_the_next_wheel(built: Built, tmp_path: Path) -> None:
    stale = built.folder / "stale_module.py"
    stale.write_text("")
    assert f"{built.top}/stale_module.py" in zipfile.ZipFile(build(built.folder, "wheel", tmp_path)).namelist()
    stale.unlink()
    assert f"{built.top}/stale_module.py" not in zipfile.ZipFile(build(built.folder, "wheel", tmp_path)).namelist()


def test_a_package_index_shows_licence_and_readme_and_no_place_of_the_machine_that_built_it(built: Built) -> None:
    files = built.in_the_wheel()
    [info] = {name.split("/")[0] for name in files if name.split("/")[0].endswith(".dist-info")}
    text = files[f"{info}/METADATA"].decode("utf-8")
    metadata = Parser().parsestr(text)
    assert built.in_the_sdist()["LICENSE"] == files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
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
