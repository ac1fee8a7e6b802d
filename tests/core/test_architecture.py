"""The architecture, read from the imports: they go one way, pure rooms are pure, no file hides another module."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = "amplifier_context_core"
FOLDERS = {path.parent.name: path.parent for path in sorted(ROOT.glob("*/pyproject.toml"))}
PACKAGES = {CORE: FOLDERS[CORE], "amplifier_context_testing": FOLDERS["testing"]} | {
    name: folder for name, folder in FOLDERS.items() if name.startswith("amplifier_context_")
}
MANAGERS = frozenset(PACKAGES) - {CORE, "amplifier_context_testing"}

# From what nobody needs to do without to what needs all the rest. A module imports from lines above its own only, or
# along its own line to the left. A new module gets its place here.
ORDER = """
    errors amounts failures futures clip clock lookalikes fence identifiers tables gate events paths
    messages short_forms
    media tokens
    transcript
    lent additions
    rounds summaries align merge search meter budget config
    provider_limits shapes thinking
    render prompt responses
    plugins
    stores.protocol stores.checks stores.telling stores.rows stores.slices stores.memory_store
    stores.servers stores.jsonl stores.sqlite stores.postgres stores.redis
    stores.addresses stores
    speech checkpoint notices incoming replay reconcile
    stored
    digest condensing kin
    distant
    strategies.base strategies.outputs strategies.folding strategies.windows strategies
    floor
    erase erasures
    ladder lines history
    saved
    shelf
    figures
    views
    explain resume manager
    kernel compat
    cli
"""
RANK = {name: (row, column) for row, line in enumerate(ORDER.split("\n")) for column, name in enumerate(line.split())}
PURE = "Pure: no I/O, no clock"
IMPURE = frozenset(
    [
        "asyncio",
        "datetime",
        "glob",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    ]
)


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
def imported(package: str, path: Path, *, typing_too: bool = False, lazy_too: bool = True) -> frozenset[str]:
    """The modules a file imports, by full name; those under `if TYPE_CHECKING` only when asked for."""
    here = module_name(package, path).split(".")
    parent = here if path.name == "__init__.py" else here[:-1]
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test) and not typing_too:
                for other in child.orelse:
                    walk(other)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and not lazy_too:
                continue
            elif isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = parent[: len(parent) - child.level + 1] if child.level else []
                source = ".".join([*base, child.module] if child.module else base)
                if child.module:  # `from . import x` names the package only because x stands in it
                    found.add(source)
                if child.level or source.split(".")[0] in PACKAGES:
                    names = (f"{source}.{alias.name}" for alias in child.names)
                    found.update(name for name in names if name in MODULES)
            else:
                walk(child)

    walk(parsed(path))
    return frozenset(found)


MODULES = {module_name(package, path): (package, path) for package in PACKAGES for path in sources(PACKAGES[package])}
CORE_MODULES = {name: path for name, (package, path) in MODULES.items() if package == CORE}


def room(name: str) -> str:
    """A module of core as ORDER names it: a command line, a backend and what it is made of are one room."""
    short = name.removeprefix(f"{CORE}.")
    parts = short.split(".")
    if parts[0] == "stores" and len(parts) > 1:
        return ".".join(parts[:2])
    return parts[0] if parts[0] in ("cli", "compat") else short


def inner(name: str, *, lazy_too: bool = True) -> set[str]:
    """The modules of core that one of them imports when it is loaded or used."""
    found = {one for one in imported(CORE, CORE_MODULES[name], lazy_too=lazy_too) if one in CORE_MODULES}
    # `from .strategies.base import x` names the package too, only because it stands on the way.
    return {one for one in found if one not in (CORE, name)}


def test_there_is_something_to_read() -> None:
    assert len(CORE_MODULES) > 30
    assert f"{CORE}.errors" in inner(f"{CORE}.messages")
    assert {"amplifier_context_simple"} <= MANAGERS


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room(name) for name in CORE_MODULES} - {CORE} == set(RANK)


def test_imports_go_one_way() -> None:
    wrong = [
        f"{room(name)} imports {room(other)}, which stands behind it"
        for name in sorted(set(CORE_MODULES) - {CORE})
        for other in sorted(inner(name))
        if room(other) != room(name) and RANK[room(other)] >= RANK[room(name)]
    ]
    assert wrong == []


def test_imports_go_round_in_no_circle() -> None:
    """Rooms: not even lazily. The command's modules: not when they are loaded."""
    graph = {
        name: {one for one in inner(name, lazy_too=room(name) != "cli") if not name.startswith(f"{one}.")}
        for name in CORE_MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" imports ".join(circle.args[1]))


