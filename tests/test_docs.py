"""What the README says is executed, or compared with what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from amplifier_context_core.cli import main
from amplifier_context_core.config import WITHOUT_MEANING
from amplifier_context_persistent import PersistentConfig
from docs.config_table import TABLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def between(name: str) -> str:
    found = re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", README, re.DOTALL)
    assert found, f"README has no {name} section"
    return found.group(1).strip()


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.split("import ")[-1].split("\n")[0][:40])
def test_python_in_the_readme_runs(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - that is the test


def test_mount_plans_in_the_readme_name_a_context_we_ship() -> None:
    plans = [yaml.safe_load(block) for block in blocks("yaml")]
    assert plans
    for plan in plans:
        context = plan["session"]["context"]
        module = context if isinstance(context, str) else context["module"]
        assert (ROOT / f"amplifier_{module.replace('-', '_')}" / "__init__.py").is_file()
        config = plan.get("context", {}).get("config") or (context.get("config") if isinstance(context, dict) else {})
        assert set(config or {}) <= set(PersistentConfig.model_fields) | WITHOUT_MEANING


def test_make_targets_and_folders_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_config_tables_are_those_the_code_gives(name: str) -> None:
    assert between(name) == TABLES[name]()


def test_the_commands_of_the_readme_exist() -> None:
    for command in re.findall(r"^amplifier-context ([a-z]+)", README, re.MULTILINE):
        assert command in main.commands, command


def test_the_demo_output_shows_a_compaction_and_a_summary() -> None:
    shown = between("demo")
    assert "```" in shown
    assert "compact" in shown
    assert re.search(r"all \S* ?valid|valid", shown)


def test_files_named_in_the_architecture_page_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"`([a-z_/]+\.py)`", page)):
        places = [ROOT / "amplifier_context_core" / name, ROOT / name]
        assert any(place.is_file() for place in places), name
