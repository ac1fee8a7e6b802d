"""docs/extending.md and the examples: each runs, is installed or is held to the contract it speaks of."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import amplifier_context_core as core
from amplifier_context_core.plugins import Specification
from amplifier_context_core.stores import Store
from amplifier_context_testing import check_request
from amplifier_context_testing.store_contract import MakeStore, StoreContract
from amplifier_context_testing.strategy_contract import StrategyContract
from examples.research_assistant.research_assistant import DOCUMENTS
from examples.retrieval import retrieval
from examples.store import dict_store
from examples.store.dict_store import DictStore, Session
from examples.strategies import strategies
from tests.distributions import install
from tests.messages import says, user
from tests.pages import ROOT, blocks, code, module, read

PAGE = read("docs/extending.md")
PACKAGE = module(PAGE, "acme_context.py")


class TestStrategiesOfPageAndExamples(StrategyContract):
    @pytest.fixture(
        autouse=True,
        params=[PACKAGE.DropSearches, strategies.HideListings, strategies.FoldTools, strategies.FoldTestsLast],
        ids=lambda strategy: strategy.__name__,
    )
    def strategy(self, request: pytest.FixtureRequest) -> None:
        self.make_strategy = request.param  # type: ignore[method-assign]


class TestTheStoreOfTheExamples(StoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        data: dict[str, Session] = {}

        async def make() -> Store:
            return DictStore(data)

        return make


EXAMPLES = {
    **dict.fromkeys(("host", "search", "strategies", "without_kernel"), ""),
    "research_assistant": f"From [incident] {DOCUMENTS['incident'][1]}",
    "retrieval": f"answer  Note: {retrieval.FACTS['billing']}",
}


@pytest.mark.kernel
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "examples" / name
    monkeypatch.syspath_prepend(str(folder))  # as Python does for a program
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed
    assert EXAMPLES[name] in printed


async def test_a_session_is_kept_in_the_store_of_the_examples() -> None:
    plugins = core.Plugins()
    plugins.register(dict_store.plugin)
    store = core.open_store("dict:mine", plugins)
    manager = core.ContextManager(session_id="s", store=store, plugins=plugins)
    await manager.add_message(user("Kept."))
    assert [one.message["content"] for one in await core.open_store("dict:mine", plugins).read("s")] == ["Kept."]


def test_the_page_names_every_plug_in_point() -> None:
    points = [point for point in vars(Specification) if point.startswith("amplifier_context_")]
    assert [point for point in points if f"`{point}`" not in PAGE] == []


def install_from(project: Any, site: Path) -> None:
    points = project["entry-points"]["amplifier_context"]
    install(site, project["name"], project["version"], "amplifier_context", points)


@pytest.mark.kernel
def test_the_package_of_the_page_runs_in_the_plan_of_the_page_and_without_it_there_is_the_error_of_the_page(
    tmp_path: Path,
) -> None:
    (settings,) = (tomllib.loads(block) for block in blocks(PAGE, "toml"))
    assert settings["tool"]["setuptools"]["py-modules"] == ["acme_context"]
    site, home = tmp_path / "site", tmp_path / "home"
    install_from(settings["project"], site)
    (site / "acme_context.py").write_text(code(PAGE, "acme_context.py"), encoding="utf-8")
    home.mkdir()
    (home / "plan.yaml").write_text(code(PAGE, "plan.yaml"), encoding="utf-8")
    for number in range(40):
        (home / f"notes_{number}.txt").write_text(f"note_{number} about part_{number}\n" * 60, encoding="utf-8")

    def run() -> tuple[int, str]:
        command = [Path(sys.executable).parent / "amplifier-context", "run", "plan.yaml"]
        env = {**os.environ, "PYTHONPATH": str(site), "HOME": str(home)}
        done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    status, printed = run()
    assert status == 0, printed
    assert re.search(r"compacted [^└]*freed by\s+drop-searches", printed), printed
    (site / "acme_context.py").unlink()
    status, printed = run()
    assert status != 0
    quoted = "'drop-searches' is not known; known are"
    assert quoted in PAGE
    assert quoted in " ".join(printed.split())


async def test_the_strategy_of_the_plugin_keeps_trouble_and_its_observer_counts_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ROOT / "examples" / "plugin"
    install_from(tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"], tmp_path)
    for path in (tmp_path, folder):
        monkeypatch.syspath_prepend(str(path))
    plugins = core.Plugins()
    plugins.load_installed()
    config = core.load_config({"max_tokens": 1_000, "token_counter": "heuristic", "ladder": ["keep-trouble", "drop"]})
    manager = core.ContextManager(config, session_id="s", plugins=plugins)
    await manager.add_message(user("Build it."))
    for number in range(60):
        text = "Traceback: the build failed" if number == 3 else f"Step {number} went well."
        await manager.add_message(says(f"{text} " * 5))
        view = await manager.get_messages_for_request()
        assert check_request(view) == []
    assert any("Traceback" in message["content"] for message in view)
    assert not any("Step 4 " in message["content"] for message in view)
    folds = sys.modules.pop("amplifier_context_keep_trouble").plugin.folds
    assert folds["s"] == (await manager.explain())["compactions"] > 0
