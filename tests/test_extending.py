"""docs/extending.md and the examples: each runs, is installed or is held to the contract it speaks of."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

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


# -- the examples keep the contracts -----------------------------------------------------------------------------------


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


# -- the package is installed, named in a plan, and run ----------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of a machine on which the package of the page was installed, its plan and some files beside it."""
    (settings,) = (tomllib.loads(block) for block in blocks(PAGE, "toml"))
    project = settings["project"]
    assert settings["tool"]["setuptools"]["py-modules"] == ["acme_context"]
    site = tmp_path / "site"
    points = project["entry-points"]["amplifier_context"]
    install(site, project["name"], project["version"], "amplifier_context", points)
    (site / "acme_context.py").write_text(code(PAGE, "acme_context.py"), encoding="utf-8")
    plan = tmp_path / "home" / "plan.yaml"
    plan.parent.mkdir()
    plan.write_text(code(PAGE, "plan.yaml"), encoding="utf-8")
    for number in range(40):
        (plan.parent / f"notes_{number}.txt").write_text(f"note_{number} about part_{number}\n" * 60, encoding="utf-8")
    return tmp_path


def run(machine: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "amplifier-context", "run", "plan.yaml"]
    home = {**os.environ, "PYTHONPATH": str(machine / "site"), "HOME": str(machine / "home")}
    return subprocess.run(command, cwd=machine / "home", env=home, capture_output=True, text=True, check=False)


@pytest.mark.kernel
def test_the_package_of_the_page_runs_in_the_plan_of_the_page_and_without_it_there_is_the_error_of_the_page(
    machine: Path,
) -> None:
    done = run(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"compacted [^└]*freed by\s+drop-searches", done.stdout), done.stdout
    assert "failed" not in done.stderr
    (machine / "site" / "acme_context.py").unlink()
    done = run(machine)
    assert done.returncode != 0
    quoted = "'drop-searches' is not known; known are"
    assert quoted in PAGE
    assert quoted in " ".join(f"{done.stdout}{done.stderr}".split())


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[core.Plugins]:
    """Plug-ins of a machine on which `pip install ./examples/plugin` was run."""
    folder = ROOT / "examples" / "plugin"
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["amplifier_context"]
    install(tmp_path, project["name"], project["version"], "amplifier_context", points)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(folder))
    found = core.Plugins()
    found.load_installed()
    yield found
    sys.modules.pop("amplifier_context_keep_trouble", None)


async def test_the_strategy_of_the_plugin_keeps_trouble_and_its_observer_counts_folds(plugins: core.Plugins) -> None:
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
    offer = plugins.find("amplifier_context_strategies", "keep-trouble")
    assert offer is not None
    assert offer[0] == "keep-trouble"
    folds = sys.modules["amplifier_context_keep_trouble"].plugin.folds
    assert folds["s"] == (await manager.explain())["compactions"] > 0
