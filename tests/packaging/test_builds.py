"""What the build backend makes of each package's folder: wheels, source archives, editable wheels."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.builds import PACKAGES, Built, build, files_of

FLAT_AND_DEEP = [folder for folder in PACKAGES if folder.name in ("amplifier_context_simple", "amplifier_context_core")]
ABOUT_THE_FOLDER = {"pyproject.toml", "setup.py", "README.md", "LICENSE"}


def test_building_leaves_nothing_in_the_folder(built: Built) -> None:
    assert files_of(built.folder) == built.before


def test_a_wheel_holds_the_files_of_the_folder_and_no_others(built: Built) -> None:
    packed = {name.split("/", 1)[1] for name in built.in_the_wheel() if name.startswith(f"{built.top}/")}
    assert packed == built.before - ABOUT_THE_FOLDER


def test_a_wheel_from_the_source_archive_is_the_wheel_from_the_folder(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [unpacked] = tmp_path.iterdir()
    rebuilt = build(unpacked, "wheel", tmp_path / "out")
    with zipfile.ZipFile(rebuilt) as one, zipfile.ZipFile(built.wheel) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


@pytest.mark.parametrize("built", FLAT_AND_DEEP, indirect=True, ids=lambda folder: folder.name)
def test_a_module_that_was_removed_is_not_in_the_next_wheel(built: Built, tmp_path: Path) -> None:
    stale = built.folder / "stale_module.py"
    stale.write_text("")
    assert f"{built.top}/stale_module.py" in zipfile.ZipFile(build(built.folder, "wheel", tmp_path)).namelist()
    stale.unlink()
    assert f"{built.top}/stale_module.py" not in zipfile.ZipFile(build(built.folder, "wheel", tmp_path)).namelist()
