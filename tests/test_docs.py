"""What the README says is executed, or compared with what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from amplifier_context_core.config import WITHOUT_MEANING, Config
from docs.config_table import config_table

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
        assert set(config or {}) <= set(Config.model_fields) | WITHOUT_MEANING


def test_make_targets_and_folders_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_the_config_table_is_the_one_the_code_gives() -> None:
    assert between("config") == config_table()


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
