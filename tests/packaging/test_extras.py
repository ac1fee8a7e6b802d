"""What each package needs, what its extras add, and the error without one."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from amplifier_context_cli import app
from tests.cli.kept import run
from tests.pages import ROOT

OURS = "amplifier_context_"
HOST = "amplifier_core"  # the kernel: the host brings it
DRIVERS = ("psycopg", "psycopg_pool", "redis", "sqlite3")
SCREEN = ("click", "rich", "yaml")
RUN = "from amplifier_context_cli import main; main()"


def project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def distributions(requirements: Iterable[str]) -> set[str]:
    """The names of required distributions, those of this repository left out."""
    names = {canonicalize_name(Requirement(text).name) for text in requirements}
    return {name for name in names if not name.startswith("amplifier-context-")}


def imported(folder: Path) -> set[str]:
    """The distributions that a package's modules import anywhere, Python and this repository left out."""
    roots: set[str] = set()
    for path in folder.rglob("*.py"):
        if {"build", "setup.py"} & set(path.relative_to(folder).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                roots.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                roots.add(node.module.split(".")[0])
    roots = {root for root in roots - sys.stdlib_module_names - {HOST} if not root.startswith(OURS)}
    known = packages_distributions()
    return {canonicalize_name(name) for root in roots for name in known[root]}


def python(code: str, *blocked: str, arguments: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which some modules are not installed."""
    block = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", block + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in ROOT.glob("amplifier_context_*/pyproject.toml")))
def test_a_package_declares_what_it_imports_and_nothing_else(folder: str) -> None:
    table = project(folder)
    extras = [text for texts in table.get("optional-dependencies", {}).values() for text in texts]
    declared = distributions([*table["dependencies"], *extras])
    brought = distributions(project("amplifier_context_core")["dependencies"]) | {"psycopg-pool"}  # by psycopg[pool]
    assert declared <= imported(ROOT / folder) <= declared | brought
    if folder == "amplifier_context_core":
        assert declared >= {"pluggy", "pydantic", "tiktoken"}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("simple", (*DRIVERS, *SCREEN, HOST, "aiofiles", "filelock", "tiktoken", "bpe_openai._bindings")),
        ("persistent", (*DRIVERS[:3], *SCREEN, HOST)),
    ],
)
def test_importing_a_module_loads_no_driver_of_a_server_no_screen_and_no_kernel(module: str, heavy: Any) -> None:
    done = python(f"import amplifier_context_{module}; print([name for name in {heavy!r} if name in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_the_commands_about_kept_sessions_need_neither_rich_nor_yaml(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'kept.db'}"
    (tmp_path / "kept.db").touch()
    blocked = ("rich", "yaml", "amplifier_context_testing", HOST)
    done = python(RUN, *blocked, arguments=["sessions", "--store", store])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith(f"no sessions in {store}")


@pytest.mark.parametrize(("driver", "extra"), [*zip(DRIVERS[:3], ["postgresql", "postgresql", "redis"], strict=True)])
def test_a_store_without_its_driver_names_the_extra_and_the_python_that_has_it_and_other_stores_need_none(
    driver: str, extra: str
) -> None:
    urls = ["memory:", "jsonl:/nowhere/x", "sqlite:/nowhere/x", f"{extra}://localhost/0"]
    done = python(f"from amplifier_context_core.stores import open_store\nfor url in {urls}: open_store(url)", driver)
    install = f"{sys.executable} -m pip install 'amplifier-context-servers[{extra}]'"
    assert re.search(rf"ConfigError: .*: {re.escape(install)}$", done.stderr, re.MULTILINE), done.stderr


def test_a_command_of_a_package_that_is_not_installed_names_the_package_and_help_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "  run  " in run("--help").output
    monkeypatch.setattr(app, "entry_points", lambda **_: ())
    assert "  run  " not in run("--help").output
    done = run("run", "--help", code=1)
    assert done.stdout == ""
    assert "`run` is in the package amplifier-context-testing, which is not installed: pip install" in done.stderr


def test_ctrl_c_while_the_command_is_loaded_is_one_line() -> None:
    interrupt = "lambda *_: __import__('signal').raise_signal(2)"
    done = python(f"sys.modules['click'] = type('Loading', (), {{'__getattr__': {interrupt}}})(); {RUN}")
    assert (done.returncode, done.stderr) == (130, "Aborted!\n")


def test_a_registered_command_that_cannot_be_loaded_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "nowhere.to_be:found", app.GROUP)
    monkeypatch.setattr(app, "entry_points", lambda **_: (broken,))
    assert "  sessions  " in run("--help").output
    done = run("broken", "--any", "thing", code=1)
    assert done.stderr.startswith("Error: `broken` cannot be loaded from nowhere.to_be:found: ModuleNotFoundError")
