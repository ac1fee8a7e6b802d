"""The architecture, read from the imports: they go one way, pure rooms are pure, no file hides another module."""

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = "amplifier_context_core"
FOLDERS = {path.parent.name: path.parent for path in sorted(ROOT.glob("*/pyproject.toml"))}
PACKAGES = {CORE: FOLDERS[CORE], "amplifier_context_testing": FOLDERS["testing"]} | {
    name: folder for name, folder in FOLDERS.items() if name.startswith("amplifier_context_")
}

# The layers of core, lowest first. A module imports from its own layer and from lower ones. A folder is one layer; the
# files of core's own folder are named one by one.
LAYERS = (
    ("errors", "arguments", "amounts", "failures", "futures", "locks", "events", "default_paths", "config", "plugins"),
    ("items",),
    ("messages",),
    ("transcript",),
    ("rendering",),
    ("compaction", "economics", "outgoing"),
    ("stores",),
    ("history",),
    ("view",),
    ("session",),
    ("manager",),
    ("kernel",),
    ("compat",),
    ("repair",),
)
MAX_LEVELS = 10
MAX_ATTRIBUTES = 12  # that an instance keeps
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
PURE = "Pure: no I/O, no clock"
IMPURE = (
    {"asyncio", "io", "logging", "multiprocessing", "queue", "selectors", "signal", "socket", "subprocess", "threading"}
    | {"glob", "os", "pathlib", "shutil", "sqlite3", "tempfile", "urllib"}
    | {"datetime", "random", "secrets", "time", "uuid"}
)
_OPENING = frozenset(["open", "print", "input", "exec", "eval"])


def sources(folder: Path) -> Iterator[Path]:
    """The modules of a package; setup.py builds it and is none of them."""
    for path in sorted(folder.rglob("*.py")):
        if not {"build", "__pycache__"} & set(path.relative_to(folder).parts) and path != folder / "setup.py":
            yield path


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_name(package: str, path: Path) -> str:
    parts = [package, *path.relative_to(PACKAGES[package]).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(package: str, path: Path) -> frozenset[str]:
    """Return the modules that a file imports, by full name: when it is loaded, when it is used, or for its types."""
    here = module_name(package, path).split(".")
    parent = here if path.name == "__init__.py" else here[:-1]
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parent[: len(parent) - node.level + 1] if node.level else []
            source = ".".join([*base, node.module] if node.module else base)
            if node.module:  # `from . import x` names the package only because x is defined in it
                found.add(source)
            if node.level or source.split(".")[0] in PACKAGES:
                names = (f"{source}.{alias.name}" for alias in node.names)
                found.update(name for name in names if name in MODULES)
    return frozenset(found)


MODULES = {module_name(package, path): (package, path) for package in PACKAGES for path in sources(PACKAGES[package])}
CORE_MODULES = {name: path for name, (package, path) in MODULES.items() if package == CORE}


def short(name: str) -> str:
    """A module of core without the package's name, e.g. ``economics.meter``."""
    return name.removeprefix(f"{CORE}.")


def place(name: str) -> str:
    """What LAYERS calls the place of a module: its folder, or its own name in core's own folder."""
    return short(name).split(".")[0]


def inner(name: str) -> set[str]:
    """Return the modules of core that one of them imports."""
    # `from .strategies.base import x` names the package too, only because it is on the way.
    return {one for one in imported(CORE, CORE_MODULES[name]) if one in CORE_MODULES and one not in (CORE, name)}


def test_every_module_has_its_place_in_a_layer() -> None:
    assert {place(name) for name in CORE_MODULES} - {CORE} == set(RANK)


def test_imports_go_downward_only() -> None:
    wrong = [
        f"{short(name)} imports {short(other)}, which is in a higher layer"
        for name in sorted(set(CORE_MODULES) - {CORE})
        for other in sorted(inner(name))
        if RANK[place(other)] > RANK[place(name)]
    ]
    assert wrong == []


def test_no_import_closes_a_circle() -> None:
    """In no package, not even a lazy one."""
    graph: dict[str, set[str]] = {}
    for name, (package, path) in MODULES.items():
        found = imported(package, path)
        graph[name] = {one for one in found if one in MODULES and one != name and not name.startswith(f"{one}.")}
    TopologicalSorter(graph).prepare()  # raises an error that names the modules of a circle


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_of_the_other_packages_a_package_imports_core_alone(package: str) -> None:
    found = {name.split(".")[0] for path in sources(PACKAGES[package]) for name in imported(package, path)}
    also = {
        "amplifier_context_testing": "cli",
        "amplifier_context_cli": "recall",
        "amplifier_context_persistent": "recall",
    }
    assert found & PACKAGES.keys() <= {package, CORE, f"amplifier_context_{also.get(package)}"}


def test_core_has_at_most_ten_levels() -> None:
    """A level is a place in the longest chain of imports from room to room; a room is a folder or a single file."""
    graph: dict[str, set[str]] = {}
    for name in set(CORE_MODULES) - {CORE}:
        graph.setdefault(place(name), set()).update(place(one) for one in inner(name))
    chains: dict[str, tuple[str, ...]] = {}
    for room in TopologicalSorter({room: below - {room} for room, below in graph.items()}).static_order():
        below = max((chains[one] for one in graph[room] - {room}), key=len, default=())
        chains[room] = (room, *below)
    longest = max(chains.values(), key=len)
    assert len(longest) <= MAX_LEVELS, " imports ".join(longest)


def test_no_class_name_is_defined_twice_in_core() -> None:
    """Nor a private one, `_Name` beside `Name`."""
    defined: dict[str, list[str]] = {}
    for name, path in CORE_MODULES.items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name.lstrip("_"), []).append(f"{short(name)}.{node.name}")
    assert [where for where in defined.values() if len(where) > 1] == []


