"""What the README and the pages of docs/ say is executed, or compared with what is true; what they name is there."""

import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from amplifier_context_cli.app import main
from amplifier_context_core.config import WITHOUT_MEANING
from amplifier_context_persistent import PersistentConfig
from amplifier_context_summary import SummaryConfig
from docs.config_table import TABLES
from tests.pages import PATHS, ROOT, between, blocks, files, module, read

CORE = ROOT / "amplifier_context_core"
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PATHS}
BLOCKS = [
    pytest.param(page, block, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, block in enumerate(blocks(page, "python"), 1)
]
ALL = {**PAGES, "CONTRIBUTING.md": read("CONTRIBUTING.md")}
OURS = r"\bamplifier_context_(?:core|simple|persistent|summary|recall|testing)(?:\.\w+)+(?::\w+)?"


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_python_in_the_pages_runs(page: str, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in files(page):
        monkeypatch.setitem(sys.modules, Path(file).stem, module(page, file))
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - that is the test


PLANS = [yaml.safe_load(block) for page in PAGES.values() for block in blocks(page, "yaml")]


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_a_mount_plan_names_a_context_we_ship_and_its_keys(plan: Any) -> None:
    context = plan["session"]["context"]
    name, config = (context, {}) if isinstance(context, str) else (context["module"], context.get("config"))
    assert (ROOT / f"amplifier_{name.replace('-', '_')}" / "__init__.py").is_file()
    known = SummaryConfig if name == "context-summary" else PersistentConfig
    assert {*(plan.get("context", {}).get("config") or config or {})} <= {*known.model_fields} | WITHOUT_MEANING


@pytest.mark.kernel
def test_the_whole_plan_of_the_configuration_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plan,) = (block for block in blocks(read("docs/configuration.md"), "yaml") if "\nproviders:" in block)
    (tmp_path / "plan.yaml").write_text(plan, encoding="utf-8")
    (tmp_path / "notes.md").write_text("The loader reads plans.", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["run", "plan.yaml"])
    assert done.exit_code == 0, done.output
    assert "notes.md" in done.output


def anchors(page: str) -> set[str]:
    """Return the names under which GitHub links to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL)
def test_links_of_a_page_and_make_targets_on_it_lead_somewhere(page: str) -> None:
    for link, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", ALL[page]):
        target = ((ROOT / page).parent / link).resolve() if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), f"{link}#{anchor}"
    for target in set(re.findall(r"`make ([a-z]+)", ALL[page])):
        assert re.search(rf"^{target}:", read("Makefile"), re.MULTILINE), target


def test_pages_that_code_names_exist() -> None:
    """In comments, docstrings, messages and help texts. Tests make up pages whose names have one letter."""
    code = [path for path in ROOT.rglob("*.py") if not {"build", ".venv"} & set(path.relative_to(ROOT).parts)]
    named = {
        (page, path) for path in code for page in re.findall(r"\bdocs/(?:\w+/)?\w\w+\.md\b", path.read_text("utf-8"))
    }
    assert len(named) > 30
    assert [(page, path) for page, path in named if not (ROOT / page).exists()] == []


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_config_tables_are_those_the_code_gives(name: str) -> None:
    assert between(read("docs/configuration.md"), name) == TABLES[name]()


def test_the_stores_page_and_the_readme_of_the_command_show_every_command_and_no_other() -> None:
    commands = re.findall(r"^amplifier-context ([a-z]+)", read("docs/stores.md"), re.MULTILINE)
    assert sorted(set(commands)) == sorted(main.commands)
    _, _, after = read("amplifier_context_cli/README.md").partition("manages stored sessions:")
    assert re.findall(r"`(\w+)`", after.partition(".")[0]) == list(main.commands)


def named(page: str) -> list[str]:
    """Return the files and folders that a page names, in order.

    Paths are from the root, or from core's folder. In a row of a table that begins with a folder, they are from there.
    """
    found: list[str] = []
    for line in page.splitlines():
        paths = re.findall(r"`([a-z_]+(?:/[a-z_]*)+(?:\.py)?|[a-z_]+\.py)`", line)
        row = re.match(r"\| `([a-z_/]+/)` \|", line)
        found.extend([row[1], *(row[1] + path for path in paths[1:])] if row else paths)
    return found


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_and_folders_that_a_page_names_exist(name: str) -> None:
    paths = named(read(name))
    assert len(paths) > 30
    assert [path for path in paths if not any((root / path).exists() for root in (CORE, ROOT))] == []


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in ROOT.glob("amplifier_context_*/pyproject.toml")))
def test_the_architecture_page_names_every_file_of_a_package_once(folder: str) -> None:
    package = ROOT / folder
    of_packaging = {package / "setup.py", package / f"{folder}.py"}
    files = {path for path in package.rglob("*.py") if path.name != "__init__.py" and "build" not in path.parts}
    times = Counter(root / path for path in named(read("docs/architecture.md")) for root in (CORE, ROOT))
    wrong = {path.relative_to(ROOT).as_posix(): times[path] for path in files - of_packaging if times[path] != 1}
    assert not wrong, f"docs/architecture.md must name each file once; it names these so many times: {wrong}"


@pytest.mark.parametrize("page", ALL)
def test_every_name_and_module_of_ours_on_a_page_is_where_the_page_says(page: str) -> None:
    paths = [path.replace(":", ".") for path in re.findall(OURS, ALL[page])]
    for place, names in re.findall(r"\bfrom (amplifier_context_[\w.]+) import ([\w, ]+)", ALL[page]):
        paths += [f"{place}.{name}" for name in re.split(r",\s*", names.strip())]
    run = re.findall(r"python\S* -m ([\w.]+)", ALL[page])
    assert [path for path in paths if locate(path) is None] == [name for name in run if not find_spec(name)] == []


def test_every_test_that_a_page_names_is_there() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"\bdef (test_\w+)\(", tests))
    assert {name for text in ALL.values() for name in re.findall(r"`(test_\w+)`", text)} - there == set()
    rows = [line for line in read("docs/guarantees.md").splitlines() if line.startswith("- ")]
    named = [re.search(r" `([\w/.]+)::(test_\w+)`$", row) for row in rows]
    assert len(rows) > 40
    assert [one for one in named if one is None or not re.search(rf"\bdef {one[2]}\(", read(one[1]))] == []
