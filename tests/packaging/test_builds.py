"""What the build backend makes of each package's folder, and what a package index shows of it."""

from __future__ import annotations

import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.packaging.builds import PACKAGES, ROOT, Built, build, files_of

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


def metadata_text(built: Built) -> str:
    [name] = [name for name in built.in_the_wheel() if name.endswith(".dist-info/METADATA")]
    return built.in_the_wheel()[name].decode("utf-8")


def metadata_of(built: Built) -> Message:
    return Parser().parsestr(metadata_text(built))


def test_the_licence_is_in_every_wheel_and_source_archive(built: Built) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    assert built.in_the_sdist()["LICENSE"] == licence
    [name] = [name for name in built.in_the_wheel() if name.endswith(".dist-info/licenses/LICENSE")]
    assert built.in_the_wheel()[name] == licence
    assert metadata_of(built)["License-Expression"] == "MIT"


def test_type_checkers_see_that_the_package_has_types(built: Built) -> None:
    assert f"{built.top}/py.typed" in built.in_the_wheel()


def test_the_description_is_the_packages_readme(built: Built) -> None:
    metadata = metadata_of(built)
    assert metadata["Description-Content-Type"] == "text/markdown"
    readme = (built.folder / "README.md").read_text(encoding="utf-8")
    assert metadata.get_payload().strip() == readme.strip()
    assert "](" not in readme.replace("](http", ""), "a relative link leads nowhere on a package index"


def test_metadata_names_no_place_of_the_machine_that_built_it(built: Built) -> None:
    text = metadata_text(built)
    assert "file:" not in text
    assert str(Path.home()) not in text
    assert str(built.folder.parent) not in text