# -- pure modules ------------------------------------------------------------------------------------------------------
def pure_modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, path in CORE_MODULES.items():
        parts = name.split(".")
        itself_and_folders = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        if any(PURE in (ast.get_docstring(parsed(CORE_MODULES[one])) or "") for one in itself_and_folders):
            found[name] = path
    return found


def test_a_pure_module_imports_neither_io_nor_clock_opens_nothing_and_waits_for_nothing() -> None:
    pure = pure_modules()
    assert "messages.parsing" in map(short, pure)
    found = [
        f"{short(name)} imports {one}"
        for name, path in pure.items()
        for one in sorted(imported(CORE, path))
        if one.split(".")[0] in IMPURE
    ]
    found += [
        f"{short(name)}:{node.lineno}: {ast.unparse(node).splitlines()[0]}"
        for name, path in pure.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.Global))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OPENING)
    ]
    assert found == []


# -- what a package may need, and what its files may be called ---------------------------------------------------------
def test_core_is_imported_without_the_kernel_and_without_a_vocabulary() -> None:
    blocked = ("amplifier_core", "amplifier_context_testing", "tiktoken", "bpe_openai", "click", "rich")
    script = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "import amplifier_context_core as core\n"
        "assert core.count_tokens([{'role': 'user', 'content': 'abcd'}]) == 5\n"
        "import amplifier_context_core.kernel\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_file_of_a_package_hides_a_module_of_python_or_of_a_dependency() -> None:
    """The kernel's loader puts a flat folder first on `sys.path` (docs/kernel.md)."""
    taken = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions()) | set(PACKAGES)
    for name, folder in FOLDERS.items():
        names = {path.parent.name for path in folder.glob("*/*.py")} | {path.stem for path in folder.glob("*.py")}
        assert not (names - {"__init__", name}) & taken, name  # a module of the folder's own name is the package itself


def kept(node: ast.ClassDef) -> set[str]:
    """Return what instances of a class keep: its slots, what its methods assign to themselves, and the fields of a
    dataclass that is not frozen.
    """
    found = set[str]()
    made = [ast.unparse(one) for one in node.decorator_list]
    has_fields = any("dataclass" in one and "frozen=True" not in one for one in made)
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and has_fields and "ClassVar" not in ast.unparse(one.annotation):
            found.add(ast.unparse(one.target))
        elif isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__slots__":
            found.update(ast.literal_eval(one.value))
        elif isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.args.args:
            itself = one.args.args[0].arg
            stored = (each for each in ast.walk(one) if isinstance(each, ast.Attribute))
            assigned = (each for each in stored if isinstance(each.ctx, ast.Store))
            found.update(each.attr for each in assigned if ast.unparse(each.value) == itself)
    return found - {one.name for one in node.body if isinstance(one, ast.FunctionDef)} - {"__weakref__"}


def with_bases(name: str, classes: dict[str, list[ast.ClassDef]]) -> set[str]:
    found = set[str]()
    for node in classes.get(name, ()):
        bases = (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
        found |= kept(node).union(*(with_bases(base, classes) for base in bases if base != name))
    return found


@pytest.mark.parametrize("package", sorted(FOLDERS.keys() - {"testing"}))
def test_no_class_keeps_more_than_twelve_attributes(package: str) -> None:
    """Attributes that can disagree: those of a frozen dataclass, a tuple or a config cannot, after it was made.

    A class also has those of its bases, and of theirs, that the same package defines: to move a part into a base
    divides nothing. Bases of other packages and libraries do not count.
    """
    classes: dict[str, list[ast.ClassDef]] = {}
    for node in (node for path in sources(FOLDERS[package]) for node in ast.walk(parsed(path))):
        if isinstance(node, ast.ClassDef):
            classes.setdefault(node.name, []).append(node)
    numbers = {name: len(with_bases(name, classes)) for name in classes}
    assert {name: number for name, number in numbers.items() if number > MAX_ATTRIBUTES} == {}
