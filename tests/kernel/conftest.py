"""In this folder nothing is skipped: the kernel's suites skip without a word when they cannot find the module."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ["amplifier_context_simple"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=PACKAGES)
def module_path(request: pytest.FixtureRequest) -> Path:
    """The package under test; the kernel's own fixture finds none from here."""
    return ROOT / request.param


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A skip is a failure here."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"
    return report
