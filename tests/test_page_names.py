"""What the pages name is there: modules, classes, functions and attributes at the place named, and tests."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import pytest

import amplifier_context_core
from tests.pages import PATHS, ROOT, read

PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PATHS}
PAGES["CONTRIBUTING.md"] = read("CONTRIBUTING.md")
OURS = r"\bamplifier_context_(?:core|simple|persistent|summary|recall|testing)(?:\.\w+)+(?::\w+)?"
NAME = re.compile(r"`([A-Z][a-z]\w*|[a-z_]+(?=\([^`]*\)`))")  # a class, or a function with its arguments
FOR_AUTHORS = ("docs/extending.md", "docs/recall.md", "docs/reference.md")
FACES = (
    "amplifier_context_core",
    "amplifier_context_core.compat",
    "amplifier_context_core.errors",
    "amplifier_context_core.items",
    "amplifier_context_core.messages",
    "amplifier_context_core.stores",
    "amplifier_context_testing.store_contract",
    "amplifier_context_testing.strategy_contract",
)
OF_THE_KERNEL = {"ContextLengthError", "ToolResult"}


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


def without_code(page: str) -> str:
    return re.sub(r"```.*?```", "", page, flags=re.DOTALL)


def unimportable(page: str) -> list[str]:
    """Names that a page says are at a place where they are not.

    A paragraph or a row that names a module places the classes and functions that it names after it in that module.
    """
    wrong = [path for path in re.findall(OURS, page) if not is_there(path)]
    for module, names in re.findall(r"\bfrom (amplifier_context_[\w.]+) import ([\w, ]+)", page):
        wrong += [f"{module}.{name}" for name in re.split(r",\s*", names.strip()) if not is_there(f"{module}.{name}")]
    for paragraph in re.split(r"\n\n|\n(?=[-|] ?)", without_code(page)):
        places = [(one.start(), found(one[1])) for one in re.finditer(rf"`({OURS})`", paragraph) if is_there(one[1])]
        modules = [(start, place) for start, place in places if isinstance(place, ModuleType)]
        for name in NAME.finditer(paragraph):
            before = [place for start, place in modules if start < name.start()]
            if before and not any(hasattr(place, name[1]) for place in (*before, builtins)):
                wrong.append(f"{before[-1].__name__}.{name[1]}")
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_ours_on_a_page_can_be_imported_from_where_the_page_says(page: str) -> None:
    assert unimportable(PAGES[page]) == []


def test_a_function_that_a_sentence_places_in_a_module_must_be_there() -> None:
    sentence = "`amplifier_context_core.messages` reads them: `calls_of(message)`, `copy_json(value)`."
    assert unimportable(sentence) == ["amplifier_context_core.messages.copy_json"]
    assert unimportable("`amplifier_context_core.nowhere`") == ["amplifier_context_core.nowhere"]
    assert unimportable("from amplifier_context_core import Draft, Nothing") == ["amplifier_context_core.Nothing"]


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


@pytest.mark.parametrize("page", FOR_AUTHORS)
def test_every_class_on_a_page_for_authors_has_a_public_place(page: str) -> None:
    public = [found(face) for face in FACES]
    defined = set(re.findall(r"^class (\w+)", PAGES[page], re.MULTILINE)) | OF_THE_KERNEL
    named = set(re.findall(r"`([A-Z][a-z]\w+)(?=[`.(])", without_code(PAGES[page]))) - defined
    assert sorted(name for name in named if not any(hasattr(place, name) for place in (*public, builtins))) == []


# -- members of classes ------------------------------------------------------------------------------------------------


@cache
def classes() -> Mapping[str, type]:
    """The classes of the core by name."""

    def every() -> Iterator[type]:
        for info in pkgutil.walk_packages(amplifier_context_core.__path__, "amplifier_context_core."):
            if info.name == "amplifier_context_core.setup":  # of packaging: it builds when it is imported
                continue
            module = importlib.import_module(info.name)
            yield from (kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == info.name)

    return {kind.__name__: kind for kind in every()}


@pytest.mark.parametrize("page", PAGES)
def test_every_member_that_a_page_names_of_a_class_is_there(page: str) -> None:
    wrong: list[str] = []
    for name, member in re.findall(r"`([A-Z][a-z]\w+)\.([a-z]\w+)", without_code(PAGES[page])):
        kind = classes().get(name)
        if kind is not None and not hasattr(kind, member) and f"self.{member}" not in inspect.getsource(kind):
            fields = {field for base in kind.__mro__ for field in getattr(base, "__annotations__", {})}
            wrong += [f"{name}.{member}"] if member not in fields else []
    assert wrong == []
