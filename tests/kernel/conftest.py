"""Each module in the kernel, by every test of its file."""

from pathlib import Path
from typing import Any

import pytest

from tests.kernel.hosted import CURRENT, Mounted
from tests.places import ALL, Place, marked_backends, wanted

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
    """The modules of a file, `MODULES` or all; in `test_sessions` also on the backends that a test wants."""
    modules = getattr(metafunc.module, "MODULES", ("simple", "persistent", "summary"))
    cases: list[Any] = [pytest.param((f"context-{module}", ""), id=module) for module in modules]
    if metafunc.module.__name__.endswith("test_sessions"):
        cases += [
            pytest.param((f"context-{module}", backend), id=f"{module}-{backend}", marks=marks)
            for module in ("persistent", "summary")
            for backend, marks in marked_backends()
            if (backend in wanted(metafunc) if module == "persistent" else ALL or backend == "sqlite")
        ]
    metafunc.parametrize("mounted", cases, indirect=True)


@pytest.fixture(autouse=True)
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Mounted:
    """The module under test; where no backend is named, on its default one."""
    module, backend = request.param
    config: dict[str, Any] = {"store": Place(backend, tmp_path).url(), "durability": "none"} if backend else {}
    if module == "context-summary":  # these scripts hold the answers of an agent; tests/summary has a model
        config["max_summary_calls"] = 0
    CURRENT.module, CURRENT.config = module, config
    return CURRENT
