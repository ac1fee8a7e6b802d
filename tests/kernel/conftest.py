"""In this folder nothing is skipped: the kernel's suites skip without a word when they cannot find the module."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.mounted import CURRENT, Mounted, use
from tests.places import ALL, Place, marked_backends, wanted

EVERYWHERE = ("test_sessions",)  # files whose tests run on the backends they want; the others on each module's default
ROOT = Path(__file__).parents[2]


@pytest.fixture
def module_path(mounted: Mounted) -> Path:
    """The package under test; the kernel's own fixture finds none from here."""
    return ROOT / mounted.package


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests away from the sessions of the user."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every module; where it says so, on the backends that the test wants."""
    name = metafunc.module.__name__.rpartition(".")[2]
    cases: list[Any] = []
    if name != "test_host_checkpoint":  # there the session's own store has nothing to resume
        cases.append(pytest.param(("context-persistent", ""), id="persistent"))
    if name != "test_resuming":
        cases.insert(0, pytest.param(("context-simple", ""), id="simple"))
    if name != "test_resuming":
        cases.append(pytest.param(("context-summary", ""), id="summary"))
    if name in EVERYWHERE:
        cases += [
            pytest.param(("context-persistent", backend), id=f"persistent-{backend}", marks=marks)
            for backend, marks in marked_backends()
            if backend in wanted(metafunc)
        ]
        cases += [
            pytest.param(("context-summary", backend), id=f"summary-{backend}", marks=marks)
            for backend, marks in marked_backends()
            if ALL or backend == "sqlite"
        ]
    few = metafunc.definition.get_closest_marker("few_elsewhere")
    if few is None:
        metafunc.parametrize("mounted", cases, indirect=True)
        return
    argument, every, chosen = few.args
    pairs = [
        pytest.param(*case.values, value, id=f"{value}-{case.id}", marks=case.marks)
        for case in cases
        for value in (every if ALL or case is cases[0] else chosen)
    ]
    metafunc.parametrize(("mounted", argument), pairs, indirect=["mounted"])


@pytest.fixture(autouse=True)
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Mounted:
    """The module under test; where no backend is named, on its default one."""
    module, backend = request.param
    config: dict[str, Any] = {"store": Place(backend, tmp_path).url(), "durability": "none"} if backend else {}
    if (
        module == "context-summary"
    ):  # the scripts of these tests hold the answers of an agent; tests/summary has a model
        config["max_summary_calls"] = 0
    use(module, config)
    return CURRENT


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A skip is a failure here."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"
    return report
