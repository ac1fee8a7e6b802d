"""What a package index shows of each package, and what it brings along."""

from __future__ import annotations

from email.message import Message
from email.parser import Parser
from importlib.metadata import entry_points
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


def test_the_classifiers_name_status_system_versions_and_typing(built: Built) -> None:
    classifiers = metadata_of(built).get_all("Classifier") or []
    assert [name for name in classifiers if name.startswith("Development Status :: ")]
    assert [name for name in classifiers if name.startswith("Operating System :: ")]
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(classifiers)
    assert "Typing :: Typed" in classifiers


def test_metadata_names_no_place_of_the_machine_that_built_it(built: Built) -> None:
    text = metadata_text(built)
    assert "file:" not in text
    assert str(Path.home()) not in text
    assert str(built.folder.parent) not in text


def test_the_readme_of_a_context_module_names_no_other_one(built: Built) -> None:
    points = [one for one in entry_points(group="amplifier.modules") if one.name.startswith("context-")]
    own, modules = {one.name for one in points if one.module == built.top}, {one.name for one in points}
    readme = (built.folder / "README.md").read_text(encoding="utf-8")
    if own:
        assert [name for name in modules - own if name in readme] == []
