"""What a package index shows of each package, and what it brings along."""

from __future__ import annotations

from email.message import Message
from email.parser import Parser
from pathlib import Path

from tests.packaging.builds import ROOT, Built


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
