"""What each package needs, what its extras add, and the error without one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.builds import ROOT

OURS = "amplifier_context_"
HOST = "amplifier_core"  # the kernel: the host brings it
DRIVERS = ("psycopg", "psycopg_pool", "redis", "sqlite3")
SCREEN = ("click", "rich", "yaml")
RUN = "from amplifier_context_cli import main; main()"
UNREGISTERED = "import importlib.metadata as metadata; metadata.entry_points = lambda **_: ()\n"


def project(folder: str) -> dict[str, Any]:
    """The table [project] of a package."""
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


def test_core_needs_four_libraries_one_reader_of_image_sizes_one_lock_and_newer_typing() -> None:
    needed = distributions(project("amplifier_context_core")["dependencies"])
    assert needed == {"pluggy", "pydantic", "tiktoken", "orjson", "imagesize", "filelock", "typing-extensions"}


@pytest.mark.parametrize(
    "folder",
    [
        "amplifier_context_cli",
        "amplifier_context_core",
        "amplifier_context_simple",
        "amplifier_context_persistent",
        "amplifier_context_recall",
        "amplifier_context_servers",
        "amplifier_context_summary",
    ],
)
def test_a_package_declares_what_it_imports_and_nothing_else(folder: str) -> None:
    table = project(folder)
    extras = [text for texts in table.get("optional-dependencies", {}).values() for text in texts]
    declared = distributions([*table["dependencies"], *extras])
    brought = distributions(project("amplifier_context_core")["dependencies"]) | {"psycopg-pool"}  # by psycopg[pool]
    found = imported(ROOT / folder)
    assert found >= declared
    assert found <= declared | brought


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


@pytest.mark.parametrize("module", ["simple", "persistent", "summary"])
def test_what_searches_is_loaded_by_the_first_search(module: str) -> None:
    searching = ("transcript.query", "transcript.ranking", "transcript.search", "stores.word_index")
    done = python(
        f"import amplifier_context_{module}, asyncio; from amplifier_context_core import ContextManager\n"
        f"loaded = lambda: [name for name in {searching!r} if f'amplifier_context_core.{{name}}' in sys.modules]\n"
        "async def session():\n"
        "    manager = ContextManager()\n"
        "    await manager.add_message({'role': 'user', 'content': 'a grey heron'})\n"
        "    assert await manager.get_messages_for_request()\n"
        "    print(loaded(), await manager.search('heron'), len(loaded()))\n"
        "asyncio.run(session())"
    )
    assert done.stdout == "[] ['m1'] 4\n", done.stderr


def test_importing_compiles_no_slow_pattern_and_makes_no_reader_of_saved_states() -> None:
    done = python(
        "import re, pydantic.type_adapter as adapters\n"
        "noted, compiled = [], re.compile\n"
        "re.compile = lambda pattern, flags=0: noted.append(str(pattern)) or compiled(pattern, flags)\n"
        "adapters.TypeAdapter.__init__ = lambda _, type: noted.append(str(type))\n"
        "import amplifier_context_simple, amplifier_context_persistent\n"
        "print(len(noted) > 30, [one for one in noted if 'SessionState' in one or '\u2e80-\u9fff' in one])"
    )
    assert done.stdout == "True []\n", done.stderr


def test_ctrl_c_while_the_command_is_loaded_is_one_line() -> None:
    interrupt = "lambda *_: __import__('signal').raise_signal(2)"
    done = python(f"sys.modules['click'] = type('Loading', (), {{'__getattr__': {interrupt}}})(); {RUN}")
    assert (done.returncode, done.stderr) == (130, "Aborted!\n")


def test_the_commands_about_kept_sessions_need_neither_rich_nor_yaml(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'kept.db'}"
    (tmp_path / "kept.db").touch()
    blocked = ("rich", "yaml", "amplifier_context_testing", HOST)
    done = python(RUN, *blocked, arguments=["sessions", "--store", store])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith(f"no sessions in {store}")


@pytest.mark.parametrize("extra", ["postgresql", "redis"])
def test_a_store_without_its_driver_names_the_extra_and_the_python_that_has_it(extra: str) -> None:
    code = f"from amplifier_context_core.stores import open_store; open_store('{extra}://localhost/0')"
    done = python(code, *DRIVERS[:3])
    install = f"{sys.executable} -m pip install 'amplifier-context-servers[{extra}]'"
    assert re.search(rf"ConfigError: .*: {re.escape(install)}$", done.stderr, re.MULTILINE), done.stderr


def test_a_command_of_a_package_that_is_not_installed_names_the_package_and_help_leaves_it_out() -> None:
    done = python(UNREGISTERED + RUN, arguments=["run", "--help"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: `run` is in the package amplifier-context-testing, which is not installed: "
        "pip install ./testing in a clone of the repository\n"
    )
    lean = python(UNREGISTERED + RUN, arguments=["--help"]).stdout
    assert "  sessions  " in lean
    assert "  run  " not in lean
    assert {"run", "sessions"} <= set(re.findall(r"^  (\w+)  ", python(RUN, arguments=["--help"]).stdout, re.M))


def test_a_registered_command_that_cannot_be_loaded_leaves_the_others_alone() -> None:
    registered = (
        "import importlib.metadata as metadata\n"
        "broken = metadata.EntryPoint('broken', 'nowhere.to_be:found', 'amplifier_context.commands')\n"
        "odd = metadata.EntryPoint('odd', 'json:dumps', 'amplifier_context.commands')\n"
        "metadata.entry_points = lambda group='', **_: (broken, odd) if group == broken.group else ()\n"
    )
    listed = python(registered + RUN, arguments=["--help"])
    assert listed.returncode == 0
    assert "  sessions  " in listed.stdout
    done = python(registered + RUN, arguments=["broken", "--any", "thing"])
    assert (done.returncode, done.stderr) == (
        1,
        "Error: `broken` cannot be loaded from nowhere.to_be:found: ModuleNotFoundError: No module named 'nowhere'\n",
    )
    assert "it is a function, not a click command" in python(registered + RUN, arguments=["odd"]).stderr
