"""The example plug-in, found as an installed one would be: by its entry point."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplifier_context_core import ContextManager, Plugins, Strategy, load_config
from amplifier_context_testing import check_request
from amplifier_context_testing.strategy_contract import StrategyContract

FOLDER = Path(__file__).parents[1] / "examples" / "plugin"


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugins]:
    """Plug-ins of a machine on which `pip install ./examples/plugin` was run."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
    points = "\n".join(f"{name} = {value}" for name, value in project["entry-points"]["amplifier_context"].items())
    (installed / "entry_points.txt").write_text(f"[amplifier_context]\n{points}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(FOLDER))
    found = Plugins()
    found.load_installed()
    yield found
    sys.modules.pop("amplifier_context_keep_trouble", None)


class TestItsStrategy(StrategyContract):
    @pytest.fixture(autouse=True)
    def strategies(self, plugins: Plugins) -> None:
        self.offer = plugins.find("amplifier_context_strategies", "keep-trouble")

    def make_strategy(self) -> Strategy:
        assert self.offer
        return self.offer[1]()


async def test_its_strategy_keeps_trouble_and_its_observer_counts_folds(plugins: Plugins) -> None:
    config = load_config({"max_tokens": 1_000, "token_counter": "heuristic", "ladder": ["keep-trouble", "drop"]})
    manager = ContextManager(config, session_id="s", plugins=plugins)
    await manager.add_message({"role": "user", "content": "Build it."})
    for number in range(60):
        text = "Traceback: the build failed" if number == 3 else f"Step {number} went well."
        await manager.add_message({"role": "assistant", "content": f"{text} " * 5})
        view = await manager.get_messages_for_request()
        assert check_request(view) == []
    assert any("Traceback" in message["content"] for message in view)
    assert not any("Step 4 " in message["content"] for message in view)
    offer = plugins.find("amplifier_context_strategies", "keep-trouble")
    assert offer is not None
    assert offer[0] == "keep-trouble"
    folds = sys.modules["amplifier_context_keep_trouble"].plugin.folds
    assert folds["s"] == (await manager.explain())["compactions"] > 0
