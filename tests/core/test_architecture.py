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
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


def module_name(package: str, path: Path) -> str:
    parts = [package, *path.relative_to(PACKAGES[package]).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(package: str, path: Path) -> set[str]:
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
            found.update(name for alias in node.names if (name := f"{source}.{alias.name}") in MODULES)
    return found


MODULES = {module_name(package, path): (package, path) for package in PACKAGES for path in sources(PACKAGES[package])}
CORE_MODULES = {name: path for name, (package, path) in MODULES.items() if package == CORE}


def short(name: str) -> str:
    """A module of core without the package's name, e.g. ``economics.meter``."""
    return name.removeprefix(f"{CORE}.")


def place(name: str) -> str:
    """What LAYERS calls the place of a module: its folder, or its own name in core's own folder."""
    return short(name).split(".")[0]


def test_imports_go_downward_only() -> None:
    wrong = [
        f"{short(name)} imports {short(other)}, which is in a higher layer"
        for name in sorted(set(CORE_MODULES) - {CORE})
        for other in sorted(imported(CORE, CORE_MODULES[name]) & CORE_MODULES.keys() - {CORE})
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
    also = {"testing": "cli", "cli": "recall", "persistent": "recall"}.get(package.removeprefix("amplifier_context_"))
    assert found & PACKAGES.keys() <= {package, CORE, f"amplifier_context_{also}"}


# -- pure modules ------------------------------------------------------------------------------------------------------
def is_pure(name: str) -> bool:
    """True if a module or its folder says so."""
    above, _, _ = name.rpartition(".")
    return PURE in (ast.get_docstring(parsed(CORE_MODULES[name])) or "") or (above != "" and is_pure(above))


def test_a_pure_module_imports_neither_io_nor_clock_opens_nothing_and_waits_for_nothing() -> None:
    pure = {name: path for name, path in CORE_MODULES.items() if is_pure(name)}
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
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in _OPENING)
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