def test_the_design_is_held_in_its_own_words() -> None:
    """DESIGN.md: errors, messages <- tokens <- transcript <- rounds <- strategies <- ladder <- views <- manager."""
    spine = [
        "errors",
        "messages",
        "tokens",
        "transcript",
        "rounds",
        "render",
        "checkpoint",
        "strategies",
        "ladder",
        "views",
        "manager",
        "kernel",
        "cli",
    ]
    assert [RANK[name] for name in spine] == sorted(RANK[name] for name in spine)


@pytest.mark.parametrize("package", [CORE, "amplifier_context_testing"])
def test_core_and_testing_import_no_manager_package(package: str) -> None:
    for path in sources(PACKAGES[package]):
        roots = {name.split(".")[0] for name in imported(package, path, typing_too=True)}
        assert not roots & MANAGERS, path.name


def test_core_does_not_import_testing_but_in_its_command() -> None:
    for name, path in CORE_MODULES.items():
        if room(name) != "cli":
            roots = {one.split(".")[0] for one in imported(CORE, path, typing_too=True)}
            assert "amplifier_context_testing" not in roots, name


@pytest.mark.parametrize("package", sorted(MANAGERS))
def test_a_manager_package_imports_no_other_manager_package(package: str) -> None:
    for path in sources(PACKAGES[package]):
        roots = {name.split(".")[0] for name in imported(package, path, typing_too=True)}
        assert not roots & (MANAGERS - {package}), path.name


# -- pure rooms -------------------------------------------------------------------------------------------------------


def pure_rooms() -> dict[str, Path]:
    found = {}
    for name, path in CORE_MODULES.items():
        doc = ast.get_docstring(parsed(path)) or ""
        if PURE in doc:
            found[name] = path
    return found


def test_the_rooms_that_must_be_pure_say_so() -> None:
    said = {room(name) for name in pure_rooms()}
    assert said >= {"messages", "transcript", "rounds", "clip", "render", "identifiers", "checkpoint", "digest"}
    assert said >= {"align", "meter", "floor"}


def test_a_pure_room_imports_neither_io_nor_clock() -> None:
    for name in pure_rooms():
        roots = {one.split(".")[0] for one in imported(CORE, CORE_MODULES[name])}
        assert not roots & IMPURE, room(name)


def test_a_pure_room_opens_nothing_and_waits_for_nothing() -> None:
    for name, path in pure_rooms().items():
        for node in ast.walk(parsed(path)):
            is_waiting = isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.Global))
            assert not is_waiting, f"{room(name)}: {ast.dump(node)[:80]}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input", "exec", "eval"), room(name)


def test_nothing_random_and_no_wall_clock_decides_what_a_view_looks_like() -> None:
    """Clocks stamp and pace history (clock, history), time compactions (views) and claims on stores, and no more."""
    clocked = {
        room(name)
        for name, path in CORE_MODULES.items()
        if {"time", "datetime", "random", "secrets", "uuid"} & {n.split(".")[0] for n in imported(CORE, path)}
    }
    clocked = {name for name in clocked if name.split(".")[0] not in ("cli", "stores", "compat")}
    assert clocked <= {"clock", "erasures", "history", "stored", "views", "tokens"}


# -- what a package may need, and what its files may be called --------------------------------------------------------


def test_no_module_of_core_needs_the_kernel_to_be_imported() -> None:
    for name, path in CORE_MODULES.items():
        roots = {one.split(".")[0] for one in imported(CORE, path, lazy_too=False)}
        assert "amplifier_core" not in roots, name


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


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_no_file_of_a_package_hides_a_module_of_python_or_of_a_dependency(folder: str) -> None:
    """The kernel's loader puts a flat folder first on `sys.path` (KERNEL.md)."""
    taken = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions()) | set(PACKAGES)
    names = {
        path.name.removesuffix(".py")
        for path in FOLDERS[folder].iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }
    assert not (names - {"__init__", folder}) & taken  # a module of the folder's own name is the package itself


def test_every_room_begins_with_its_idea_and_every_package_is_typed() -> None:
    for name, path in CORE_MODULES.items():
        if path.stat().st_size:
            assert ast.get_docstring(parsed(path)), name
    for folder in PACKAGES.values():
        assert (folder / "py.typed").exists(), folder.name
