"""What the pages name is there: modules and what is imported from them, and tests."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

import pytest

from tests.pages import PATHS, ROOT, read

PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PATHS}
PAGES["CONTRIBUTING.md"] = read("CONTRIBUTING.md")
OURS = r"\bamplifier_context_(?:core|simple|persistent|summary|recall|testing)(?:\.\w+)+(?::\w+)?"


def found(path: str) -> Any:
    """The module or the member that a dotted path names.

    Raises:
        AttributeError: the module has no such member.
        ModuleNotFoundError: not even its first part is a module.
    """
    parts = path.replace(":", ".").split(".")
    for length in range(len(parts), 0, -1):
        try:
            place: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            place = getattr(place, name)
        return place
    raise ModuleNotFoundError(path)


def is_there(path: str) -> bool:
    try:
        found(path)
    except (AttributeError, ModuleNotFoundError):
        return False
    return True


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_ours_on_a_page_can_be_imported_from_where_the_page_says(page: str) -> None:
    wrong = [path for path in re.findall(OURS, PAGES[page]) if not is_there(path)]
    for module, names in re.findall(r"\bfrom (amplifier_context_[\w.]+) import ([\w, ]+)", PAGES[page]):
        wrong += [f"{module}.{name}" for name in re.split(r",\s*", names.strip()) if not is_there(f"{module}.{name}")]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_a_page_runs_with_python_m_is_there(page: str) -> None:
    modules = re.findall(r"python\S* -m ([\w.]+)", PAGES[page])
    assert [module for module in modules if not importlib.util.find_spec(module)] == []


def test_every_test_that_a_page_names_is_there() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"\bdef (test_\w+)\(", tests))
    named = {name: page for page, text in PAGES.items() for name in re.findall(r"`(test_\w+)`", text)}
    assert {name: page for name, page in named.items() if name not in there} == {}


def test_every_guarantee_names_a_test_of_the_file_at_its_path() -> None:
    rows = [line for line in read("docs/guarantees.md").splitlines() if line.startswith("- ")]
    named = [re.search(r" `([\w/.]+)::(test_\w+)`$", row) for row in rows]
    assert len(rows) > 40
    assert all(named)
    assert [one[0] for one in named if one and not re.search(rf"\bdef {one[2]}\(", read(one[1]))] == []
